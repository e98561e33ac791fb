/** Pictures of which rank holds which part of a tensor. */
import { ShardingError } from '../../core/errors.js';
import { checkOneOf, withDefaults } from '../../core/options.js';
import type { Tensor } from '../../core/tensor.js';
import { type LocalShard, localShardOf } from '../spec/local-shard.js';
import type { DTensorSpec } from '../spec/spec.js';
import {
  type DimShard,
  holders,
  ranksWithoutData,
  reductionOf,
  shardsAlong,
} from './sharding-cells.js';
import { drawGrid } from './sharding-grid.js';
import { drawSvg } from './sharding-svg.js';

/** Options of {@link visualizeSharding}. */
export interface VisualizeOptions {
  /**
   * `'text'` (the default) is printed too, by the mesh's first rank; `'svg'` is a picture as text.
   */
  format?: 'text' | 'svg';
}

/** Indices of a shown dim: a piece, or a gap where so many pieces are left out. */
export interface Span {
  readonly from: number;
  readonly size: number;
  readonly leftOut: number;
}

/** A tensor as a rectangle: its dims that are cut, of which there are two at most. */
export interface ShownTensor {
  readonly title: string;
  /** Numbers of the tensor dims; null where there is only one, or none. */
  readonly dims: readonly [row: number | null, column: number | null];
  readonly rows: readonly Span[];
  readonly columns: readonly Span[];
  /** Who holds it, for each row and column. */
  readonly cells: readonly (readonly string[])[];
  /** What the signs in cells mean, and who holds nothing. */
  readonly legend: readonly string[];
}

/** More pieces than fit on a screen are left out, in the middle. */
const MOST = { rows: 8, columns: 6 };

/**
 * Shows which rank holds which part of a distributed tensor, by its positions in the mesh: a table
 * in the terminal, printed by the mesh's first rank, or a picture as SVG. Returns the text. Tensors
 * of more than two dims are shown along the dims that are cut. Copies stand as `a | b`, terms of
 * Partial as `a + b`, who has nothing below; of many parts the middle is left out. Nothing is
 * communicated.
 *
 * @throws ShardingError for a plain tensor, or one that is cut along more than two dims;
 * ArgumentError for another format
 * @see PyTorch `torch.distributed.tensor.debug.visualize_sharding`
 */
export function visualizeSharding(t: Tensor, options: VisualizeOptions = {}): string {
  const op = 'visualizeSharding';
  const { format } = withDefaults<Required<VisualizeOptions>>(op, { format: 'text' }, options);
  checkOneOf(op, 'format', format, ['text', 'svg']);
  const part = localShardOf(t);
  if (part === null)
    throw new ShardingError(
      `${op}: expected a distributed tensor, got a plain one. Only a distributed tensor has placements to show.`,
      { op },
    );
  const shown = shownTensor(op, part);
  if (format === 'svg') return drawSvg(shown);
  const text = drawGrid(shown);
  if (part.spec.mesh.getCoordinate()?.every((at) => at === 0)) console.log(text);
  return text;
}

function shownTensor(op: string, { spec }: LocalShard): ShownTensor {
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
      row.place === null || column.place === null
        ? '…'
        : holders(spec, { ...row.place, ...column.place }),
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
  const hasCopies = placements.some(
    (placement, meshDim) => placement.isReplicate() && mesh.shape[meshDim] !== 1,
  );
  const reduction = reductionOf(spec);
  const nothing = ranksWithoutData(spec, along);
  return [
    ...(hasCopies ? ['a | b: replicated on each of them'] : []),
    ...(reduction === null
      ? []
      : [
          `${reduction === 'sum' ? 'a + b' : `${reduction}(a, b)`}: partial values, not reduced yet`,
        ]),
    ...(nothing === null ? [] : [`ranks without data: ${nothing}`]),
  ];
}

/** As many as `most`; a gap stands for the others. */
function withoutMiddle(
  shards: readonly DimShard[],
  most: number,
): (Span & { place: DimShard['place'] | null })[] {
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
      place: null,
    },
    ...tail,
  ];
}

/** The dims that are cut come first; others fill up to two. */
function shownDims(op: string, spec: DTensorSpec): [number | null, number | null] {
  const all = [...spec.shape.keys()];
  const sharded = all.filter((dim) => spec.placements.some((placement) => placement.isShard(dim)));
  if (sharded.length > 2)
    throw new ShardingError(
      `${op}: expected a tensor that is sharded along at most two dims, got ${spec}, which is sharded along ${sharded.length}`,
      { op },
    );
  const chosen = [...sharded, ...all.filter((dim) => !sharded.includes(dim))]
    .slice(0, 2)
    .sort((a, b) => a - b);
  return chosen.length === 2
    ? [chosen[0] as number, chosen[1] as number]
    : [null, chosen[0] ?? null];
}
