/** Whether tensors share memory: what in-place writes must know. */

import { sameShape } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';

/** Whether one memory location may hold two elements of the tensor (after `expand`). */
export function mayOverlapItself(t: Tensor): boolean {
  for (let i = 0; i < t.shape.length; i++) if (t.strides[i] === 0 && (t.shape[i] as number) > 1) return true;
  return false;
}

/** Whether two tensors share some memory without being the same window: writing one while reading the other would be wrong. */
export function overlapsPartly(read: Tensor, written: Tensor): boolean {
  if (read === written || read.storage !== written.storage) return false;
  if (read.storageOffset === written.storageOffset && read.dtype === written.dtype && sameShape(read.shape, written.shape) && sameShape(read.strides, written.strides)) {
    return false;
  }
  const [readStart, readEnd] = byteRange(read);
  const [writtenStart, writtenEnd] = byteRange(written);
  return readStart < writtenEnd && writtenStart < readEnd;
}

/** The bytes of its storage that a tensor reaches: the first, and the one after the last. */
export function byteRange(t: Tensor): [number, number] {
  let last = t.storageOffset;
  for (let i = 0; i < t.shape.length; i++) {
    if (t.shape[i] === 0) return [0, 0];
    last += ((t.shape[i] as number) - 1) * (t.strides[i] as number);
  }
  return [t.storageOffset * t.dtype.itemsize, (last + 1) * t.dtype.itemsize];
}
