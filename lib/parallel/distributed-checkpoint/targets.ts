/** Tensors that a checkpoint is loaded into. */
import { type DType, type DTypeLike, keep, type Tensor, zeros, zerosLike } from '../../index.js';

/** A tensor to load into: the given one if it has the saved shape and dtype. */
export function targetLike(
  given: Tensor | undefined,
  shape: readonly number[],
  dtype: DTypeLike,
  like: Tensor | null = null,
): Tensor {
  const hasShape = (t: Tensor): boolean =>
    t.shape.length === shape.length && t.shape.every((size, dim) => size === shape[dim]);
  const nameOf = (type: DType | DTypeLike): string => (typeof type === 'string' ? type : type.name);
  if (given !== undefined && hasShape(given) && nameOf(given.dtype) === nameOf(dtype)) return given;
  if (like !== null && hasShape(like)) return keep(zerosLike(like.detach(), { dtype }));
  return keep(zeros(shape, { dtype, device: (given ?? like)?.device ?? 'cpu' }));
}
