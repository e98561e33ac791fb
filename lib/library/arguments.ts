/**
 * Arguments of a user's op. Tensors, alone or in lists, go through the dispatcher; all other values
 * stay in a template.
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

/** The argument list without its tensors: null in place of each, no elements in place of a list. */
export function valuesOf({ slots }: Template): unknown[] {
  return slots.map((slot) =>
    slot.kind === 'value' ? slot.value : slot.kind === 'tensor' ? null : [],
  );
}

/** Restores the argument list with these tensors. */
export function restore({ slots }: Template, inputs: readonly Tensor[]): unknown[] {
  return slots.map((slot) => {
    if (slot.kind === 'tensor') return inputs[slot.at];
    return slot.kind === 'tensors' ? slot.at.map((i) => inputs[i]) : slot.value;
  });
}

/** The positions of the inputs that an argument consists of. */
export function inputsOf({ slots }: Template, argument: number): readonly number[] {
  const slot = slots[argument];
  if (slot === undefined || slot.kind === 'value') return [];
  return slot.kind === 'tensor' ? [slot.at] : slot.at;
}
