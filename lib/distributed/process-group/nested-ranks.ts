/** Conversions between nested arrays of ranks and a flat list with a shape. */
import { ArgumentError } from '../../core/errors.js';
import { shown, unexpected } from '../../core/options.js';
import { contiguousStrides } from '../../core/shape.js';
import { Tensor } from '../../core/tensor.js';

/** An array of ranks, nested to any depth. */
export type NestedRanks = readonly (number | NestedRanks)[];

/** Reads ranks that are a tensor. @internal */
export function nestedOf(ranks: NestedRanks | Tensor): NestedRanks {
  return ranks instanceof Tensor ? (ranks.tolist() as NestedRanks) : ranks;
}

/**
 * The ranks in row-major order, and the shape. @throws ArgumentError for ragged arrays @internal
 */
export function flattenNested(op: string, ranks: NestedRanks): { flat: number[]; shape: number[] } {
  if (!Array.isArray(ranks) || ranks.length === 0)
    throw unexpected(op, 'the mesh', 'a nested array of ranks', ranks);
  const first = ranks[0];
  if (!Array.isArray(first)) return { flat: [...(ranks as number[])], shape: [ranks.length] };
  const rows = ranks.map((row) => flattenNested(op, row as NestedRanks));
  const shape = (rows[0] as { shape: number[] }).shape;
  if (rows.some((row) => row.shape.join() !== shape.join())) {
    const shapes = rows.map((row) => `[${row.shape.join(', ')}]`).join(' and ');
    throw new ArgumentError(`${op}: expected nested arrays of one shape, got ${shapes}`, { op });
  }
  return { flat: rows.flatMap((row) => row.flat), shape: [ranks.length, ...shape] };
}

/** The inverse of {@link flattenNested}. @internal */
export function nestRanks(flat: readonly number[], shape: readonly number[]): NestedRanks {
  if (shape.length <= 1) return [...flat];
  const size = flat.length / (shape[0] as number);
  return Array.from({ length: shape[0] as number }, (_, i) =>
    nestRanks(flat.slice(i * size, (i + 1) * size), shape.slice(1)),
  );
}

/** At most this many ranks are printed. */
const SHOWN_RANKS = 64;

/** The ranks as text, `[[0, 1], [2, 3]]`; the first ones if there are many. @internal */
export function shownRanks(
  flat: readonly number[],
  shape: readonly number[] = [flat.length],
): string {
  if (flat.length <= SHOWN_RANKS) return shown(nestRanks(flat, shape));
  return `[${flat.slice(0, SHOWN_RANKS / 4).join(', ')}, … (${flat.length})]`;
}

/**
 * The ranks whose coordinates differ from `coordinate` along `dims` only, in row-major order of
 * `dims`. @internal
 */
export function sliceThrough(
  flat: readonly number[],
  shape: readonly number[],
  dims: readonly number[],
  coordinate: readonly number[],
): number[] {
  const strides = contiguousStrides(shape);
  let starts = [
    coordinate.reduce(
      (sum, at, dim) => sum + (dims.includes(dim) ? 0 : at * (strides[dim] as number)),
      0,
    ),
  ];
  for (const dim of dims) {
    const steps = Array.from(
      { length: shape[dim] as number },
      (_, i) => i * (strides[dim] as number),
    );
    starts = starts.flatMap((start) => steps.map((step) => start + step));
  }
  return starts.map((index) => flat[index] as number);
}
