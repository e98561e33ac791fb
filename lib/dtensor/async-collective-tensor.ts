/** The class of results of functional collectives, and `waitTensor`. */
import { isAsynchronous, waited } from '../core/asynchronous.js';
import { Tensor } from '../core/tensor.js';

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
    return value instanceof Tensor && isAsynchronous(value);
  }
}

/**
 * Returns the tensor, which is no longer an AsyncCollectiveTensor. It does not block, and exists
 * for programs ported from PyTorch. In a compiled function it is a node of the graph.
 */
export function waitTensor(tensor: Tensor): Tensor {
  return waited(tensor);
}
