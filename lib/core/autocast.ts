/**
 * The layer of mixed precision: converts the operands of ops before autograd sees them, while it is
 * on. lib/amp holds the rules and switches it.
 */
import { belowEntry } from './dispatch.js';
import { hooks, layers } from './hooks.js';
import type { AnyOp } from './op.js';
import type { Tensor } from './tensor.js';

/**
 * What mixed precision does to floating operands: converts them to its low precision, to float32
 * (everywhere, or on CUDA alone), or to the widest among them. The lists are PyTorch's.
 *
 * @see PyTorch `aten/src/ATen/autocast_mode.h`
 */
export type AutocastPolicy =
  | 'low precision'
  | 'float32'
  | 'float32 on cuda'
  | 'widest'
  | 'widest on cuda';

/** Converts operands by a policy. @internal */
export type OperandConverter = (
  policy: AutocastPolicy,
  operands: readonly Tensor[],
) => readonly Tensor[];

/** Turns the layer on or off and returns whether it was on. @internal */
export function setAutocast(on: boolean): boolean {
  const before = layers.entry === autocastLayer;
  layers.entry = on ? autocastLayer : layers.autograd;
  return before;
}

function autocastLayer(
  op: AnyOp,
  inputs: readonly Tensor[],
  params: object,
  into: Tensor | null,
): Tensor[] {
  return belowEntry(
    op,
    into === null && op.autocast !== null ? autocastOperands(op.autocast, inputs) : inputs,
    params,
    into,
  );
}

/**
 * Converts the operands of a composite function by a policy of mixed precision, as the dispatcher
 * converts those of an op. @internal
 */
export function autocastOperands<T extends readonly Tensor[]>(
  policy: AutocastPolicy,
  operands: T,
): T {
  return layers.entry === autocastLayer ? (hooks.convertOperands(policy, operands) as T) : operands;
}
