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
