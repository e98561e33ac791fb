/** Which part of a tensor each rank holds. */
import type { Shape } from '../../core/shape.js';
import type { ShardMeta } from '../../core/sharding-rule.js';
import type { MeshLayout } from '../../distributed/device-mesh/layout.js';
import type { DTensorSpec } from './spec.js';

/**
 * Elements of the pieces that `size` elements are cut into among `ranks`; the last ones may have
 * fewer, or none.
 */
export function chunkSize(size: number, ranks: number): number {
  return Math.ceil(size / ranks);
}

/** The part of `size` elements that rank `rank` of `ranks` has. An empty one begins at the end. */
export function chunkOf(
  size: number,
  ranks: number,
  rank: number,
): { size: number; offset: number } {
  const chunk = chunkSize(size, ranks);
  const offset = Math.min(size, rank * chunk);
  return { size: Math.min(size, offset + chunk) - offset, offset };
}

/** The parts of all ranks. */
export function chunksOf(size: number, ranks: number): { size: number; offset: number }[] {
  return Array.from({ length: ranks }, (_, rank) => chunkOf(size, ranks, rank));
}

interface SpecShards {
  /** By the place of a rank in the mesh, row-major; made on demand. */
  readonly byRank: (ShardMeta | undefined)[];
  readonly outside: ShardMeta;
}

const cache = new WeakMap<DTensorSpec, SpecShards>();
const NOTHING: Shape = Object.freeze([0]);

function shardsOf(spec: DTensorSpec): SpecShards {
  let found = cache.get(spec);
  if (found === undefined) {
    found = {
      byRank: [],
      outside: Object.freeze({ shape: NOTHING, offsets: NOTHING, globalShape: spec.shape }),
    };
    cache.set(spec, found);
  }
  return found;
}

/**
 * What the rank at `coordinate` holds; a rank outside the mesh (null) has a tensor of shape [0].
 */
export function shardAt(spec: DTensorSpec, coordinate: readonly number[] | null): ShardMeta {
  const { byRank, outside } = shardsOf(spec);
  if (coordinate === null) return outside;
  const { shape } = spec.mesh;
  let rank = 0;
  for (let i = 0; i < shape.length; i++)
    rank = rank * (shape[i] as number) + (coordinate[i] as number);
  return (byRank[rank] ??= computeShard(spec, coordinate));
}

/** Each mesh dim cuts what those before it in the order of the dim have left. */
function computeShard(spec: DTensorSpec, coordinate: readonly number[]): ShardMeta {
  const shape: number[] = [];
  const offsets: number[] = [];
  spec.shape.forEach((size, dim) => {
    let rest = size;
    let start = 0;
    for (const meshDim of spec.order[dim] as readonly number[]) {
      const chunk = chunkOf(
        rest,
        spec.mesh.shape[meshDim] as number,
        coordinate[meshDim] as number,
      );
      rest = chunk.size;
      start += chunk.offset;
    }
    shape.push(rest);
    offsets.push(start);
  });
  return Object.freeze({
    shape: Object.freeze(shape),
    offsets: Object.freeze(offsets),
    globalShape: spec.shape,
  });
}

/** Sizes of the largest piece, which is the first: collectives pad the others to it. */
export function largestLocalShape(spec: DTensorSpec): Shape {
  return shardAt(
    spec,
    spec.mesh.shape.map(() => 0),
  ).shape;
}

/** All positions in a mesh, row-major: the last mesh dim runs fastest. */
export function meshCoordinates(mesh: MeshLayout): number[][] {
  return mesh.shape.reduce<number[][]>(
    (starts, ranks) =>
      starts.flatMap((start) => Array.from({ length: ranks }, (_, i) => [...start, i])),
    [[]],
  );
}

/** The shards of one tensor dim on the ranks of a group, in the form that collectives need. */
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

const groupCache = new WeakMap<DTensorSpec, Map<string, GroupShards>>();

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
  let ofSpec = groupCache.get(spec);
  if (ofSpec === undefined) groupCache.set(spec, (ofSpec = new Map()));
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
