/**
 * Sizes and offsets of the shards of all ranks.
 */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import { describe, it } from 'mocha';
import { Replicate, Shard } from '../../../lib/core/placement.js';
import { numelOf } from '../../../lib/core/shape.js';
import {
  largestLocalShape,
  meshCoordinates,
  shardAt,
} from '../../../lib/dtensor/spec/shard-geometry.js';
import { fakeMesh, specOf, specPairs } from '../fake-mesh.js';
import { localOf } from '../simulated-ranks.js';

describe('the shards of a tensor', () => {
  it('keep the sizes of other dims if they are empty', () => {
    const spec = specOf(fakeMesh([4]), [5, 7], [Shard(0)]);
    assert.deepEqual(shardAt(spec, [3]), {
      shape: [0, 7],
      offsets: [5, 0],
      globalShape: [5, 7],
    });
  });

  it('follow the shard order of mesh dims', () => {
    const mesh = fakeMesh([2, 2], ['dp', 'tp']);
    const starts = (order: number[][]) => {
      const spec = specOf(mesh, [8], [Shard(0), Shard(0)], order);
      return meshCoordinates(mesh).map((coordinate) => shardAt(spec, coordinate).offsets[0]);
    };
    assert.deepEqual(starts([[0, 1]]), [0, 2, 4, 6]);
    assert.deepEqual(starts([[1, 0]]), [0, 4, 2, 6], 'tensor parallel first, then FSDP');
  });

  it('are empty for ranks outside of the mesh', () => {
    const spec = specOf(fakeMesh([2]), [4, 4], [Replicate()]);
    assert.deepEqual(shardAt(spec, null).shape, [0]);
  });

  it('are computed once', () => {
    const spec = specOf(fakeMesh([2]), [4, 4], [Shard(1)]);
    assert.equal(shardAt(spec, [1]), shardAt(spec, [1]));
  });

  it('have the elements at their offsets, and the first shard is the largest', () => {
    const pairs = specPairs({
      leastRanks: 1,
      mostRanks: 4,
      mostMeshDims: 3,
      mostSize: 7,
      reduceOps: ['sum'],
    });
    fc.assert(
      fc.property(pairs, ({ from: spec }) => {
        const numbered = {
          shape: spec.shape,
          data: Array.from({ length: numelOf(spec.shape) }, (_, i) => i),
        };
        const largest = largestLocalShape(spec);
        for (const coordinate of meshCoordinates(spec.mesh)) {
          const { shape, offsets } = shardAt(spec, coordinate);
          const held = localOf(spec, numbered, coordinate);
          assert.deepEqual(shape, held.shape);
          assert.ok(shape.every((size, dim) => size <= (largest[dim] as number)));
          if (held.data.length > 0)
            assert.equal(
              offsets.reduce(
                (index, offset, dim) => index * (spec.shape[dim] as number) + offset,
                0,
              ),
              held.data[0],
            );
        }
      }),
    );
  });
});
