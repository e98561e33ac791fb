/** A sharded model follows module.to after its first step. */
import assert from 'node:assert/strict';
import { FullyShardedDataParallel, fullyShard } from '../../../lib/distributed.js';
import { float32, manualSeed, nn, optim, randn, type Tensor } from '../../../lib/index.js';
import { withRanks } from '../../../lib/testing/index.js';
import { assertClose } from '../compare.js';

const make = (): nn.Sequential => {
  manualSeed(0);
  return new nn.Sequential(new nn.Linear(5, 7), new nn.Tanh(), new nn.Linear(7, 3)).double();
};

/** Two steps in float64 and one in float32, of one batch. */
function train(model: nn.Module): void {
  manualSeed(1);
  const x = randn([4, 5]).double();
  for (const [steps, input] of [
    [2, x],
    [1, x.float()],
  ] as const) {
    if (steps === 1) model.float();
    const sgd = new optim.SGD(model.parameters(), { lr: 0.1 });
    for (let i = 0; i < steps; i++) {
      model(input).square().mean().backward();
      sgd.step();
      sgd.zeroGrad();
    }
  }
}

const shard: Record<string, (model: nn.Module) => nn.Module> = {
  fullyShard: (model) => fullyShard(model),
  FullyShardedDataParallel: (model) => new FullyShardedDataParallel(model),
  'FullyShardedDataParallel with useOrigParams': (model) =>
    new FullyShardedDataParallel(model, { useOrigParams: true }),
};

describe('a sharded model that is converted between steps', () => {
  for (const [name, wrap] of Object.entries(shard))
    it(
      `trains on in the other dtype: ${name}`,
      withRanks(2, async () => {
        const plain = make();
        train(plain);
        const model = wrap(make());
        train(model);
        const expected = plain.stateDict();
        for (const [key, t] of Object.entries(model.stateDict())) {
          assert.equal(t.dtype, float32);
          await assertClose(t, expected[key] as Tensor, key, 1e-6);
        }
      }),
    );
});
