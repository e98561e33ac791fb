/**
 * Shard orders in distributeTensor, fromLocal and redistribute.
 */
import assert from 'node:assert/strict';
import {
  DTensor,
  distributeTensor,
  initDeviceMesh,
  Replicate,
  Shard,
} from '../../../lib/distributed.js';
import { arange, float32, type Tensor, zeros } from '../../../lib/index.js';
import { withRanks } from '../../../lib/testing/index.js';

const mesh2d = () => initDeviceMesh('cpu', [2, 2], { meshDimNames: ['dp', 'tp'] });
const both = [Shard(0), Shard(0)];
/** tp shards first: FSDP over tensor parallel. */
const shardOrder = [[1, 0]];
const numbers = async (t: Tensor): Promise<number[]> => Array.from(await t.read(), Number);

describe('a shard order', () => {
  for (const srcDataRank of [0, null] as const) {
    it(
      `is respected by distributeTensor (srcDataRank: ${srcDataRank})`,
      withRanks(4, async (rank) => {
        const whole = arange(7, { dtype: float32 });
        const values = srcDataRank === null || rank === 0 ? whole : zeros([7]);
        const t = distributeTensor(values, mesh2d(), both, { srcDataRank, shardOrder });
        // tp has 0-3 and 4-6; dp shards those.
        assert.deepEqual(await numbers(t.toLocal()), [[0, 1], [4, 5], [2, 3], [6]][rank]);
        assert.deepEqual(await numbers(t.fullTensor()), [0, 1, 2, 3, 4, 5, 6]);
        assert.equal(distributeTensor(t, mesh2d(), both, { shardOrder }), t);
        assert.throws(
          () => distributeTensor(t, mesh2d(), both),
          /distributed already: float32\[7\] .* dim 0 sharded by tp, then dp/,
        );
        const plainOrder = distributeTensor(whole, mesh2d(), both, { srcDataRank: null });
        assert.deepEqual(
          await numbers(plainOrder.redistribute(both, { shardOrder }).toLocal()),
          await numbers(t.toLocal()),
        );
      }),
    );
  }

  it(
    'is respected by fromLocal',
    withRanks(4, async (rank) => {
      const part = arange(2 * rank, 2 * rank + 2, 1, { dtype: float32 });
      const inOrder = DTensor.fromLocal(part, mesh2d(), both);
      assert.deepEqual(await numbers(inOrder.fullTensor()), [0, 1, 2, 3, 4, 5, 6, 7]);
      const t = DTensor.fromLocal(part, mesh2d(), both, { shardOrder });
      // The parts of the first tp rank come first: those of ranks 0 and 2.
      assert.deepEqual(await numbers(t.fullTensor()), [0, 1, 4, 5, 2, 3, 6, 7]);
      const uneven = DTensor.fromLocal(zeros([rank === 3 ? 1 : 2]), mesh2d(), both, {
        shardOrder,
        shape: [7],
        stride: [1],
      });
      assert.deepEqual(uneven.shape, [7]);
    }),
  );

  it(
    'must name the mesh dims that shard',
    withRanks(4, async () => {
      const mesh = mesh2d();
      const wrong = { shardOrder: [[1]] };
      const expected = /expected shardOrder\[0\] to name the mesh dims that shard tensor dim 0/;
      assert.throws(() => distributeTensor(zeros([4]), mesh, both, wrong), expected);
      assert.throws(() => DTensor.fromLocal(zeros([4]), mesh, both, wrong), expected);
      assert.throws(
        () =>
          DTensor.fromLocal(zeros([4]), mesh, [Replicate(), Replicate()]).redistribute(both, wrong),
        expected,
      );
    }),
  );
});

describe('a distributed tensor', () => {
  it(
    'that got the memory of another one counts changes of its local shard, and keeps its version',
    withRanks(2, () => {
      const mesh = initDeviceMesh('cpu', [2]);
      const make = (): Tensor => distributeTensor(zeros([6]), mesh, [Shard(0)]);
      const [t, other] = [make(), make()];
      for (let i = 0; i < 3; i++) t.add_(1);
      t.data = other;
      assert.equal(t._version, 3);
      t._localTensor.add_(1);
      assert.equal(t._version, 4);
      t.add_(1);
      assert.deepEqual([t._version, t._localTensor._version, other._version], [5, 5, 0]);
    }),
  );

  it(
    'refuses a plain tensor as its data, with advice',
    withRanks(2, async () => {
      const mesh = initDeviceMesh('cpu', [2], { meshDimNames: ['tp'] });
      const t = distributeTensor(zeros([4]), mesh, [Shard(0)]);
      const advice =
        /expected a distributed tensor for one placed as float32\[4\] on mesh \(tp: 2\): \[Shard\(0\)\], got a plain float32\[2\]. Convert it by distributeTensor/;
      assert.throws(() => {
        t.data = zeros([2]);
      }, advice);
      assert.throws(() => t.set_(zeros([2])), advice);
      t.data = distributeTensor(zeros([6]), mesh, [Shard(0)]);
      assert.deepEqual([t.shape, t.toLocal().shape], [[6], [3]]);
    }),
  );
});
