/** Sizes and offsets of the shards of a tensor: chunks of a dim, on one or more mesh dims. */
import { chunkOf } from '../../core/chunks.js';
import type { Shape } from '../../core/shape.js';
import type { ShardMeta } from '../../core/sharding-rule.js';
import type { MeshLayout } from '../../distributed/device-mesh/layout.js';
import type { DTensorSpec } from './spec.js';

/** The shards of one spec. */
interface SpecShards {
  /** By the row-major position of a rank in the mesh; computed on demand. */
  readonly byRank: (ShardMeta | undefined)[];
  /** The empty shard of ranks outside of the mesh. */
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

/** The shard of the rank at `coordinate`; a rank outside of the mesh (null) has shape [0]. */
export function shardAt(spec: DTensorSpec, coordinate: readonly number[] | null): ShardMeta {
  const { byRank, outside } = shardsOf(spec);
  if (coordinate === null) return outside;
  const { shape } = spec.mesh;
  let rank = 0;
  for (let i = 0; i < shape.length; i++)
    rank = rank * (shape[i] as number) + (coordinate[i] as number);
  return (byRank[rank] ??= computeShard(spec, coordinate));
}

/** Each mesh dim shards the chunk of the mesh dim before it in the shard order. */
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

/** Sizes of the largest shard, which is the first: collectives pad the others to it. */
export function largestLocalShape(spec: DTensorSpec): Shape {
  return shardAt(
    spec,
    spec.mesh.shape.map(() => 0),
  ).shape;
}

/** All coordinates of a mesh in row-major order: the last mesh dim changes fastest. */
export function meshCoordinates(mesh: MeshLayout): number[][] {
  return mesh.shape.reduce<number[][]>(
    (starts, ranks) =>
      starts.flatMap((start) => Array.from({ length: ranks }, (_, i) => [...start, i])),
    [[]],
  );
}

/** The shards of one tensor dim on the ranks of a group, as collectives need them. */
export interface GroupShards {
  /** The sizes, in the order of the ranks. */
  readonly sizes: readonly number[];
  /** The offsets relative to the first shard of the group. */
  readonly offsets: readonly number[];
  /**
   * The ranks in the order of their shards in the tensor; null if that is the order of the ranks.
   * The orders differ if the shard order is not that of the mesh dims.
   */
  readonly order: readonly number[] | null;
}

const groupCache = new WeakMap<DTensorSpec, Map<string, GroupShards>>();

/**
 * The shards along `dim` of the ranks that differ from the one at `coordinate` only along
 * `meshDims`, in the order of the mesh.
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
