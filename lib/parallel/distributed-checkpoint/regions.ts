/** Hyper-rectangles of a tensor: what two of them share, and whether many are the whole. */
import { numelOf } from '../../core/shape.js';

/** A hyper-rectangle in the coordinates of the whole tensor. */
export interface Region {
  readonly offsets: readonly number[];
  readonly sizes: readonly number[];
}

/** Each doubles the corners of a region; a mesh divides tensors along fewer. */
const MOST_DIVIDED_DIMS = 12;
const REGIONS_PER_STEP = 64;

/**
 * What is wrong with regions that should be a whole tensor, each element once; null if they are.
 * They are within the tensor. Yields after each small step.
 *
 * The corners of a region, with the sign of each, determine which elements it has. So regions have
 * all elements once exactly if their corners add up to those of the whole, and none is compared with
 * another.
 */
export function* tilingProblem(
  shape: readonly number[],
  regions: readonly Region[],
): Generator<void, string | null> {
  if (numelOf(shape) === 0) return null;
  const divided = shape.flatMap((size, dim) =>
    regions.some(({ sizes }) => sizes[dim] !== size) ? [dim] : [],
  );
  if (divided.length > MOST_DIVIDED_DIMS)
    return `its chunks divide ${divided.length} dims, at most ${MOST_DIVIDED_DIMS} are supported`;
  // Points are numbered in a grid, in which a region ends at most at the size of a dim.
  const strides: number[] = [];
  let points = 1;
  for (const dim of divided) {
    strides.push(points);
    points *= (shape[dim] as number) + 1;
  }
  if (!Number.isSafeInteger(points)) return 'it has more elements than can be counted';
  const sums = new Map<number, number>();
  const add = (region: Region, sign: number, at = 0, i = 0): void => {
    const dim = divided[i];
    if (dim === undefined) {
      const sum = (sums.get(at) ?? 0) + sign;
      if (sum === 0) sums.delete(at);
      else sums.set(at, sum);
      return;
    }
    const [start, size] = [region.offsets[dim] as number, region.sizes[dim] as number];
    const stride = strides[i] as number;
    add(region, sign, at + start * stride, i + 1);
    add(region, -sign, at + (start + size) * stride, i + 1);
  };
  add({ offsets: shape.map(() => 0), sizes: shape }, -1);
  for (const [i, region] of regions.entries()) {
    if (numelOf(region.sizes) > 0) add(region, 1);
    if (i % REGIONS_PER_STEP === 0) yield;
  }
  return sums.size === 0 ? null : 'its chunks are not the whole tensor, each element once';
}

/** What two regions share; null if that is nothing. */
export function intersect(a: Region, b: Region): Region | null {
  const offsets = a.offsets.map((start, dim) => Math.max(start, b.offsets[dim] as number));
  const sizes = offsets.map(
    (start, dim) =>
      Math.min(
        (a.offsets[dim] as number) + (a.sizes[dim] as number),
        (b.offsets[dim] as number) + (b.sizes[dim] as number),
      ) - start,
  );
  return sizes.every((size) => size > 0) ? { offsets, sizes } : null;
}
