/** Finds out whether tensors share memory, for in-place writes. */

import { sameShape } from '../core/shape.js';
import type { Storage } from '../core/storage.js';
import type { Tensor } from '../core/tensor.js';

/** The arrays whose memory storages borrow. Two storages may borrow from one array. */
const borrowed = new WeakMap<Storage, ArrayBufferView>();
let anyBorrowed = false;

/** Records that a storage borrows the memory of an array. */
export function recordBorrowed(storage: Storage, array: ArrayBufferView): void {
  borrowed.set(storage, array);
  anyBorrowed = true;
}

/** Whether two tensors share some memory. */
export function overlaps(read: Tensor, written: Tensor): boolean {
  if (read === written) return true;
  const shift = distance(read.storage, written.storage);
  if (shift === null) return false;
  const [readStart, readEnd] = byteRange(read);
  const [writtenStart, writtenEnd] = byteRange(written);
  return readStart < writtenEnd + shift && writtenStart + shift < readEnd;
}

/**
 * Whether two tensors share memory without being the same window. A pointwise kernel that reads one
 * and writes the other would then be wrong.
 */
export function overlapsPartly(read: Tensor, written: Tensor): boolean {
  if (read === written || (read.storage !== written.storage && !anyBorrowed)) return false;
  return overlaps(read, written) && !isSameWindow(read, written);
}

function isSameWindow(a: Tensor, b: Tensor): boolean {
  return (
    a.storage === b.storage &&
    a.storageOffset === b.storageOffset &&
    a.dtype === b.dtype &&
    sameShape(a.sizes, b.sizes) &&
    sameShape(a.strides, b.strides)
  );
}

/** Whether two storages may have memory in common. */
export function mayShareMemory(a: Storage | null, b: Storage | null): boolean {
  return distance(a, b) !== null;
}

/** The offset of the second from the first in bytes; null for different memory. */
function distance(a: Storage | null, b: Storage | null): number | null {
  if (a === b) return 0;
  if (!anyBorrowed || a === null || b === null) return null;
  const [first, second] = [borrowed.get(a), borrowed.get(b)];
  return first !== undefined && first.buffer === second?.buffer
    ? second.byteOffset - first.byteOffset
    : null;
}

/** The range of bytes of its storage that a tensor covers: the first, and one past the last. */
export function byteRange(t: Tensor): [number, number] {
  let last = t.storageOffset;
  for (let i = 0; i < t.sizes.length; i++) {
    if (t.sizes[i] === 0) return [0, 0];
    last += ((t.sizes[i] as number) - 1) * (t.strides[i] as number);
  }
  return [t.storageOffset * t.dtype.itemsize, (last + 1) * t.dtype.itemsize];
}
