/** Reshapes inside composite functions: returns the tensor itself if it has the shape already. */

import { inferSize, type Shape, sameShape } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';

/**
 * `t.reshape(shape)`, but returns the tensor itself if it has that shape: no op runs and no node is
 * recorded. Must not be the result of a public view. @internal
 */
export function reshapeIfNeeded(t: Tensor, shape: Shape): Tensor {
  const size = inferSize(shape, t.numel(), 'reshape');
  return sameShape(size, t.sizes) ? t : t.reshape(size);
}
