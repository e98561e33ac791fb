/**
 * The grid that {@link visualizeSharding} draws: a tensor as a rectangle of shards, and the ranks
 * that hold each of them.
 */

import { chunksOf } from '../../core/chunks.js';
import { ShardingError } from '../../core/errors.js';
import { meshDimName } from '../../distributed/device-mesh/layout.js';
import type { DTensorSpec } from '../spec/spec.js';

/** A range of indices along a shown dim: one shard, or a gap of `leftOut` shards. */
export interface Span {
  readonly from: number;
  readonly size: number;
  readonly leftOut: number;
}

/** A tensor as a rectangle along its sharded dims, at most two. */
export interface ShardingGrid {
  readonly title: string;
  /** The tensor dims; null if the tensor has fewer dims. */
  readonly dims: readonly [row: number | null, column: number | null];
  readonly rows: readonly Span[];
  readonly columns: readonly Span[];
  /** The ranks that hold each shard, by row and column. */
  readonly cells: readonly (readonly string[])[];
  /** Explains the notation of the cells, and lists ranks without data. */
  readonly legend: readonly string[];
}

/** A screen shows this many shards; the grid leaves out those in the middle. */
const MOST = { rows: 8, columns: 6 };

/** @throws ShardingError for a tensor that is sharded along more than two dims */
export function shardingGrid(op: string, spec: DTensorSpec): ShardingGrid {
  const dims = shownDims(op, spec);
  const along = dims.map((dim) => shardsAlong(spec, dim)) as [DimShard[], DimShard[]];
  const [rows, columns] = along.map((shards) => shards.filter(({ size }) => size > 0)) as [
    DimShard[],
    DimShard[],
  ];
  const [shownRows, shownColumns] = [
    withoutMiddle(rows, MOST.rows),
    withoutMiddle(columns, MOST.columns),
  ];
  const cells = shownRows.map((row) =>
    shownColumns.map((column) =>
      row.at === null || column.at === null ? '…' : holders(spec, { ...row.at, ...column.at }),
    ),
  );
  return {
    title: String(spec),
    dims,
    rows: shownRows,
    columns: shownColumns,
    cells,
    legend: legendOf(spec, along),
  };
}

function legendOf(spec: DTensorSpec, along: readonly (readonly DimShard[])[]): string[] {
  const { mesh, placements } = spec;
  const hasReplicas = placements.some(
    (placement, meshDim) => placement.isReplicate() && mesh.shape[meshDim] !== 1,
  );
  const reduction = reductionOf(spec);
  const empty = ranksWithoutData(spec, along);
  return [
    ...(hasReplicas ? ['a | b: replicated on each of them'] : []),
    ...(reduction === null
      ? []
      : [
          `${reduction === 'sum' ? 'a + b' : `${reduction}(a, b)`}: partial values, not ` +
            'reduced yet',
        ]),
    ...(empty === null ? [] : [`ranks without data: ${empty}`]),
  ];
}

/** At most `most` spans; a gap stands for the others. */
function withoutMiddle(
  shards: readonly DimShard[],
  most: number,
): (Span & { at: DimShard['at'] | null })[] {
  const shown = shards
    .toSorted((a, b) => a.from - b.from)
    .map((shard) => ({ ...shard, leftOut: 0 }));
  if (shown.length <= most) return shown;
  const [head, tail] = [
    shown.slice(0, Math.ceil(most / 2)),
    shown.slice(shown.length - Math.floor(most / 2) + 1),
  ];
  const [before, after] = [head.at(-1) as Span, tail[0] as Span];
  const from = before.from + before.size;
  return [
    ...head,
    {
      from,
      size: after.from - from,
      leftOut: shown.length - head.length - tail.length,
      at: null,
    },
    ...tail,
  ];
}

/** Up to two dims in ascending order: the sharded ones, then the first others. */
function shownDims(op: string, spec: DTensorSpec): [number | null, number | null] {
  const all = [...spec.shape.keys()];
  const sharded = all.filter((dim) => spec.placements.some((placement) => placement.isShard(dim)));
  if (sharded.length > 2)
    throw new ShardingError(
      `${op}: expected a tensor that is sharded along at most two dims, got ${spec}, which ` +
        `is sharded along ${sharded.length}`,
      { op },
    );
  const chosen = [...sharded, ...all.filter((dim) => !sharded.includes(dim))]
    .slice(0, 2)
    .sort((a, b) => a - b);
  return chosen.length === 2
    ? [chosen[0] as number, chosen[1] as number]
    : [null, chosen[0] ?? null];
}

/** Coordinates along some mesh dims, by mesh dim. */
type Coordinates = Readonly<Record<number, number>>;

/** A shard of one tensor dim. */
interface DimShard {
  readonly from: number;
  readonly size: number;
  /** The coordinates of its ranks along the mesh dims that shard the tensor dim. */
  readonly at: Coordinates;
}

/** A cell names this many ranks one by one, and more by ranges of their coordinates. */
const MOST_NAMED = 4;

/** All shards of a tensor dim, empty ones too; one shard if `dim` is null. */
function shardsAlong({ shape, order, mesh }: DTensorSpec, dim: number | null): DimShard[] {
  if (dim === null) return [{ from: 0, size: 1, at: {} }];
  let shards: DimShard[] = [{ from: 0, size: shape[dim] as number, at: {} }];
  for (const meshDim of order[dim] as readonly number[]) {
    shards = shards.flatMap(({ from, size, at }) =>
      chunksOf(size, mesh.shape[meshDim] as number).map((chunk, i) => ({
        from: from + chunk.offset,
        size: chunk.size,
        at: { ...at, [meshDim]: i },
      })),
    );
  }
  return shards;
}

/**
 * The ranks that hold the shard at some coordinates: replicas as `a | b`, partial values as `a + b`
 * or `max(a, b)`: `dp=0, tp=0 | dp=0, tp=1`, or for many ranks `dp=0, tp=0…63 (64 replicas)`.
 */
function holders(spec: DTensorSpec, at: Coordinates): string {
  const free = [...spec.mesh.shape.keys()].filter((meshDim) => !(meshDim in at));
  const [partialDims, replicaDims] = [
    free.filter((meshDim) => spec.placements[meshDim]?.isPartial()),
    free.filter((meshDim) => !spec.placements[meshDim]?.isPartial()),
  ];
  const [numPartial, numReplicas] = [ranksAlong(spec, partialDims), ranksAlong(spec, replicaDims)];
  if (numPartial * numReplicas > MOST_NAMED) {
    const counted = [
      numPartial > 1 ? [`${numPartial} partial values`] : [],
      numReplicas > 1 ? [`${numReplicas} replicas`] : [],
    ].flat();
    return `${label(spec, at)} (${counted.join(' of ')})`;
  }
  const addends = coordinatesAlong(spec, partialDims).map((partialAt) => {
    const names = coordinatesAlong(spec, replicaDims).map((replicaAt) =>
      label(spec, { ...at, ...partialAt, ...replicaAt }),
    );
    return numPartial > 1 && numReplicas > 1 ? `(${names.join(' | ')})` : names.join(' | ');
  });
  const op = reductionOf(spec);
  return numPartial === 1 || op === 'sum' ? addends.join(' + ') : `${op}(${addends.join(', ')})`;
}

/** The pending reductions, such as `sum`; null if there is no Partial placement. */
function reductionOf({ placements }: DTensorSpec): string | null {
  const ops = [
    ...new Set(
      placements.flatMap((placement) => (placement.isPartial() ? [placement.reduceOp] : [])),
    ),
  ];
  return ops.length === 0 ? null : ops.join('/');
}

/**
 * The ranks with empty shards and their number; of more than {@link MOST_NAMED} the first and the
 * last. Null if every rank has data.
 */
function ranksWithoutData(
  spec: DTensorSpec,
  along: readonly (readonly DimShard[])[],
): string | null {
  const full = along.map((shards) => shards.filter(({ size }) => size > 0).length);
  const all = spec.mesh.shape.reduce((a, b) => a * b, 1);
  const numCells = along.reduce((product, shards) => product * shards.length, 1);
  const count = all - (all / numCells) * full.reduce((a, b) => a * b, 1);
  if (count === 0) return null;
  if (count === all) return `all ${all} ranks`;
  const names = along.flatMap((shards) => {
    const empty = shards.filter(({ size }) => size === 0).map(({ at }) => partialLabel(spec, at));
    return empty.length > MOST_NAMED ? [`${empty[0]} … ${empty.at(-1)}`] : empty;
  });
  return `${names.join('; ')} (${count} of ${all} ranks)`;
}

function ranksAlong({ mesh }: DTensorSpec, meshDims: readonly number[]): number {
  return meshDims.reduce((product, meshDim) => product * (mesh.shape[meshDim] as number), 1);
}

function coordinatesAlong({ mesh }: DTensorSpec, meshDims: readonly number[]): Coordinates[] {
  return meshDims.reduce<Coordinates[]>(
    (coordinates, meshDim) =>
      coordinates.flatMap((at) =>
        Array.from({ length: mesh.shape[meshDim] as number }, (_, i) => ({
          ...at,
          [meshDim]: i,
        })),
      ),
    [{}],
  );
}

/**
 * `dp=0, tp=1`, or `mesh[0, 1]` if mesh dims have no names. Mesh dims without a coordinate become
 * ranges.
 */
function label({ mesh }: DTensorSpec, at: Coordinates): string {
  const parts = mesh.shape.map((ranks, meshDim) =>
    String(at[meshDim] ?? (ranks === 1 ? 0 : `0…${ranks - 1}`)),
  );
  if (mesh.meshDimNames === null) return `mesh[${parts.join(', ')}]`;
  return parts.map((part, meshDim) => `${meshDimName(mesh, meshDim)}=${part}`).join(', ');
}

/** Like {@link label}, without the mesh dims that have no coordinate. */
function partialLabel(spec: DTensorSpec, at: Coordinates): string {
  const { mesh } = spec;
  if (mesh.meshDimNames === null) return label(spec, at);
  return Object.entries(at)
    .map(([meshDim, at]) => `${meshDimName(mesh, Number(meshDim))}=${at}`)
    .join(', ');
}
