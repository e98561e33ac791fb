/**
 * Tensors that together fill a block of memory, as queries, keys and values do that are parts of
 * the result of one layer. Results laid out as they are can then be parts of one tensor.
 */
import { numelOf, type Shape } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';

/** Where a tensor is within a block of memory. */
export interface BlockWindow {
  readonly strides: Shape;
  readonly offset: number;
}

/** The windows of tensors that are views of one storage and fill a block of it; null for others. */
export type BlockWindows = readonly (BlockWindow | null)[];

/** Memory as rows: `count` runs of `length` elements without gaps, `pitch` elements apart. */
interface Rows {
  readonly start: number;
  readonly length: number;
  readonly count: number;
  readonly pitch: number;
}

/**
 * The windows of the tensors that share a storage with another one, on the block that these fill
 * exactly once. Null unless there are two of them, and they leave no gap.
 */
export function blockWindows(tensors: readonly (Tensor | null)[]): BlockWindows | null {
  const shared = tensors.find((t, i) => t !== null && isViewedBy(t, tensors.slice(i + 1)));
  if (shared === undefined) return null;
  const own = tensors.map((t) => (t?.storage === shared?.storage ? t : null));
  const start = startOfBlock(own.filter((t) => t !== null));
  if (start === null) return null;
  return own.map((t) => t && { strides: t.strides, offset: t.storageOffset - start });
}

const isViewedBy = ({ storage }: Tensor, others: readonly (Tensor | null)[]): boolean =>
  storage !== null && others.some((t) => t?.storage === storage);

/** The number of elements of a block. */
export const blockSize = (tensors: readonly Tensor[], windows: BlockWindows): number =>
  tensors.reduce((sum, { sizes: shape }, i) => sum + (windows[i] === null ? 0 : numelOf(shape)), 0);

/** The first element of the block that tensors fill, row by row; null if they fill none. */
function startOfBlock(tensors: readonly Tensor[]): number | null {
  const parts: Rows[] = [];
  for (const t of tensors) {
    const rows = rowsOf(t);
    if (rows === null) return null;
    parts.push(rows);
  }
  parts.sort((a, b) => a.start - b.start);
  const [{ start, count, pitch }] = parts as [Rows];
  let end = start;
  for (const part of parts) {
    if (part.start !== end || part.count !== count || part.pitch !== pitch) return null;
    end += part.length;
  }
  return count === 1 || end - start === pitch ? start : null;
}

function rowsOf({ sizes: shape, strides, storageOffset: start }: Tensor): Rows | null {
  if (shape.includes(0)) return null;
  const dims = shape.map((_, dim) => dim).filter((dim) => shape[dim] !== 1);
  dims.sort((a, b) => (strides[a] as number) - (strides[b] as number));
  let at = 0;
  /** The elements of the next dims that lie `stride` apart. */
  const along = (stride: number): number => {
    let size = 1;
    while (at < dims.length && strides[dims[at] as number] === stride * size)
      size *= shape[dims[at++] as number] as number;
    return size;
  };
  const length = along(1);
  const pitch = at < dims.length ? (strides[dims[at] as number] as number) : 0;
  const count = along(pitch);
  return at === dims.length ? { start, length, count, pitch } : null;
}
