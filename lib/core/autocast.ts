/**
 * The seam of mixed precision: who converts the operands of ops while it is on. lib/amp holds the
 * rules.
 */
import { belowEntry, swapEntry } from './dispatch.js';
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

let converter: OperandConverter | null = null;

/** Puts a converter before all ops (null: none) and returns the one before. @internal */
export function setOperandConverter(next: OperandConverter | null): OperandConverter | null {
  const before = converter;
  converter = next;
  swapEntry(next === null ? null : convert);
  return before;
}

function convert(
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
 * For functions that are written in other ops: their operands under mixed precision, as an op's own
 * are converted. @internal
 */
export function autocastOperands<T extends readonly Tensor[]>(
  policy: AutocastPolicy,
  operands: T,
): T {
  return converter === null ? operands : (converter(policy, operands) as T);
}
