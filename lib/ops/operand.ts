/** Conversions of arguments that users may give in several forms. */
import type { Device } from '../core/device.js';
import { ArgumentError } from '../core/errors.js';
import { numberDtype } from '../core/promotion.js';
import { Tensor, wrapNumber } from '../core/tensor.js';

/** What the second operand of a binary op may be. */
export type TensorLike = Tensor | number | boolean;

/** A tensor as it is; a plain number as an immediate on the device of the other operand. @throws ArgumentError */
export function operand(value: TensorLike, device: Device, op: string): Tensor {
  if (value instanceof Tensor) return value;
  if (typeof value === 'number' || typeof value === 'boolean') return wrapNumber(Number(value), numberDtype(value), device);
  throw new ArgumentError(`${op}: expected a tensor or a number, got ${describe(value)}`, { op });
}

/** @throws ArgumentError unless `value` is a tensor. */
export function requireTensor(value: unknown, op: string, argument = 'input'): asserts value is Tensor {
  if (!(value instanceof Tensor)) throw new ArgumentError(`${op}: expected ${argument} to be a tensor, got ${describe(value)}`, { op, argument });
}

/** The pair of operands of a binary op, at least one of them a tensor. */
export function operands(a: TensorLike, b: TensorLike, op: string): [Tensor, Tensor] {
  if (a instanceof Tensor) return [a, b instanceof Tensor ? b : operand(b, a.device, op)];
  if (b instanceof Tensor) return [operand(a, b.device, op), b];
  throw new ArgumentError(`${op}: expected at least one tensor, got ${describe(a)} and ${describe(b)}`, { op });
}

/** @throws ArgumentError unless `options` is an object: PyTorch's positional arguments are options here. */
export function requireOptions(options: unknown, op: string, example: string): void {
  if (typeof options === 'object' && options !== null) return;
  throw new ArgumentError(`${op}: expected options such as ${example}, got ${describe(options)}`, { op, argument: 'options', given: describe(options) });
}

/** A short name of what was given, for messages. */
export function describe(value: unknown): string {
  if (value === null || value === undefined) return String(value);
  if (Array.isArray(value)) return `an array of ${value.length}`;
  if (typeof value === 'object') return `a ${value.constructor?.name ?? 'plain object'}`;
  return `${typeof value} ${String(value)}`;
}
