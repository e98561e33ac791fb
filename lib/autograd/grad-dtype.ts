/** `gradDtype`: the dtype of the gradient of a leaf. */
import { type DType, type DTypeLike, dtypeOf } from '../core/dtype.js';
import { AutogradError } from '../core/errors.js';
import { unexpected } from '../core/options.js';
import { Tensor } from '../core/tensor.js';
import type { AccumulateGrad } from './accumulate-grad.js';

function setGradDtype(leaf: Tensor, given: DTypeLike): void {
  const dtype = dtypeOf(given, 'gradDtype', 'the dtype');
  if (!dtype.isFloatingPoint)
    throw unexpected('gradDtype', 'the dtype', 'a floating point dtype', dtype.name);
  if (!leaf.isLeaf)
    throw new AutogradError('gradDtype: expected a leaf, got a tensor that an op made');
  const { gradTensor } = leaf;
  const memory = (leaf.gradAccumulator as AccumulateGrad | null)?.memory ?? null;
  for (const there of [gradTensor, memory])
    if (there !== null && there.dtype !== dtype)
      throw new AutogradError(
        `gradDtype: expected ${there.dtype.name}, the dtype of the gradient that is there, got ` +
          `${dtype.name}. Set it before backward.`,
      );
  leaf.ownGradDtype = dtype;
}

Object.defineProperty(Tensor.prototype, 'gradDtype', {
  get(this: Tensor): DType {
    return this.ownGradDtype ?? this.dtype;
  },
  set(this: Tensor, dtype: DTypeLike) {
    setGradDtype(this, dtype);
  },
  configurable: true,
});

declare module '../core/tensor.js' {
  interface Tensor {
    /**
     * The dtype of `.grad`, that of the tensor by default. Backward converts the gradient of a leaf
     * to it when hooks of the leaf have seen it. What expects gradients in the dtype of their
     * parameters may refuse others.
     *
     * @throws AutogradError for a tensor that is no leaf, or has a gradient of another dtype;
     * ArgumentError for a dtype that is not floating
     * @see PyTorch `torch.Tensor.grad_dtype`
     * @example
     * const w = tensor([1, 2], { requiresGrad: true });
     * w.gradDtype = 'bfloat16';
     * w.square().sum().backward();
     * w.grad?.dtype.name; // 'bfloat16'
     */
    get gradDtype(): DType;
    set gradDtype(dtype: DTypeLike);
  }
}
