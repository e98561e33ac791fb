/** Results of collectives that nobody has asked to wait for. */
import { Tensor } from '../core/tensor.js';

const awaited = new WeakSet<Tensor>();

/**
 * A tensor that a functional collective, or `toLocal()` behind `redistribute(…, { asyncOp: true
 * })`, has returned, until `waitTensor` was called with it: `t instanceof AsyncCollectiveTensor`
 * tells. It is a tensor like any other and waits by itself: whatever uses it, views too, is in
 * order behind the collective, on the device.
 *
 * @see PyTorch `torch.distributed._functional_collectives.AsyncCollectiveTensor`
 */
export abstract class AsyncCollectiveTensor extends Tensor {
  static override [Symbol.hasInstance](value: unknown): boolean {
    return value instanceof Tensor && awaited.has(value);
  }
}

/** A collective has been started for it. @internal */
export function asynchronous(t: Tensor): Tensor {
  awaited.add(t);
  return t;
}

/**
 * The tensor itself, which counts as a plain one from now on. Nothing blocks: for programs that are
 * written as in PyTorch.
 */
export function waitTensor(tensor: Tensor): Tensor {
  awaited.delete(tensor);
  return tensor;
}
