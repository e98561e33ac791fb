/** Treats a 0-d tensor as a vector of one element in ops along a dim. */

import type { Tensor } from '../core/tensor.js';
import { reshapeIfNeeded } from './reshape-if-needed.js';

/** A view with one dim of a tensor without dims; another tensor itself. @internal */
export function oneDim(t: Tensor): Tensor {
  return t.shape.length === 0 ? t.reshape([1]) : t;
}

/**
 * The result of `change` on a tensor of at most one dim as a vector, in the tensor's own shape;
 * where that is written into, so is the vector. @internal
 */
export function asVector(
  input: Tensor,
  into: Tensor | null,
  change: (vector: Tensor, into: Tensor | null) => Tensor,
): Tensor {
  const vector = oneDim(input);
  const changed = change(vector, into === null ? null : vector);
  return into ?? reshapeIfNeeded(changed, input.shape);
}
