/**
 * A rank of a trial of test/fuzz/faults.ts: joins, then trains and reduces until it ends. It writes
 * files when it joins, when it runs, and with the error that it ends with.
 */
import { existsSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import {
  allReduce,
  type CollectiveError,
  distributeTensor,
  initDeviceMesh,
  initProcessGroup,
  newGroup,
  Replicate,
  Shard,
} from '../../lib/distributed.js';
import { mseLoss, nn, optim, randn, scope, type Tensor } from '../../lib/index.js';

const [folder, backend, mode, grouped, timeoutMs] = process.argv.slice(2) as [
  string,
  string,
  string,
  string,
  string,
];
const rank = Number(process.env['RANK']);
/** Maximal life of a rank that nobody ends. */
const LONGEST_MS = 90_000;
const STEPS_UNREAD = 25;

const file = (what: string): string => path.join(folder, `${what}-${rank}`);

class Net extends nn.Module {
  fc1 = new nn.Linear(8, 32);
  fc2 = new nn.Linear(32, 4);
  forward(x: Tensor): Tensor {
    return this.fc2(this.fc1(x).relu());
  }
}

function trainer(): () => Tensor {
  const model = new Net();
  const optimizer = new optim.AdamW(model.parameters(), { lr: 1e-3 });
  return () => {
    const loss = mseLoss(model.forward(randn([16, 8])), randn([16, 4]));
    loss.backward();
    for (const { grad } of model.parameters()) if (grad) allReduce(grad);
    optimizer.step();
    optimizer.zeroGrad();
    return loss.detach();
  };
}

function distributed(): () => Tensor {
  const mesh = initDeviceMesh('cpu', [2, 2], { meshDimNames: ['dp', 'tp'] });
  const weight = distributeTensor(randn([16, 16]), mesh, [Replicate(), Shard(1)]);
  return () => {
    const x = distributeTensor(randn([8, 16]), mesh, [Shard(0), Replicate()]);
    return x.matmul(weight).sum().redistribute(mesh, [Replicate(), Replicate()]).toLocal();
  };
}

/** Exchanges in four groups; each rank is in two. */
function exchangeInGroups(): () => void {
  const groups = [
    [0, 1],
    [2, 3],
    [0, 2],
    [1, 3],
  ]
    .map((ranks) => newGroup(ranks))
    .filter((group) => group.rank >= 0);
  return () => {
    for (const group of groups) allReduce(randn([64]), { group });
  };
}

async function run(): Promise<void> {
  await initProcessGroup(backend, { timeoutMs: Number(timeoutMs) });
  const step = mode === 'dtensor' ? distributed() : trainer();
  const inGroups = grouped === 'true' ? exchangeInGroups() : () => {};
  const end = Date.now() + LONGEST_MS;
  for (let i = 1; Date.now() < end; i++) {
    const loss = scope(() => {
      inGroups();
      return step();
    });
    if (mode === 'item') loss.item();
    else if (mode !== 'lazy' || i % STEPS_UNREAD === 0) await loss.itemAsync();
    loss.dispose();
    if (i >= STEPS_UNREAD && !existsSync(file('running'))) writeFileSync(file('running'), '');
  }
}

writeFileSync(file('joining'), String(process.pid));
try {
  await run();
} catch (error) {
  const { message, details } = error as CollectiveError;
  writeFileSync(
    file('error'),
    JSON.stringify({ message, ranks: details?.ranks ?? [], at: Date.now() }),
  );
  throw error;
}
