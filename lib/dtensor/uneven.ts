/**
 * `DTensor.fromLocalUneven`: finds the shape of the whole tensor from local shards whose sizes only
 * their own ranks know, and moves rows until each rank has the chunk of `Shard`.
 */

import { chunkOf, chunksOf } from '../core/chunks.js';
import { int64 } from '../core/dtype.js';
import { ShardingError } from '../core/errors.js';
import type { Placement } from '../core/placement.js';
import { formatShape, numelOf, type Shape, sameShape } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';
import type { DeviceMesh } from '../distributed/device-mesh/device-mesh.js';
import { allGatherRows, allToAllRows } from '../ops/collectives.js';
import { tensor } from '../ops/from-values.js';
import { alongRows } from './redistribute/run.js';
import { meshCoordinates } from './spec/shard-geometry.js';
import { formatPlacements } from './spec/spec.js';

/** Options of `DTensor.fromLocalUneven`. */
export interface UnevenOptions {
  /**
   * Whether to move rows between ranks if the sizes are not those of `Shard`, instead of an error.
   * False by default.
   */
  rebalance?: boolean;
}

/** A mesh dim that shards a tensor dim, and the size on each rank along it. */
interface ShardedDim {
  readonly meshDim: number;
  readonly dim: number;
  readonly sizes: readonly number[];
}

/**
 * The local shard with the size of `Shard`, and the shape of the whole tensor. All ranks of the
 * mesh call it. @internal
 */
export async function fitLocalShards(
  op: string,
  local: Tensor,
  mesh: DeviceMesh,
  placements: readonly Placement[],
  rebalance: boolean,
): Promise<{ local: Tensor; shape: Shape }> {
  const shapes = await allShapes(local, mesh);
  const shape = wholeShape(shapes, mesh, placements);
  const coordinates = meshCoordinates(mesh);
  const matches = (shapeAt: (coordinate: readonly number[]) => Shape): boolean =>
    coordinates.every((coordinate, rank) => sameShape(shapes[rank] as Shape, shapeAt(coordinate)));
  if (matches((coordinate) => expectedShape(shape, mesh, placements, coordinate)))
    return { local, shape };
  const shardedDims = shardedDimsOf(shapes, mesh, placements);
  const shardedOnce = new Set(shardedDims.map(({ dim }) => dim)).size === shardedDims.length;
  const fits =
    shardedOnce && matches((coordinate) => gridShape(shapes[0] as Shape, shardedDims, coordinate));
  if (!fits || !rebalance) throw mismatchError(op, shapes, mesh, placements, fits ? shape : null);
  return {
    local: shardedDims.reduce((t, shardedDim) => moveRows(t, shardedDim, mesh), local),
    shape,
  };
}

const sum = (list: readonly number[]): number => list.reduce((a, b) => a + b, 0);

/** The shapes of all local shards, in row-major order of the mesh. */
async function allShapes(local: Tensor, mesh: DeviceMesh): Promise<Shape[]> {
  const ndim = local.dim();
  if (ndim === 0) return meshCoordinates(mesh).map(() => []);
  let gathered = tensor([...local.sizes], { dtype: int64, device: local.device }).reshape([
    1,
    ndim,
  ]);
  for (let meshDim = mesh.ndim - 1; meshDim >= 0; meshDim--) {
    const group = mesh.getGroup(meshDim);
    gathered = allGatherRows(
      gathered,
      Array.from({ length: group.size }, () => gathered.sizes[0] as number),
      group,
    );
  }
  const sizes = Array.from(await gathered.read<BigInt64Array>(), Number);
  return meshCoordinates(mesh).map((_, rank) => sizes.slice(rank * ndim, (rank + 1) * ndim));
}

/**
 * The sizes along each sharding mesh dim, of the ranks that are first along all other mesh dims.
 */
function shardedDimsOf(
  shapes: readonly Shape[],
  mesh: DeviceMesh,
  placements: readonly Placement[],
): ShardedDim[] {
  return placements.flatMap((placement, meshDim): ShardedDim[] => {
    if (!placement.isShard()) return [];
    const stride = numelOf(mesh.shape.slice(meshDim + 1));
    return [
      {
        meshDim,
        dim: placement.dim,
        sizes: Array.from(
          { length: mesh.shape[meshDim] as number },
          (_, i) => (shapes[i * stride] as Shape)[placement.dim] as number,
        ),
      },
    ];
  });
}

/**
 * The shape of the whole tensor, if replicas have one shape: the sum of sizes along sharded dims.
 */
function wholeShape(
  shapes: readonly Shape[],
  mesh: DeviceMesh,
  placements: readonly Placement[],
): Shape {
  const coordinates = meshCoordinates(mesh);
  return (shapes[0] as Shape).map((size, dim) => {
    if (!placements.some((placement) => placement.isShard(dim))) return size;
    const contributes = (coordinate: readonly number[]): boolean =>
      coordinate.every((at, meshDim) => at === 0 || placements[meshDim]?.isShard(dim));
    return sum(
      coordinates.map((coordinate, rank) =>
        contributes(coordinate) ? ((shapes[rank] as Shape)[dim] as number) : 0,
      ),
    );
  });
}

/** The shape of the shard at `coordinate` by the chunk rule of `Shard`. */
function expectedShape(
  whole: Shape,
  mesh: DeviceMesh,
  placements: readonly Placement[],
  coordinate: readonly number[],
): Shape {
  const shape = [...whole];
  placements.forEach((placement, meshDim) => {
    if (placement.isShard())
      shape[placement.dim] = chunkOf(
        shape[placement.dim] as number,
        mesh.shape[meshDim] as number,
        coordinate[meshDim] as number,
      ).size;
  });
  return shape;
}

/** The shape of that shard if each size depends on the coordinate along one mesh dim only. */
function gridShape(
  first: Shape,
  shardedDims: readonly ShardedDim[],
  coordinate: readonly number[],
): Shape {
  const shape = [...first];
  for (const { dim, meshDim, sizes } of shardedDims)
    shape[dim] = sizes[coordinate[meshDim] as number] as number;
  return shape;
}

/** Moves rows along a mesh dim, in order, until each rank has its chunk. */
function moveRows(t: Tensor, { dim, meshDim, sizes }: ShardedDim, mesh: DeviceMesh): Tensor {
  const own = (mesh.getCoordinate() as readonly number[])[meshDim] as number;
  const starts = sizes.map((_, rank) => sum(sizes.slice(0, rank)));
  const total = sum(sizes);
  const wanted = chunksOf(total, sizes.length);
  const shared = (from: number, to: number): number => {
    const [start, chunk] = [starts[from] as number, wanted[to] as { offset: number; size: number }];
    return Math.max(
      0,
      Math.min(start + (sizes[from] as number), chunk.offset + chunk.size) -
        Math.max(start, chunk.offset),
    );
  };
  const ranks = [...sizes.keys()];
  const [given, taken] = [
    ranks.map((to) => shared(own, to)),
    ranks.map((from) => shared(from, own)),
  ];
  return alongRows(t, dim, (rows) => allToAllRows(rows, given, taken, mesh.getGroup(meshDim)));
}

function mismatchError(
  op: string,
  shapes: readonly Shape[],
  mesh: DeviceMesh,
  placements: readonly Placement[],
  whole: Shape | null,
): ShardingError {
  const lines = meshCoordinates(mesh).map((coordinate, rank) => {
    const expected =
      whole === null
        ? ''
        : `, expected ${formatShape(expectedShape(whole, mesh, placements, coordinate))}`;
    return (
      `  rank ${mesh.ranks[rank]} at (${coordinate.join(', ')}): ` +
      `${formatShape(shapes[rank] as Shape)}${expected}`
    );
  });
  const why =
    whole === null
      ? `the local shards do not form one tensor placed as ${formatPlacements(placements)}: ` +
        'sizes along a dim may differ only between ranks that shard it, and replicas must have ' +
        'one shape'
      : `the local shards form a tensor of shape ${formatShape(whole)}, but do not have the ` +
        `sizes of ${formatPlacements(placements)}: ceil(n / ranks) on each rank, fewer on the ` +
        'last ones. Pass rebalance: true to move rows between ranks';
  return new ShardingError(`${op}: ${why}.\n${lines.join('\n')}`, { op, shapes });
}
