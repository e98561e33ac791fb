/**
 * The pieces of a tensor dim that the ranks of a group hold, as its collectives join and cut them.
 */
import { localPiece } from './shard-geometry.js';
import type { DTensorSpec } from './spec.js';

export interface GroupPieces {
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

const known = new WeakMap<DTensorSpec, Map<string, GroupPieces>>();

/**
 * Of the ranks that differ from the one at `coordinate` along some mesh dims only, in the order of
 * the mesh.
 */
export function groupPieces(
  spec: DTensorSpec,
  coordinate: readonly number[],
  meshDims: readonly number[],
  dim: number,
): GroupPieces {
  let ofSpec = known.get(spec);
  if (ofSpec === undefined) known.set(spec, (ofSpec = new Map()));
  const key = `${dim}|${meshDims}|${coordinate}`;
  let pieces = ofSpec.get(key);
  if (pieces === undefined)
    ofSpec.set(key, (pieces = computePieces(spec, coordinate, meshDims, dim)));
  return pieces;
}

function computePieces(
  spec: DTensorSpec,
  coordinate: readonly number[],
  meshDims: readonly number[],
  dim: number,
): GroupPieces {
  let places: number[][] = [[...coordinate]];
  for (const meshDim of meshDims.toSorted((a, b) => a - b)) {
    places = places.flatMap((place) =>
      Array.from({ length: spec.mesh.shape[meshDim] as number }, (_, rank) =>
        place.with(meshDim, rank),
      ),
    );
  }
  const pieces = places.map((place) => localPiece(spec, place));
  const sizes = pieces.map(({ shape }) => shape[dim] as number);
  const starts = pieces.map(({ offsets }) => offsets[dim] as number);
  const first = Math.min(...starts);
  const order = [...starts.keys()].sort(
    (a, b) => (starts[a] as number) - (starts[b] as number) || a - b,
  );
  return {
    sizes,
    offsets: starts.map((start) => start - first),
    order: order.every((piece, i) => piece === i) ? null : order,
  };
}
