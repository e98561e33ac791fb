/**
 * The one door. Every op call of the library, of gradients and of user code passes here, through
 * three fixed layers: autograd, DTensor, backend. A layer handles the call or passes it to the next
 * one; runtime.ts installs them once. While mixed precision is on, a fourth layer before them
 * converts operands.
 */
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

/** For the layer before autograd: the next layer down. @internal */
export function belowEntry(
  op: AnyOp,
  inputs: readonly Tensor[],
  params: object,
  into: Tensor | null,
): Tensor[] {
  return layers.autograd(op, inputs, params, into);
}

/** For the autograd layer: the next layer down. @internal */
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

/** For the DTensor layer: the next layer down. @internal */
export function belowDTensor(
  op: AnyOp,
  inputs: readonly Tensor[],
  params: object,
  into: Tensor | null,
): Tensor[] {
  return layers.backend.run(op, inputs, params, into);
}

/** An op with one output. */
export function dispatchOne(
  op: AnyOp,
  inputs: readonly Tensor[],
  params: object,
  into: Tensor | null = null,
): Tensor {
  return layers.entry(op, inputs, params, into)[0] as Tensor;
}
