/**
 * The dispatcher. Every op call of the library, of gradients and of user code passes three fixed
 * layers here: autograd, DTensor, backend. A layer handles the call or passes it to the next one;
 * runtime.ts installs them once. While mixed precision is on, a fourth layer before them converts
 * operands.
 */
import { namedInPlace } from './caller-name.js';
import { layers } from './hooks.js';
import type { AnyOp } from './op.js';
import type { Tensor } from './tensor.js';

/**
 * Runs an op. With `into`, the result is written into that tensor's memory (in-place and `out`
 * variants) and it is returned.
 */
export type Layer = (
  op: AnyOp,
  inputs: readonly Tensor[],
  params: object,
  into: Tensor | null,
) => Tensor[];

export function dispatch(
  op: AnyOp,
  inputs: readonly Tensor[],
  params: object,
  into: Tensor | null = null,
): Tensor[] {
  return layers.entry(op, inputs, params, into);
}

/** Calls the layers below mixed precision. @internal */
export function belowEntry(
  op: AnyOp,
  inputs: readonly Tensor[],
  params: object,
  into: Tensor | null,
): Tensor[] {
  return layers.autograd(op, inputs, params, into);
}

/** Calls the layers below autograd. @internal */
export function belowAutograd(
  op: AnyOp,
  inputs: readonly Tensor[],
  params: object,
  into: Tensor | null,
): Tensor[] {
  return layers.dtensor === null
    ? layers.backend.run(op, inputs, params, into)
    : layers.dtensor(op, inputs, params, into);
}

/** Calls the layer below DTensor. @internal */
export function belowDTensor(
  op: AnyOp,
  inputs: readonly Tensor[],
  params: object,
  into: Tensor | null,
): Tensor[] {
  return layers.backend.run(op, inputs, params, into);
}

/** Runs an op with one output and returns it. Errors of an op in place name the method. */
export function dispatchOne(
  op: AnyOp,
  inputs: readonly Tensor[],
  params: object,
  into: Tensor | null = null,
): Tensor {
  if (into !== null && into === inputs[0]) return dispatchInPlace(op, inputs, params, into);
  return layers.entry(op, inputs, params, into)[0] as Tensor;
}

function dispatchInPlace(
  op: AnyOp,
  inputs: readonly Tensor[],
  params: object,
  into: Tensor,
): Tensor {
  try {
    return layers.entry(op, inputs, params, into)[0] as Tensor;
  } catch (error) {
    throw namedInPlace(error, op.name, into);
  }
}
