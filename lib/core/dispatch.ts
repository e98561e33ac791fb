/**
 * The one door. Every op call of the library, of gradients and of user code passes here, through
 * three fixed layers: autograd, DTensor, backend. A layer handles the call or passes it to the next
 * one; runtime.ts installs them once. While mixed precision is on, a fourth one stands before them
 * and converts operands.
 */
import { ShardwiseError } from './errors.js';
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

const missing: Layer = () => {
  throw new ShardwiseError(
    'ERR_OP',
    'import the package by its public entry point: runtime.ts has not been loaded',
  );
};

let autograd: Layer = missing;
/** Where calls enter: autograd, or the layer before it. */
let entry: Layer = missing;
let dtensor: Layer | null = null;
let backend: Layer = missing;

/** @internal */
export function installAutograd(layer: Layer): void {
  autograd = layer;
  entry = layer;
}

/**
 * Puts a layer before autograd (null takes it away) and returns the one before. It passes calls on
 * with {@link belowEntry}. @internal
 */
export function swapEntry(layer: Layer | null): Layer | null {
  const before = entry === autograd ? null : entry;
  entry = layer ?? autograd;
  return before;
}

/** For the layer before autograd: the next layer down. @internal */
export function belowEntry(
  op: AnyOp,
  inputs: readonly Tensor[],
  params: object,
  into: Tensor | null,
): Tensor[] {
  return autograd(op, inputs, params, into);
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

export function dispatch(
  op: AnyOp,
  inputs: readonly Tensor[],
  params: object,
  into: Tensor | null = null,
): Tensor[] {
  return entry(op, inputs, params, into);
}

/** For the autograd layer: the next layer down. @internal */
export function belowAutograd(
  op: AnyOp,
  inputs: readonly Tensor[],
  params: object,
  into: Tensor | null,
): Tensor[] {
  return dtensor === null ? backend(op, inputs, params, into) : dtensor(op, inputs, params, into);
}

/** For the DTensor layer: the next layer down. @internal */
export function belowDTensor(
  op: AnyOp,
  inputs: readonly Tensor[],
  params: object,
  into: Tensor | null,
): Tensor[] {
  return backend(op, inputs, params, into);
}

/** An op with one output. */
export function dispatchOne(
  op: AnyOp,
  inputs: readonly Tensor[],
  params: object,
  into: Tensor | null = null,
): Tensor {
  return entry(op, inputs, params, into)[0] as Tensor;
}
