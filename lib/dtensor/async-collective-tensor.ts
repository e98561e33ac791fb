/** The class of results of functional collectives, and `waitTensor`. */
import { Tensor } from '../core/tensor.js';

const awaited = new WeakSet<Tensor>();

/**
 * The result of a functional collective, or of `toLocal()` after `redistribute(…, { asyncOp: true
 * })`, until `waitTensor` is called with it; `t instanceof AsyncCollectiveTensor` tests for it. It
 * is a tensor like any other and needs no wait: ops that use it, and views of it, run after the
 * collective, in stream order.
 *
 * @see PyTorch `torch.distributed._functional_collectives.AsyncCollectiveTensor`
 */
export abstract class AsyncCollectiveTensor extends Tensor {
  static override [Symbol.hasInstance](value: unknown): boolean {
    return value instanceof Tensor && awaited.has(value);
  }
}

/** Marks the result of a collective. @internal */
export function asynchronous(t: Tensor): Tensor {
  awaited.add(t);
  return t;
}

/**
 * Returns the tensor, which is no longer an AsyncCollectiveTensor. It does not block, and exists
 * for programs ported from PyTorch.
 */
export function waitTensor(tensor: Tensor): Tensor {
  awaited.delete(tensor);
  return tensor;
}
