/**
 * Arguments of a user's op: tensors go through the dispatcher, alone and in lists; everything else
 * stays in its place.
 */
import { Tensor } from '../core/tensor.js';

/** An argument list whose tensors are replaced by their positions among the op's inputs. */
export interface Template {
  slots: readonly Slot[];
}
type Slot =
  | { kind: 'tensor'; at: number }
  | { kind: 'tensors'; at: readonly number[] }
  | { kind: 'value'; value: unknown };

/** Takes the tensors out of an argument list. */
export function flatten(args: readonly unknown[]): { inputs: Tensor[]; template: Template } {
  const inputs: Tensor[] = [];
  const slots = args.map((value): Slot => {
    if (value instanceof Tensor) return { kind: 'tensor', at: inputs.push(value) - 1 };
    if (Array.isArray(value) && value.length > 0 && value.every((v) => v instanceof Tensor))
      return { kind: 'tensors', at: value.map((v) => inputs.push(v) - 1) };
    return { kind: 'value', value };
  });
  return { inputs, template: { slots } };
}

/** Puts tensors back. */
export function restore({ slots }: Template, inputs: readonly Tensor[]): unknown[] {
  return slots.map((slot) => {
    if (slot.kind === 'tensor') return inputs[slot.at];
    return slot.kind === 'tensors' ? slot.at.map((i) => inputs[i]) : slot.value;
  });
}

/** Inputs that belong to an argument. */
export function inputsOf({ slots }: Template, argument: number): readonly number[] {
  const slot = slots[argument];
  if (slot === undefined || slot.kind === 'value') return [];
  return slot.kind === 'tensor' ? [slot.at] : slot.at;
}
