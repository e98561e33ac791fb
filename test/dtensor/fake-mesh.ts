/** Meshes without ranks, specs on them, and generators of both. */
import fc from 'fast-check';
import { float32 } from '../../lib/core/dtype.js';
import {
  Partial,
  type Placement,
  type ReduceOpName,
  Replicate,
  Shard,
} from '../../lib/core/placement.js';
import { contiguousStrides, type Shape } from '../../lib/core/shape.js';
import type { MeshLayout } from '../../lib/distributed/device-mesh/layout.js';
import { DTensorSpec, type ShardOrder, type TensorMeta } from '../../lib/dtensor/spec/spec.js';

/** Far from those of meshes that have ranks. */
let nextId = 1_000_000;

export function fakeMesh(
  shape: Shape,
  meshDimNames: readonly string[] | null = null,
  id = nextId++,
): MeshLayout {
  return { id, shape, meshDimNames, getCoordinate: () => shape.map(() => 0) };
}

export function metaOf(shape: Shape, dtype = float32): TensorMeta {
  return { shape, strides: contiguousStrides(shape), dtype };
}

export function specOf(
  mesh: MeshLayout,
  shape: Shape,
  placements: readonly Placement[],
  shardOrder: ShardOrder | null = null,
): DTensorSpec {
  return DTensorSpec(mesh, placements, { tensorMeta: metaOf(shape), shardOrder });
}

/**
 * Placements and orders of two specs of one tensor, such that the second can be reached from the
 * first.
 */
export interface SpecPair {
  from: DTensorSpec;
  to: DTensorSpec;
}

interface PairOptions {
  leastRanks: number;
  mostRanks: number;
  mostMeshDims: number;
  mostSize: number;
  reduceOps: readonly ReduceOpName[];
}

export function specPairs({
  leastRanks,
  mostRanks,
  mostMeshDims,
  mostSize,
  reduceOps,
}: PairOptions): fc.Arbitrary<SpecPair> {
  const meshShape = fc.array(fc.integer({ min: leastRanks, max: mostRanks }), {
    minLength: 1,
    maxLength: mostMeshDims,
  });
  const tensorShape = fc.array(fc.integer({ min: 0, max: mostSize }), {
    minLength: 1,
    maxLength: 3,
  });
  return fc
    .tuple(meshShape, tensorShape)
    .chain(([ranks, shape]) => {
      const whole: fc.Arbitrary<Placement> = fc.oneof(
        fc.constant(Replicate()),
        fc.integer({ min: 0, max: shape.length - 1 }).map(Shard),
      );
      const source: fc.Arbitrary<Placement> = fc.oneof(
        { weight: 3, arbitrary: whole },
        { weight: 1, arbitrary: fc.constantFrom(...reduceOps).map((op) => Partial(op)) },
      );
      const perMeshDim = <T>(each: fc.Arbitrary<T>) =>
        fc.array(each, { minLength: ranks.length, maxLength: ranks.length });
      const sequence = fc.shuffledSubarray([...ranks.keys()], { minLength: ranks.length });
      return fc.record({
        ranks: fc.constant(ranks),
        shape: fc.constant(shape),
        source: perMeshDim(source),
        target: perMeshDim(whole),
        keep: perMeshDim(fc.boolean()),
        one: sequence,
        two: sequence,
      });
    })
    .map(({ ranks, shape, source, target, keep, one, two }) => {
      const mesh = fakeMesh(ranks);
      const first = source.find((placement) => placement.isPartial());
      const from = source.map((placement) =>
        placement.isPartial() && first !== undefined ? first : placement,
      );
      const to = target.map((placement, i) => (keep[i] ? (from[i] as Placement) : placement));
      return {
        from: specOf(mesh, shape, from, orderBy(from, shape, one)),
        to: specOf(mesh, shape, to, orderBy(to, shape, two)),
      };
    });
}

/** The shard order of each dim, in the order of `sequence`. */
export function orderBy(
  placements: readonly Placement[],
  shape: Shape,
  sequence: readonly number[],
): ShardOrder {
  return shape.map((_, dim) => sequence.filter((meshDim) => placements[meshDim]?.isShard(dim)));
}
