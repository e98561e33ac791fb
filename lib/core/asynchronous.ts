/** Results of collectives that nobody has waited for yet. */
import { layers } from './hooks.js';
import type { Tensor } from './tensor.js';

const awaited = new WeakSet<Tensor>();
/** Whether there has been one, so that programs without them look nothing up. */
let exist = false;

/** Whether the tensor is a result of a collective that nobody has waited for. @internal */
export function isAsynchronous(t: Tensor): boolean {
  return exist && awaited.has(t);
}

/** Marks a result, without telling a capture. @internal */
export function markAsynchronous(t: Tensor, value: boolean): void {
  exist ||= value;
  if (value) awaited.add(t);
  else awaited.delete(t);
}

/** Marks the result of a collective. @internal */
export function asynchronous(t: Tensor): Tensor {
  layers.backend.capture?.setsAsynchronous(t, true);
  markAsynchronous(t, true);
  return t;
}

/** Ends the mark. @internal */
export function waited(t: Tensor): Tensor {
  if (!isAsynchronous(t)) return t;
  layers.backend.capture?.setsAsynchronous(t, false);
  markAsynchronous(t, false);
  return t;
}
