/** Whole parameters are those of the shards, whatever the order of forward, step and backward. */
import assert from 'node:assert/strict';
import { DTensor, fullyShard } from '../../../lib/distributed.js';
import { nn, noGrad, ShardingError, type Tensor } from '../../../lib/index.js';
import { withRanks } from '../../../lib/testing/index.js';
import {
  adamOf,
  assertClose,
  batchOf,
  lossOf,
  type Model,
  newModel,
  partOf,
  trainedAlone,
  valuesOf,
} from './model.js';

const STEPS = 4;
type Sharded = Model & ReturnType<typeof fullyShard>;

/** What a program may do between backward and the step that makes whole parameters old. */
const between: Record<string, (model: Sharded, x: Tensor) => void> = {
  'a forward with gradients': (model, x) => void model(x),
  'unshard() of a module': (model) => void (model.first as unknown as Sharded).unshard(),
};

describe('the whole parameters of a sharded model', () => {
  for (const [what, act] of Object.entries(between))
    for (const reshardAfterForward of [null, false, 2])
      it(
        `are new after ${what} and an optimizer step, reshardAfterForward: ${reshardAfterForward}`,
        withRanks(4, async (rank) => {
          const expected = await trainedAlone(STEPS);
          const model = newModel();
          fullyShard(model.first, { reshardAfterForward });
          const root = fullyShard(model, { reshardAfterForward });
          const adam = adamOf(root);
          for (let step = 0; step < STEPS; step++) {
            lossOf(root, partOf(batchOf(step), rank, 4)).backward();
            act(root, partOf(batchOf(99), rank, 4));
            adam.step();
            adam.zeroGrad();
          }
          (root.first as unknown as Sharded).reshard();
          assertClose(await valuesOf(root), expected);
        }),
      );

  it(
    'are new after a change of the sharded ones in place',
    withRanks(2, async (rank) => {
      const [model, other] = [newModel(), newModel()];
      const sharded = fullyShard(model, { reshardAfterForward: false });
      const x = partOf(batchOf(0), rank, 2);
      sharded(x);
      for (const each of [sharded, other])
        noGrad(() => {
          for (const p of each.parameters()) p.mul_(0.5);
        });
      const difference = sharded(x).sub(other(x)).abs().amax();
      assert.ok(Number((await difference.reshape([1]).read())[0]) < 1e-12);
    }),
  );

  it(
    'are of one group: a parameter that modules of two groups share is refused by name',
    withRanks(2, () => {
      const [a, b] = [new nn.Linear(4, 4), new nn.Linear(4, 4)];
      b.weight = a.weight;
      fullyShard(a);
      const isRefused = (error: Error): boolean =>
        error instanceof ShardingError &&
        /share "(weight|1\.weight)" to be in one/.test(error.message);
      assert.throws(() => fullyShard(b), isRefused);
      assert.throws(() => fullyShard(new nn.Sequential(a, b)), isRefused);
      assert.ok(!(b.bias instanceof DTensor));
    }),
  );
});
