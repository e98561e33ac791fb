/**
 * Parts whose sizes the ranks do not know of each other: what they make together, and rows moved so
 * that they follow the rule of `Shard`.
 */
import { int64 } from '../core/dtype.js';
import { ShardingError } from '../core/errors.js';
import type { Placement } from '../core/placement.js';
import { formatShape, numelOf, type Shape, sameShape } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';
import type { DeviceMesh } from '../distributed/device-mesh/device-mesh.js';
import { allGatherRows, allToAllRows } from '../ops/collectives.js';
import { tensor } from '../ops/from-values.js';
import { alongRows } from './redistribute/run.js';
import { chunkOf, chunksOf, meshCoordinates } from './spec/shard-geometry.js';
import { formatPlacements } from './spec/spec.js';

/** Options of `DTensor.fromLocalUneven`. */
export interface UnevenOptions {
  /**
   * Moves rows between ranks where the sizes are others than `Shard` says, instead of an error.
   * False by default.
   */
  rebalance?: boolean;
}

/** A mesh dim that cuts a tensor dim, and how much of it each rank along it has. */
interface Cut {
  readonly meshDim: number;
  readonly dim: number;
  readonly sizes: readonly number[];
}

/**
 * What a rank holds by the rule of `Shard`, and the sizes of the whole. All ranks of the mesh call
 * it. @internal
 */
export async function fitted(
  op: string,
  local: Tensor,
  mesh: DeviceMesh,
  placements: readonly Placement[],
  rebalance: boolean,
): Promise<{ part: Tensor; shape: Shape }> {
  const shapes = await allShapes(local, mesh);
  const shape = wholeShape(shapes, mesh, placements);
  const coordinates = meshCoordinates(mesh);
  const follow = (piece: (coordinate: readonly number[]) => Shape): boolean =>
    coordinates.every((coordinate, rank) => sameShape(shapes[rank] as Shape, piece(coordinate)));
  if (follow((coordinate) => pieceOf(shape, mesh, placements, coordinate)))
    return { part: local, shape };
  const cuts = cutsOf(shapes, mesh, placements);
  const cutOnce = new Set(cuts.map(({ dim }) => dim)).size === cuts.length;
  const fits = cutOnce && follow((coordinate) => gridPiece(shapes[0] as Shape, cuts, coordinate));
  if (!fits || !rebalance) throw misfit(op, shapes, mesh, placements, fits ? shape : null);
  return { part: cuts.reduce((t, cut) => moveRows(t, cut, mesh), local), shape };
}

const sum = (list: readonly number[]): number => list.reduce((a, b) => a + b, 0);

/** The shapes of all parts, row-major by the place of their ranks in the mesh. */
async function allShapes(local: Tensor, mesh: DeviceMesh): Promise<Shape[]> {
  const ndim = local.dim();
  if (ndim === 0) return meshCoordinates(mesh).map(() => []);
  let gathered = tensor([...local.shape], { dtype: int64, device: local.device }).reshape([
    1,
    ndim,
  ]);
  for (let meshDim = mesh.ndim - 1; meshDim >= 0; meshDim--) {
    const group = mesh.getGroup(meshDim);
    gathered = allGatherRows(
      gathered,
      Array.from({ length: group.size }, () => gathered.shape[0] as number),
      group,
    );
  }
  const sizes = Array.from(await gathered.read<BigInt64Array>(), Number);
  return meshCoordinates(mesh).map((_, rank) => sizes.slice(rank * ndim, (rank + 1) * ndim));
}

/** Of each mesh dim that cuts, the sizes along the ranks that are first in all others. */
function cutsOf(
  shapes: readonly Shape[],
  mesh: DeviceMesh,
  placements: readonly Placement[],
): Cut[] {
  return placements.flatMap((placement, meshDim): Cut[] => {
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
 * What all parts add up to, if copies are alike: of each dim, the sizes of the ranks that cut it.
 */
function wholeShape(
  shapes: readonly Shape[],
  mesh: DeviceMesh,
  placements: readonly Placement[],
): Shape {
  const coordinates = meshCoordinates(mesh);
  return (shapes[0] as Shape).map((size, dim) => {
    if (!placements.some((placement) => placement.isShard(dim))) return size;
    const cutIt = (coordinate: readonly number[]): boolean =>
      coordinate.every((at, meshDim) => at === 0 || placements[meshDim]?.isShard(dim));
    return sum(
      coordinates.map((coordinate, rank) =>
        cutIt(coordinate) ? ((shapes[rank] as Shape)[dim] as number) : 0,
      ),
    );
  });
}

/** What the rank at `coordinate` has of the whole, by the rule of `Shard`. */
function pieceOf(
  whole: Shape,
  mesh: DeviceMesh,
  placements: readonly Placement[],
  coordinate: readonly number[],
): Shape {
  const piece = [...whole];
  placements.forEach((placement, meshDim) => {
    if (placement.isShard())
      piece[placement.dim] = chunkOf(
        piece[placement.dim] as number,
        mesh.shape[meshDim] as number,
        coordinate[meshDim] as number,
      ).size;
  });
  return piece;
}

/** What it has if each size depends on the place along one mesh dim only. */
function gridPiece(first: Shape, cuts: readonly Cut[], coordinate: readonly number[]): Shape {
  const piece = [...first];
  for (const { dim, meshDim, sizes } of cuts)
    piece[dim] = sizes[coordinate[meshDim] as number] as number;
  return piece;
}

/** Gives each rank along a mesh dim its rows of the whole, in their order. */
function moveRows(t: Tensor, { dim, meshDim, sizes }: Cut, mesh: DeviceMesh): Tensor {
  const own = (mesh.getCoordinate() as readonly number[])[meshDim] as number;
  const starts = sizes.map((_, rank) => sum(sizes.slice(0, rank)));
  const total = sum(sizes);
  const wanted = chunksOf(total, sizes.length);
  const shared = (from: number, to: number): number => {
    const [start, piece] = [starts[from] as number, wanted[to] as { offset: number; size: number }];
    return Math.max(
      0,
      Math.min(start + (sizes[from] as number), piece.offset + piece.size) -
        Math.max(start, piece.offset),
    );
  };
  const ranks = [...sizes.keys()];
  const [given, taken] = [
    ranks.map((to) => shared(own, to)),
    ranks.map((from) => shared(from, own)),
  ];
  return alongRows(t, dim, (rows) => allToAllRows(rows, given, taken, mesh.getGroup(meshDim)));
}

function misfit(
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
        : `, expected ${formatShape(pieceOf(whole, mesh, placements, coordinate))}`;
    return `  rank ${mesh.ranks[rank]} at (${coordinate.join(', ')}): ${formatShape(shapes[rank] as Shape)}${expected}`;
  });
  const why =
    whole === null
      ? `the parts do not make one tensor as ${formatPlacements(placements)}: sizes along a dim may differ only between ranks that cut it, and copies must be alike`
      : `the parts make a tensor of shape ${formatShape(whole)}, but are not cut as ${formatPlacements(placements)} says: all pieces of ceil(n / ranks), the last ones less. Use rebalance: true to have rows moved`;
  return new ShardingError(`${op}: ${why}.\n${lines.join('\n')}`, { op, shapes });
}
