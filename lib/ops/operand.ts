/** Conversions of arguments that users may give in several forms. */
import type { Device } from '../core/device.js';
import {
  bool,
  type DType,
  type DTypeLike,
  dtypeOf,
  float32,
  getDefaultDtype,
  int64,
} from '../core/dtype.js';
import { ArgumentError, DtypeError } from '../core/errors.js';
import { functionOf, kindOf } from '../core/options.js';
import { numberDtype, resultType } from '../core/promotion.js';
import { broadcastShapes } from '../core/shape.js';
import { Tensor, wrapNumber } from '../core/tensor.js';

/** An option of ops that can compute in another dtype. */
export interface DtypeOption {
  /** Convert to this dtype first. */
  dtype?: DTypeLike;
}

/** The second operand of a binary op: a tensor or a number. */
export type TensorLike = Tensor | number | bigint | boolean;

/**
 * Checks calls of functions without options, which would ignore further arguments. @throws
 * ArgumentError for any further argument
 */
export function refuseMore(more: unknown, op: string): void {
  if (more !== undefined)
    throw new ArgumentError(
      `${op}: expected no more arguments, got ${describe(more)} as well; it has no options`,
      { op, given: describe(more) },
    );
}

/**
 * Returns a tensor unchanged, and wraps a plain number on the device of the other operand. @throws
 * ArgumentError
 */
export function operand(value: TensorLike, device: Device, op: string): Tensor {
  if (value instanceof Tensor) return value;
  if (typeof value === 'number' || typeof value === 'boolean')
    return wrapNumber(Number(value), numberDtype(value), device);
  if (typeof value === 'bigint') return wrapNumber(exactNumber(value, op), int64, device);
  throw new ArgumentError(`${op}: expected a tensor or a number, got ${describe(value)}`, { op });
}

/**
 * Converts a plain operand to a double. @throws ArgumentError for a bigint that no double equals
 */
function exactNumber(value: bigint, op: string): number {
  const number = Number(value);
  if (BigInt(number) === value && Math.abs(number) < 2 ** 63) return number;
  throw new ArgumentError(
    `${op}: no double is equal to ${value}; make it a tensor: tensor(${value}n)`,
    { op, given: value },
  );
}

/** @throws ArgumentError unless `value` is a tensor. */
export function requireTensor(
  value: unknown,
  op: string,
  argument = 'input',
): asserts value is Tensor {
  if (!(value instanceof Tensor))
    throw new ArgumentError(`${op}: expected ${argument} to be a tensor, got ${describe(value)}`, {
      op,
      argument,
    });
}

/** @throws ArgumentError unless `value` is an array of tensors. */
export function requireTensors(
  value: unknown,
  op: string,
  argument = 'tensors',
): asserts value is readonly Tensor[] {
  if (!Array.isArray(value))
    throw new ArgumentError(
      `${op}: expected ${argument} to be an array of tensors, got ${describe(value)}`,
      { op, argument },
    );
  for (let i = 0; i < value.length; i++)
    if (!(value[i] instanceof Tensor)) requireTensor(value[i], op, `${argument}[${i}]`);
}

/** @throws ArgumentError unless both are tensors. @throws ShapeError unless they broadcast. */
export function requirePair(input: Tensor, other: Tensor, op: string, argument = 'other'): void {
  requireTensor(input, op);
  requireTensor(other, op, argument);
  broadcastShapes(input.sizes, other.sizes, op);
}

/**
 * @throws DtypeError unless one of the tensors is of numbers: bool tensors have no sign and no
 * difference.
 */
export function requireNumbers(op: string, ...tensors: readonly Tensor[]): void {
  if (tensors.every((t) => t.dtype === bool))
    throw new DtypeError(`${op}: expected numbers, got a bool tensor; convert it with .float()`, {
      op,
      dtype: 'bool',
    });
}

/** @throws DtypeError unless the tensor is of a floating point type. */
export function requireFloating(input: Tensor, op: string, argument = 'input'): void {
  if (!input.dtype.isFloatingPoint)
    throw new DtypeError(
      `${op}: expected ${argument} to be a floating point tensor, got ${input.dtype.name}; ` +
        'convert it with .float()',
      { op, argument, dtype: input.dtype.name },
    );
}

/** The pair of operands of a binary op, at least one of them a tensor. */
export function operands(a: TensorLike, b: TensorLike, op: string): [Tensor, Tensor] {
  if (a instanceof Tensor) return [a, b instanceof Tensor ? b : operand(b, a.device, op)];
  if (b instanceof Tensor) return [operand(a, b.device, op), b];
  throw new ArgumentError(
    `${op}: expected at least one tensor, got ${describe(a)} and ${describe(b)}`,
    { op },
  );
}

/**
 * A composite function of two operands, one of which may be a number, with the dtypes and precision
 * of one kernel: `compute` gets both in their common floating dtype (float32 for 16-bit ones), and
 * the result is rounded once. Otherwise each op inside would promote on its own.
 */
export function inFloats(
  input: Tensor,
  other: Tensor,
  compose: (x: Tensor, y: Tensor) => Tensor,
): Tensor {
  const common = resultType([input, other]);
  const dtype = common.isFloatingPoint ? common : getDefaultDtype();
  const wide = dtype.itemsize === 2 ? float32 : dtype;
  const widened = (t: Tensor, beside: Tensor): Tensor =>
    t.storage === null ? beside.detach().newFull([], t.scalarValue, { dtype: wide }) : t.to(wide);
  return compose(widened(input, other), widened(other, input)).to(dtype);
}

/**
 * The dtype of an option; undefined if it was not given. @throws DtypeError for a value that is
 * neither a dtype nor the name of one
 */
export function requireDtype(dtype: DTypeLike | undefined, op: string): DType | undefined {
  return dtype === undefined ? undefined : dtypeOf(dtype, op);
}

/**
 * Whether the argument in the position of a dim is an options object, since PyTorch's keyword
 * arguments need no dim before them.
 */
export function areOptions<T>(value: T): value is Exclude<Extract<T, object>, readonly unknown[]> {
  return (
    typeof value === 'object' &&
    value !== null &&
    !Array.isArray(value) &&
    !(value instanceof Tensor)
  );
}

/**
 * A tensor that a composition makes for itself, the same on every rank, to go with `input`:
 * distributed, if that is.
 */
export function alongside(input: Tensor, made: Tensor): Tensor {
  return input.sharding === null ? made : input.sharding.replicated(made);
}

/** A short description of a given value, for messages. */
export function describe(value: unknown): string {
  if (value === null || value === undefined) return String(value);
  if (Array.isArray(value)) return `an array of ${value.length}`;
  if (typeof value === 'object') return kindOf(value);
  if (typeof value === 'function') return functionOf(value);
  return `${typeof value} ${String(value)}`;
}
