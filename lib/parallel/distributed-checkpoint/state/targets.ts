/** Tensors that a checkpoint is loaded into. */
import { sameShape } from '../../../core/shape.js';
import { type DType, type DTypeLike, empty, emptyLike, keep, type Tensor } from '../../../index.js';

/**
 * A tensor to load into: the given one if it has the saved shape and dtype. A new one is not
 * filled: the index assures that the chunks cover it.
 */
export function targetLike(
  given: Tensor | undefined,
  shape: readonly number[],
  dtype: DTypeLike,
  like: Tensor | null = null,
): Tensor {
  const nameOf = (type: DType | DTypeLike): string => (typeof type === 'string' ? type : type.name);
  if (given !== undefined && sameShape(given.shape, shape) && nameOf(given.dtype) === nameOf(dtype))
    return given;
  if (like !== null && sameShape(like.shape, shape))
    return keep(emptyLike(like.detach(), { dtype }));
  return keep(empty(shape, { dtype, device: (given ?? like)?.device ?? 'cpu' }));
}
