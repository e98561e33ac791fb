/**
 * The one door. Every op call of the library, of gradients and of user code passes here, through three fixed layers:
 * autograd, DTensor, backend. A layer handles the call or passes it to the next one; runtime.ts installs them once.
 */
import type { AnyOp } from './op.js';
import type { Tensor } from './tensor.js';

/**
 * Runs an op. With `into`, the result is written into that tensor's memory (in-place and `out` variants) and it is returned.
 */
export type Layer = (op: AnyOp, inputs: readonly Tensor[], params: object, into: Tensor | null) => Tensor[];

const missing: Layer = () => {
  throw new Error('shardwise: import the package by its public entry point; runtime.ts has not been loaded');
};

let autograd: Layer = missing;
let dtensor: Layer | null = null;
let backend: Layer = missing;

/** @internal */
export function installAutograd(layer: Layer): void {
  autograd = layer;
}

/** @internal */
export function installDTensor(layer: Layer): void {
  dtensor = layer;
}

/** Swaps the bottom layer and returns the one before: eager, fake tensors, tracing. @internal */
export function swapBackend(layer: Layer): Layer {
  const before = backend;
  backend = layer;
  return before;
}

export function dispatch(op: AnyOp, inputs: readonly Tensor[], params: object, into: Tensor | null = null): Tensor[] {
  return autograd(op, inputs, params, into);
}

/** For the autograd layer: the next layer down. @internal */
export function belowAutograd(op: AnyOp, inputs: readonly Tensor[], params: object, into: Tensor | null): Tensor[] {
  return dtensor === null ? backend(op, inputs, params, into) : dtensor(op, inputs, params, into);
}

/** For the DTensor layer: the next layer down. @internal */
export function belowDTensor(op: AnyOp, inputs: readonly Tensor[], params: object, into: Tensor | null): Tensor[] {
  return backend(op, inputs, params, into);
}

/** An op with one output. */
export function dispatchOne(op: AnyOp, inputs: readonly Tensor[], params: object, into: Tensor | null = null): Tensor {
  return autograd(op, inputs, params, into)[0] as Tensor;
}
