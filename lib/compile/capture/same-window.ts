/** Compares the windows of two tensors on one storage. */
import { sameShape } from '../../core/shape.js';
import type { Tensor } from '../../core/tensor.js';

/** Whether two tensors on one storage have the same elements in the same order. */
export function sameWindow(a: Tensor, b: Tensor): boolean {
  return (
    a.dtype === b.dtype &&
    a.storageOffset === b.storageOffset &&
    sameShape(a.sizes, b.sizes) &&
    sameShape(a.strides, b.strides)
  );
}
