/** The state of one optimizer does not load into one that cannot use it. */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import {
  type CheckpointState,
  DTensor,
  distributedCheckpoint,
  distributeTensor,
  initDeviceMesh,
  Shard,
} from '../../../../lib/distributed.js';
import {
  CheckpointError,
  manualSeed,
  nn,
  noGrad,
  ones,
  optim,
  randn,
  type Tensor,
  tensor,
} from '../../../../lib/index.js';
import { withRanks } from '../../../../lib/testing/index.js';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'shardwise-optimizers-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const makers = {
  AdamW: (model: nn.AnyModule) => new optim.AdamW(model.parameters()),
  SGD: (model: nn.AnyModule) => new optim.SGD(model.parameters(), { lr: 0.1, momentum: 0.9 }),
};

async function saveTrained(make: (model: nn.AnyModule) => unknown): Promise<void> {
  const model = new nn.Linear(2, 2);
  const optimizer = make(model) as optim.Optimizer;
  model(ones([1, 2]))
    .sum()
    .backward();
  optimizer.step();
  await distributedCheckpoint.save(folder, { model, optimizer } as CheckpointState);
}

function load(make: (model: nn.AnyModule) => unknown) {
  const model = new nn.Linear(2, 2);
  const state = { model, optimizer: make(model) } as CheckpointState;
  return distributedCheckpoint.load(folder, state, { strict: false });
}

describe('the state of an optimizer', () => {
  for (const [saved, given] of [
    ['AdamW', 'SGD'],
    ['SGD', 'AdamW'],
  ] as const)
    it(`of ${saved} is refused by ${given}, with both names and what was saved`, async () => {
      await saveTrained(makers[saved]);
      const states = saved === 'SGD' ? /momentum_buffer/ : /exp_avg, exp_avg_sq, step/;
      const isRefused = (error: Error): boolean =>
        error instanceof CheckpointError &&
        error.message.includes(`"optimizer" is ${given}`) &&
        states.test(error.message);
      await assert.rejects(
        load(makers[given]),
        (error: Error) => isRefused(error) && error.message.includes(`the state of ${saved}`),
      );
      const file = path.join(folder, 'checkpoint.index.json');
      const index = JSON.parse(readFileSync(file, 'utf8'));
      delete index.values['optimizer.class']; // as before names were saved
      delete index.checksum;
      writeFileSync(file, JSON.stringify(index));
      await assert.rejects(load(makers[given]), isRefused);
      await load(makers[saved]);
    });

  for (const form of [{ foreach: true }, { foreach: false }])
    it(`of sharded parameters goes on if it is capturable, with ${JSON.stringify(form)}`, () =>
      withRanks(2, async () => {
        const mesh = initDeviceMesh('cpu', [2]);
        const make = () => {
          manualSeed(1);
          const p = new nn.Parameter(distributeTensor(randn([4, 2]), mesh, [Shard(0)]));
          const lr = tensor(0.5);
          const optimizer = new optim.AdamW([p], { lr, capturable: true, ...form });
          return { p, lr, optimizer: optimizer as unknown as optim.Optimizer };
        };
        const step = ({ p, optimizer }: ReturnType<typeof make>): void => {
          p.grad = p.detach().clone();
          optimizer.step();
        };
        const [first, second] = [make(), make()];
        step(first);
        noGrad(() => first.lr.fill_(0.25));
        const state = ({ p, optimizer }: ReturnType<typeof make>) => ({ p, optimizer });
        await distributedCheckpoint.save(folder, state(first));
        await distributedCheckpoint.load(folder, state(second));
        assert.equal(second.optimizer.paramGroups[0]?.['lr'], second.lr);
        for (const each of [first, second]) step(each);
        const [a, b] = [first, second].map(({ p }) => (p as unknown as DTensor).toLocal().detach());
        assert.deepEqual(await a?.read(), await b?.read());
        const { step: count } = second.optimizer.state.get(second.p) as Record<string, Tensor>;
        assert.ok(count instanceof DTensor);
        assert.equal(await count.toLocal().itemAsync(), 2);
      })());

  it('is taken by one with the same options, and with those that a schedule added', async () => {
    await saveTrained((model) => {
      const optimizer = new optim.Adam(model.parameters());
      new optim.lrScheduler.StepLR(optimizer as never, 2);
      return optimizer;
    });
    await load(makers.AdamW);
    class Mine extends optim.AdamW {}
    await load((model) => new Mine(model.parameters()));
  });
});
