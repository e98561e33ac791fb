/**
 * The pieces of a tensor dim that the ranks of a group hold, as its collectives join and cut them.
 */
import { shardAt } from './shard-geometry.js';
import type { DTensorSpec } from './spec.js';

export interface GroupShards {
  /** In the order of the ranks. */
  readonly sizes: readonly number[];
  /** From where the first of them begins. */
  readonly offsets: readonly number[];
  /**
   * Which piece comes first in the tensor, which next; null where that is the order of the ranks.
   * Mesh dims may cut in another order than theirs.
   */
  readonly order: readonly number[] | null;
}

const known = new WeakMap<DTensorSpec, Map<string, GroupShards>>();

/**
 * Of the ranks that differ from the one at `coordinate` along some mesh dims only, in the order of
 * the mesh.
 */
export function groupShards(
  spec: DTensorSpec,
  coordinate: readonly number[],
  meshDims: readonly number[],
  dim: number,
): GroupShards {
  let ofSpec = known.get(spec);
  if (ofSpec === undefined) known.set(spec, (ofSpec = new Map()));
  const key = `${dim}|${meshDims}|${coordinate}`;
  let shards = ofSpec.get(key);
  if (shards === undefined)
    ofSpec.set(key, (shards = computeGroupShards(spec, coordinate, meshDims, dim)));
  return shards;
}

function computeGroupShards(
  spec: DTensorSpec,
  coordinate: readonly number[],
  meshDims: readonly number[],
  dim: number,
): GroupShards {
  let coordinates: number[][] = [[...coordinate]];
  for (const meshDim of meshDims.toSorted((a, b) => a - b)) {
    coordinates = coordinates.flatMap((at) =>
      Array.from({ length: spec.mesh.shape[meshDim] as number }, (_, rank) =>
        at.with(meshDim, rank),
      ),
    );
  }
  const shards = coordinates.map((at) => shardAt(spec, at));
  const sizes = shards.map(({ shape }) => shape[dim] as number);
  const starts = shards.map(({ offsets }) => offsets[dim] as number);
  const first = Math.min(...starts);
  const order = [...starts.keys()].sort(
    (a, b) => (starts[a] as number) - (starts[b] as number) || a - b,
  );
  return {
    sizes,
    offsets: starts.map((start) => start - first),
    order: order.every((rank, i) => rank === i) ? null : order,
  };
}
