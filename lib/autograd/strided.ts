/** Memory in a given dense layout, for gradients that must match their tensor's strides. */
import { isNonOverlappingAndDense, type Shape } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';

/** Zeros of the dtype and device of `like`, in the given layout if it is dense. */
export function zerosStridedLike(like: Tensor, shape: Shape, strides: Shape): Tensor {
  const fresh = like.newZeros(shape);
  if (!isNonOverlappingAndDense(shape, strides)) return fresh;
  fresh.strides = strides;
  return fresh;
}
