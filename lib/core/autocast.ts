/**
 * The layer of mixed precision: converts the operands of ops before autograd sees them, while it is
 * on. lib/amp holds the rules and switches it.
 */
import { belowEntry } from './dispatch.js';
import type { DType } from './dtype.js';
import { hooks, layers } from './hooks.js';
import type { AnyOp } from './op.js';
import type { Storage } from './storage.js';
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

/** What mixed precision does to the operands of a policy. @internal */
export interface OperandConverter {
  /** Converts them. */
  convert(policy: AutocastPolicy, operands: readonly Tensor[]): readonly Tensor[];
  /** The dtype that it converts them to; null if it leaves them as they are. */
  target(policy: AutocastPolicy, operands: readonly Tensor[]): DType | null;
  /** Runs an op that can write its result in the low precision, too, and keeps that. */
  runWithLow(op: AnyOp, operands: readonly Tensor[], params: object): Tensor[];
}

/**
 * A tensor in low precision. An activation refers to its own, so that both live equally long: V8's
 * young collections keep the values of a WeakMap, and with them the graph. @internal
 */
export interface Conversion {
  readonly converted: Tensor;
  readonly version: number;
  /** The memory that was converted, which `data` may replace. */
  readonly storage: Storage | null;
  /** It serves this region and this capture. */
  readonly region: object;
  readonly capture: unknown;
  /** Whether the tape has it; not if the op that computed the activation has written it, too. */
  isRecorded: boolean;
}

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
  if (into !== null || op.autocast === null || op.widens)
    return belowEntry(op, inputs, params, into);
  const operands = autocastOperands(op.autocast, inputs);
  return op.writesLow
    ? hooks.operands.runWithLow(op, operands, params)
    : belowEntry(op, operands, params, null);
}

/**
 * Converts the operands of a composite function by a policy of mixed precision, as the dispatcher
 * converts those of an op. @internal
 */
export function autocastOperands<T extends readonly Tensor[]>(
  policy: AutocastPolicy,
  operands: T,
): T {
  return layers.entry === autocastLayer
    ? (hooks.operands.convert(policy, operands) as readonly Tensor[] as T)
    : operands;
}

/**
 * The dtype that a policy converts operands to, for functions that compute in it without a
 * conversion; null if it leaves them as they are. @internal
 */
export function autocastDtype(policy: AutocastPolicy, operands: readonly Tensor[]): DType | null {
  return layers.entry === autocastLayer ? hooks.operands.target(policy, operands) : null;
}
