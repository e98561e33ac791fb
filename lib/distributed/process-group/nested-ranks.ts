/** Ranks in nested arrays, and slices of the grid. */
import { ArgumentError } from '../../core/errors.js';
import { shown, unexpected } from '../../core/options.js';
import { contiguousStrides } from '../../core/shape.js';
import { Tensor } from '../../core/tensor.js';

/** Ranks, nested to any depth. */
export type NestedRanks = readonly (number | NestedRanks)[];

/** @internal */
export function nestedOf(ranks: NestedRanks | Tensor): NestedRanks {
  return ranks instanceof Tensor ? (ranks.tolist() as NestedRanks) : ranks;
}

/**
 * The ranks row-major, and the sizes of the levels. @throws ArgumentError where parts of a level
 * differ in size @internal
 */
export function flattenNested(op: string, ranks: NestedRanks): { flat: number[]; shape: number[] } {
  if (!Array.isArray(ranks) || ranks.length === 0)
    throw unexpected(op, 'the mesh', 'a nested array of ranks', ranks);
  const first = ranks[0];
  if (!Array.isArray(first)) return { flat: [...(ranks as number[])], shape: [ranks.length] };
  const parts = ranks.map((part) => flattenNested(op, part as NestedRanks));
  const shape = (parts[0] as { shape: number[] }).shape;
  if (parts.some((part) => part.shape.join() !== shape.join())) {
    throw new ArgumentError(
      `${op}: expected parts of one size, got ${parts.map((part) => `[${part.shape.join(', ')}]`).join(' and ')}`,
      { op },
    );
  }
  return { flat: parts.flatMap((part) => part.flat), shape: [ranks.length, ...shape] };
}

/** The same in nested arrays. @internal */
export function nestRanks(flat: readonly number[], shape: readonly number[]): NestedRanks {
  if (shape.length <= 1) return flat;
  const size = flat.length / (shape[0] as number);
  return Array.from({ length: shape[0] as number }, (_, i) =>
    nestRanks(flat.slice(i * size, (i + 1) * size), shape.slice(1)),
  );
}

/** So many ranks are written out. */
const SHOWN_RANKS = 64;

/** The ranks in words, `[[0, 1], [2, 3]]`; of many the first ones. @internal */
export function shownRanks(
  flat: readonly number[],
  shape: readonly number[] = [flat.length],
): string {
  if (flat.length <= SHOWN_RANKS) return shown(nestRanks(flat, shape));
  return `[${flat.slice(0, SHOWN_RANKS / 4).join(', ')}, … (${flat.length})]`;
}

/**
 * The ranks that differ from `coordinate` along `dims` only, with these as dimensions, in their
 * order. @internal
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
