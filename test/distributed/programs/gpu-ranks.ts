/**
 * Scenarios of ranks with a GPU each, as processes. Each rank writes its errors and times to a
 * file.
 */
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  allReduce,
  broadcast,
  DeviceMesh,
  fullyShard,
  getRank,
  getWorldSize,
  initProcessGroup,
} from '../../../lib/distributed.js';
import {
  type CompileBackend,
  compile,
  compiler,
  full,
  nn,
  ones,
  optim,
  type Tensor,
} from '../../../lib/index.js';

const [scenario, folder] = process.argv.slice(2) as [string, string];
const device = 'cuda' as const;
const filled = (count: number): Tensor => full([count], 1, { device });

/** Runs `call`, and reports the error that it ends with. */
async function reported(call: () => Promise<unknown>): Promise<void> {
  const begin = Date.now();
  let message = 'no error';
  try {
    await call();
  } catch (error) {
    message = (error as Error).message;
  }
  writeFileSync(
    path.join(folder, `rank-${getRank()}.json`),
    JSON.stringify({ message, ms: Date.now() - begin }),
  );
}

/** Calls, reads, and reports. */
const report = (call: (t: Tensor) => void, t: Tensor): Promise<void> =>
  reported(() => {
    call(t);
    return t.read();
  });

const sum = (t: Tensor): void => void allReduce(t);
const spread = (t: Tensor): void => void broadcast(t, 0);

function compileSlowly(): void {
  const step = (x: Tensor): Tensor => x.mul(2);
  const backend: CompileBackend = (module) => {
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 6_000);
    return module.forward.bind(module);
  };
  compile(step, { backend })(ones([2]));
}

/** A step of a fully sharded model, whose gathers and reductions NCCL makes. */
function trainingStep(): () => Promise<unknown> {
  const layers = [0, 1, 2].map(() => new nn.Linear(1024, 1024, { bias: false, device }));
  const model = new nn.Sequential(...layers);
  for (const layer of layers) fullyShard(layer);
  fullyShard(model);
  const optimizer = new optim.SGD(model.parameters(), { lr: 0.01 });
  const x = ones([64, 1024], { device });
  return () => {
    const loss = model(x).square().mean();
    loss.backward();
    optimizer.step();
    optimizer.zeroGrad();
    return loss.read();
  };
}

/** Trains; rank 1 gets a signal before the third step, which the others begin. */
async function trainsUntil(signal: NodeJS.Signals, rank: number): Promise<void> {
  const step = trainingStep();
  for (let i = 0; i < 2; i++) await step();
  if (rank === 1) await sleep(300);
  if (rank === 1) process.kill(process.pid, signal);
  await reported(async () => {
    for (let i = 0; i < 3; i++) await step();
  });
  process.exitCode = 3;
}

const scenarios: Readonly<Record<string, (rank: number) => unknown>> = {
  /** Rank 1 calls another collective. */
  differ: (rank) => report(rank === 1 ? spread : sum, filled(4)),
  /** Rank 1 has another shape, and comes late. */
  async shapes(rank) {
    if (rank === 1) await sleep(300);
    await report(sum, filled(rank === 1 ? 5 : 4));
  },
  async throws(rank) {
    if (rank === 1) await sleep(300);
    if (rank === 1) throw new TypeError('no data for this rank');
    await report(sum, filled(4));
    process.exitCode = 3;
  },
  async killed(rank) {
    if (rank === 1) await sleep(300);
    if (rank === 1) process.kill(process.pid, 'SIGKILL');
    await report(sum, filled(4));
    process.exitCode = 3;
  },
  /** Rank 1 is killed while NCCL waits for it. */
  async killedInNccl(rank) {
    if (rank === 1) await sleep(300);
    if (rank === 1) process.kill(process.pid, 'SIGKILL');
    await report(sum, filled(2 ** 24));
    process.exitCode = 3;
  },
  killedInTraining: (rank) => trainsUntil('SIGKILL', rank),
  /** Rank 1 stops: it is there, and does not go on. */
  stoppedInTraining: (rank) => trainsUntil('SIGSTOP', rank),
  /** Rank 1 is killed while the others make a mesh. */
  async meshes(rank) {
    if (rank === 1) await sleep(300);
    if (rank === 1) process.kill(process.pid, 'SIGKILL');
    const reversed = Array.from({ length: getWorldSize() }, (_, i) => getWorldSize() - 1 - i);
    await report(
      (t) => void allReduce(t, { group: new DeviceMesh(device, reversed).getGroup() }),
      filled(4),
    );
    process.exitCode = 3;
  },
  /** Rank 1 does not come within the timeout. */
  async late(rank) {
    if (rank === 1) await sleep(6_000);
    await report(sum, filled(4));
  },
  /** Rank 1 compiles for longer than the timeout. */
  async compiles(rank) {
    if (rank === 1) compileSlowly();
    await report(sum, filled(4));
  },
  /** The same, for longer than a rank may compile. */
  async compilesTooLong(rank) {
    compiler.config.compileTimeoutMs = 500;
    if (rank === 1) compileSlowly();
    await report(sum, filled(4));
  },
};

await initProcessGroup('cpu:shm,cuda:nccl');
const first = filled(2);
allReduce(first);
await first.read();
await scenarios[scenario]?.(getRank());
