/** Post-accumulate hooks of leaves that wait until a gradient is reduced. */
import { AutogradError } from '../core/errors.js';
import { checkFunction, unexpected } from '../core/options.js';
import { Tensor } from '../core/tensor.js';
import { accumulatorOf, runAccumulateHooks } from './accumulate-grad.js';

/**
 * From now on, backward calls `arrived` in place of the post-accumulate hooks of a leaf. They wait
 * until {@link runPostAccumulateGradHooks} runs them. So they see a gradient that is reduced later.
 * Null gives the hooks back to backward.
 *
 * @param arrived - gets the leaf when its gradient is in `.grad`; an opaque hook, to be in graphs
 * @throws AutogradError for a tensor that is no leaf with a gradient, ArgumentError for what is no
 * tensor and no function
 * @see PyTorch runs such hooks before DistributedDataParallel has reduced the gradient
 * @example
 * const weight = ones([2], { requiresGrad: true });
 * weight.registerPostAccumulateGradHook((t) => t.grad = null);
 * autograd.delayPostAccumulateGradHooks(weight, () => {});
 * weight.sum().backward();
 * weight.grad; // [1, 1]
 * autograd.runPostAccumulateGradHooks(weight);
 * weight.grad; // null
 */
export function delayPostAccumulateGradHooks(
  leaf: Tensor,
  arrived: ((leaf: Tensor) => void) | null,
): void {
  const op = 'delayPostAccumulateGradHooks';
  checkTensor(op, leaf);
  if (!leaf.isLeaf || !leaf.leafRequiresGrad)
    throw new AutogradError(`${op}: expected a leaf that requires a gradient`, { op });
  if (arrived !== null) checkFunction(op, 'arrived', arrived);
  accumulatorOf(leaf).arrived = arrived;
}

/**
 * Runs the post-accumulate hooks of a leaf, in the order in which they were registered.
 *
 * @throws AutogradError for a tensor that is no leaf, ArgumentError for what is no tensor
 * @see {@link delayPostAccumulateGradHooks}
 */
export function runPostAccumulateGradHooks(leaf: Tensor): void {
  const op = 'runPostAccumulateGradHooks';
  checkTensor(op, leaf);
  if (!leaf.isLeaf) throw new AutogradError(`${op}: expected a leaf`, { op });
  runAccumulateHooks(leaf);
}

function checkTensor(op: string, leaf: Tensor): void {
  if (!(leaf instanceof Tensor)) throw unexpected(op, 'leaf', 'a tensor', leaf);
}
