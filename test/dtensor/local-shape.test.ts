/** Where the local shard of a distributed tensor lies in the whole one. */
import assert from 'node:assert/strict';
import {
  computeLocalShapeAndGlobalOffset,
  type DTensorSpec,
  distributeTensor,
  initDeviceMesh,
  Replicate,
  Shard,
} from '../../lib/distributed.js';
import { ArgumentError, arange, type Tensor } from '../../lib/index.js';
import { withRanks } from '../../lib/testing/index.js';

const specOf = (t: Tensor): DTensorSpec => (t as Tensor & { _spec: DTensorSpec })._spec;

describe('computeLocalShapeAndGlobalOffset', () => {
  it(
    'gives the rows and columns that a rank holds, also where they are uneven or none',
    withRanks(4, async () => {
      const mesh = initDeviceMesh('cpu', [2, 2]);
      const whole = arange(35).reshape([5, 7]);
      for (const placements of [
        [Shard(0), Shard(1)],
        [Shard(0), Shard(0)],
        [Replicate(), Shard(1)],
      ]) {
        const t = distributeTensor(whole, mesh, placements);
        const { shape, offsets } = computeLocalShapeAndGlobalOffset(specOf(t));
        const expected = shape.reduce(
          (rest, size, dim) => rest.narrow(dim, offsets[dim] as number, size),
          whole,
        );
        assert.deepEqual([...(await t.toLocal().read())], [...(await expected.read())]);
      }
    }),
  );

  it('refuses what is no spec', () => {
    assert.throws(() => computeLocalShapeAndGlobalOffset({} as never), ArgumentError);
  });
});
