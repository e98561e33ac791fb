/** Memory in a given dense layout, for gradients that must match their tensor's strides. */
import { isNonOverlappingAndDense, type Shape } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';

/** An uninitialised tensor of the dtype and device of `like`, in the given (or its own) dense layout. */
export function emptyStridedLike(like: Tensor, shape: Shape = like.shape, strides: Shape = like.strides): Tensor {
  const fresh = like.newZeros(shape);
  if (!isNonOverlappingAndDense(shape, strides)) return fresh;
  fresh.strides = strides;
  return fresh;
}
