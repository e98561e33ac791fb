/**
 * The memory layout of gradients: that of the tensor if it is dense, else row-major. Optimizers and
 * buckets then walk both in one order.
 *
 * @see PyTorch "Default gradient layouts", `torch/csrc/autograd/functions/accumulate_grad.h`
 */
import { isContiguousLayout, isNonOverlappingAndDense, type Shape } from '../core/shape.js';
import { heldOf } from '../core/sharding.js';
import type { Tensor } from '../core/tensor.js';

/** Whether a gradient, or its local shard, has the layout that `variable` asks for. */
export function hasLayoutOf(variable: Tensor, grad: Tensor): boolean {
  const { sizes: shape, strides } = heldOf(variable);
  const given = heldOf(grad).strides;
  if (!isNonOverlappingAndDense(shape, strides)) return isContiguousLayout(shape, given);
  for (let dim = 0; dim < shape.length; dim++)
    if ((shape[dim] as number) > 1 && given[dim] !== strides[dim]) return false;
  return true;
}

/** A copy of a gradient in new memory, in the layout that `variable` asks for. */
export function copyInLayoutOf(variable: Tensor, grad: Tensor): Tensor {
  const { sizes: shape, strides } = heldOf(variable);
  if (isContiguousLayout(shape, strides) || !isNonOverlappingAndDense(shape, strides))
    return rowMajorCopy(grad);
  const order = outermostFirst(strides);
  const inverse = order.map((_, dim) => order.indexOf(dim));
  const copy = rowMajorCopy(grad.permute(order)).permute(inverse);
  copy.base = null; // no other code has the row-major tensor that `copy` is a view of
  return copy;
}

/** A copy of a gradient in new row-major memory. */
export function rowMajorCopy(grad: Tensor): Tensor {
  const copy = grad.contiguous();
  return copy === grad ? grad.clone() : copy;
}

/** The dims, those with the largest strides first. */
function outermostFirst(strides: Shape): number[] {
  return [...strides.keys()].sort((a, b) => (strides[b] as number) - (strides[a] as number));
}
