/**
 * Consecutive collectives of one redistribution along several mesh dims are merged.
 */
import assert from 'node:assert/strict';
import {
  CommDebugMode,
  DTensor,
  distributeTensor,
  initDeviceMesh,
  Partial,
  type Placement,
  Replicate,
  Shard,
} from '../../../lib/distributed.js';
import { arange, float64 } from '../../../lib/index.js';
import { onRanks } from '../../distributed/support/on-ranks.js';

const SHAPE = [2, 3];
const RANKS = 6;
type Order = readonly (readonly number[])[];

interface Seen {
  readonly counts: Record<string, number>;
  readonly values: unknown;
}

/**
 * What a redistribution on a mesh of two dims communicates, and the whole tensor that it ends with,
 * on each rank.
 */
function run(
  rows: number,
  from: Placement[],
  to: Placement[],
  { shardOrder, targetOrder }: { shardOrder?: Order; targetOrder?: Order } = {},
): Promise<Seen[]> {
  return onRanks(RANKS, async () => {
    const mesh = initDeviceMesh('cpu', SHAPE, { meshDimNames: ['dp', 'tp'] });
    const whole = arange(rows * 2, { dtype: float64 }).reshape([rows, 2]);
    const source = from[0]?.isPartial()
      ? DTensor.fromLocal(whole, mesh, from)
      : distributeTensor(whole, mesh, from, shardOrder === undefined ? {} : { shardOrder });
    const mode = new CommDebugMode();
    const result = mode.run(() =>
      source.redistribute(to, targetOrder === undefined ? {} : { shardOrder: targetOrder }),
    ) as DTensor;
    const counts = mode.getCommCounts();
    return { counts, values: [...(await result.fullTensor().read())] };
  });
}

const numbers = (count: number, factor = 1): number[] =>
  Array.from({ length: count }, (_, i) => i * factor);

describe('collectives along several mesh dims', () => {
  for (const rows of [12, 7, 1]) {
    for (const [what, shardOrder] of [
      ['of the mesh', undefined],
      ['of the last mesh dim first', [[1, 0]]],
    ] as const) {
      it(`gather ${rows} rows at once, sharded in the order ${what}`, async () => {
        for (const { counts, values } of await run(
          rows,
          [Shard(0), Shard(0)],
          [Replicate(), Replicate()],
          shardOrder === undefined ? {} : { shardOrder },
        )) {
          assert.deepEqual(counts, { allGather: 1 });
          assert.deepEqual(values, numbers(rows * 2));
        }
      });

      it(`reduce-scatter ${rows} rows at once, sharded in the order ${what}`, async () => {
        for (const { counts, values } of await run(
          rows,
          [Partial(), Partial()],
          [Shard(0), Shard(0)],
          shardOrder === undefined ? {} : { targetOrder: shardOrder },
        )) {
          assert.deepEqual(counts, { reduceScatter: 1 });
          assert.deepEqual(values, numbers(rows * 2, RANKS));
        }
      });
    }
  }

  it('all-reduce at once', async () => {
    for (const [reduction, factor] of [
      ['sum', RANKS],
      ['avg', 1],
      ['max', 1],
    ] as const) {
      for (const { counts, values } of await run(
        3,
        [Partial(reduction), Partial(reduction)],
        [Replicate(), Replicate()],
      )) {
        assert.deepEqual(counts, { allReduce: 1 });
        assert.deepEqual(values, numbers(6, factor));
      }
    }
  });

  it('are not merged if they shard different dims', async () => {
    for (const { counts } of await run(4, [Shard(0), Shard(1)], [Replicate(), Replicate()]))
      assert.deepEqual(counts, { allGather: 2 });
  });
});
