/** `setGradMemory`: memory of the program in which gradients of leaves lie. */
import { AutogradError } from '../core/errors.js';
import { unexpected } from '../core/options.js';
import { formatShape, overlapsItself, sameShape } from '../core/shape.js';
import { Tensor } from '../core/tensor.js';
import { accumulatorOf } from './accumulate-grad.js';

/**
 * From now on, backward writes the gradient of a leaf whose `.grad` is null into `memory`, and a
 * tensor on it becomes `.grad`. So gradients of many parameters lie in one buffer, without a copy
 * besides. Null takes the memory away, also from a leaf that was frozen since. A pass that creates
 * a graph does not use it.
 *
 * @param memory - of the shape, `gradDtype`, device and placements of the leaf, in any strides
 * @throws AutogradError for a tensor that is no leaf with a gradient, and for memory that does not
 * fit; ArgumentError for what is no tensor
 * @see PyTorch `gradient_as_bucket_view`, which its DistributedDataParallel has for itself
 * @example
 * const weight = new nn.Parameter(zeros([2, 3]));
 * const buffer = zeros([8]);
 * autograd.setGradMemory(weight, buffer.narrow(0, 0, weight.numel()).viewAs(weight));
 * weight.sum().backward();
 * buffer; // [1, 1, 1, 1, 1, 1, 0, 0]
 */
export function setGradMemory(leaf: Tensor, memory: Tensor | null): void {
  const op = 'setGradMemory';
  if (!(leaf instanceof Tensor)) throw unexpected(op, 'leaf', 'a tensor', leaf);
  const isFrozen = !leaf.leafRequiresGrad;
  if (!leaf.isLeaf || (isFrozen && (memory !== null || leaf.gradAccumulator === null)))
    throw new AutogradError(`${op}: expected a leaf that requires a gradient`, { op });
  if (memory !== null) check(op, leaf, memory);
  accumulatorOf(leaf).memory = memory;
}

/** @throws AutogradError unless a gradient of the leaf can lie in the memory */
function check(op: string, leaf: Tensor, memory: Tensor): void {
  if (!(memory instanceof Tensor)) throw unexpected(op, 'memory', 'a tensor or null', memory);
  const fits =
    sameShape(memory.sizes, leaf.sizes) &&
    memory.dtype === leaf.gradDtype &&
    memory.device === leaf.device &&
    memory.sharding?.spec === leaf.sharding?.spec;
  if (!fits)
    throw new AutogradError(
      `${op}: expected memory like the leaf, ${leaf.gradDtype.name}${formatShape(leaf.sizes)} on ` +
        `${leaf.device}, got ${memory.dtype.name}${formatShape(memory.sizes)} on ${memory.device}`,
      { op },
    );
  if (memory.requiresGrad || overlapsItself(memory.sizes, memory.strides))
    throw new AutogradError(
      `${op}: expected memory that requires no gradient and holds each element once`,
      { op },
    );
}
