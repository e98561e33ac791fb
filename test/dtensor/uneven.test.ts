/**
 * DTensor.fromLocalUneven: local shards whose sizes the other ranks do not know.
 */
import assert from 'node:assert/strict';
import {
  type DeviceMesh,
  DTensor,
  initDeviceMesh,
  Partial,
  type Placement,
  Replicate,
  Shard,
} from '../../lib/distributed.js';
import { arange, float32, ones, type Tensor } from '../../lib/index.js';
import { reusedRanks } from '../distributed/support/reused-ranks.js';

const WORLD = 4;
const [R, S0, S1, P] = [Replicate(), Shard(0), Shard(1), Partial()];

describe('DTensor.fromLocalUneven', () => {
  const ranks = reusedRanks(WORLD);
  /** Rows of a whole that count up: `sizes[rank]` of them. */
  const rowsOf = (sizes: readonly number[], rank: number): Tensor => {
    const start = sizes.slice(0, rank).reduce((a, b) => a + b, 0);
    return arange(start * 2, (start + (sizes[rank] as number)) * 2, { dtype: float32 }).reshape([
      sizes[rank] as number,
      2,
    ]);
  };
  const line = (): DeviceMesh => initDeviceMesh('cpu', [WORLD]);

  for (const sizes of [
    [2, 2, 1, 0],
    [3, 3, 3, 1],
    [1, 1, 1, 0],
    [0, 0, 0, 0],
    [2, 2, 2, 2],
  ]) {
    it(`finds the whole shape of local shards of ${sizes.join(', ')} rows`, async () => {
      await ranks.run(async (rank) => {
        const local = rowsOf(sizes, rank).requiresGrad_();
        const t = await DTensor.fromLocalUneven(local, line(), [S0]);
        const total = sizes.reduce((a, b) => a + b, 0);
        assert.deepEqual(
          [t.shape, t._localTensor.untypedStorage()],
          [[total, 2], local.untypedStorage()],
        );
        assert.deepEqual(
          [...(await t.detach().read())],
          Array.from({ length: 2 * total }, (_, i) => i),
        );
        t.sum().backward();
        assert.deepEqual(
          [...(await (local.grad as Tensor).read())],
          Array(2 * (sizes[rank] as number)).fill(1),
        );
      });
    });
  }

  it('refuses sizes that are not those of Shard with all sizes and advice, or moves rows', async () => {
    for (const sizes of [
      [1, 3, 2, 2],
      [0, 0, 0, 7],
      [5, 0, 1, 1],
    ]) {
      await ranks.run(async (rank) => {
        const local = rowsOf(sizes, rank).requiresGrad_();
        await assert.rejects(DTensor.fromLocalUneven(local, line(), [S0]), (error: Error) => {
          assert.match(
            error.message,
            /do not have the sizes of \[Shard\(0\)\].* Pass rebalance: true to move rows between ranks\./,
          );
          assert.match(
            error.message,
            new RegExp(`rank 1 at \\(1\\): \\[${sizes[1]}, 2\\], expected \\[2, 2\\]`),
          );
          return true;
        });
        const t = await DTensor.fromLocalUneven(local, line(), [S0], { rebalance: true });
        const total = sizes.reduce((a, b) => a + b, 0);
        const values = Array.from({ length: 2 * total }, (_, i) => i);
        assert.deepEqual([...(await t.detach().read())], values);
        t.mul(t).sum().backward();
        const start = 2 * sizes.slice(0, rank).reduce((a, b) => a + b, 0);
        assert.deepEqual(
          [...(await (local.grad as Tensor).read())],
          values.slice(start, start + 2 * (sizes[rank] as number)).map((v) => 2 * v),
        );
      });
    }
  });

  it('takes shards by several mesh dims, along one dim or two', async () => {
    const cases: [placements: Placement[], shape: number[], sizes: number[][]][] = [
      [
        [S0, S1],
        [5, 3],
        [
          [3, 2],
          [3, 1],
          [2, 2],
          [2, 1],
        ],
      ],
      [
        [S0, S0],
        [5, 2],
        [
          [2, 2],
          [1, 2],
          [1, 2],
          [1, 2],
        ],
      ],
      [
        [R, S0],
        [3, 2],
        [
          [2, 2],
          [1, 2],
          [2, 2],
          [1, 2],
        ],
      ],
      [
        [P, S1],
        [2, 3],
        [
          [2, 2],
          [2, 1],
          [2, 2],
          [2, 1],
        ],
      ],
    ];
    for (const [placements, shape, sizes] of cases) {
      await ranks.run(async (rank) => {
        const t = await DTensor.fromLocalUneven(
          ones(sizes[rank] as number[]),
          initDeviceMesh('cpu', [2, 2]),
          placements,
        );
        assert.deepEqual([t.shape, t.placements], [shape, placements]);
      });
    }
  });

  it('moves rows along each sharded dim', async () => {
    await ranks.run(async (rank) => {
      const [rows, columns] = [rank < 2 ? 1 : 4, rank % 2 === 0 ? 3 : 0];
      const local = arange(5, { dtype: float32 })
        .reshape([5, 1])
        .mul(10)
        .add(arange(3))
        .narrow(0, rank < 2 ? 0 : 1, rows)
        .narrow(1, rank % 2 === 0 ? 0 : 3, columns);
      const t = await DTensor.fromLocalUneven(local, initDeviceMesh('cpu', [2, 2]), [S0, S1], {
        rebalance: true,
      });
      assert.deepEqual(t._localTensor.shape, [rank < 2 ? 3 : 2, rank % 2 === 0 ? 2 : 1]);
      assert.deepEqual(
        [...(await t.read())],
        [0, 1, 2, 10, 11, 12, 20, 21, 22, 30, 31, 32, 40, 41, 42],
      );
    });
  });

  it('refuses replicas that differ in size', async () => {
    await ranks.run(async (rank) => {
      await assert.rejects(
        DTensor.fromLocalUneven(ones([rank + 1]), line(), [R], { rebalance: true }),
        /the local shards do not form one tensor placed as \[Replicate\(\)\].*replicas must have one shape\.\n {2}rank 0 at \(0\): \[1\]\n {2}rank 1 at \(1\): \[2\]/s,
      );
    });
  });
});

describe('DTensor.fromLocal of replicas', () => {
  const ranks = reusedRanks(WORLD);

  it('takes the values of the first rank with runCheck, and gives gradients to all ranks', async () => {
    await ranks.run(async (rank) => {
      const local = ones([2]).mul(rank).requiresGrad_();
      const t = DTensor.fromLocal(local, initDeviceMesh('cpu', [2, 2]), [S0, R], {
        runCheck: true,
      });
      assert.deepEqual([...(await t._localTensor.read())], Array(2).fill(rank < 2 ? 0 : 2));
      t.mul(3).sum().backward();
      assert.deepEqual([...(await (local.grad as Tensor).read())], [3, 3]);
      assert.deepEqual([...(await local.detach().read())], [rank, rank]);
    });
  });
});
