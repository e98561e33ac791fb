/** Puts methods on Tensor. Each op file declares their types and docs by declaration merging. */

import { namedAfter } from '../core/caller-name.js';
import { dispatchOne } from '../core/dispatch.js';
import type { AnyOp } from '../core/op.js';
import { Tensor } from '../core/tensor.js';
import { operand, operands, refuseMore, requireTensor, type TensorLike } from './operand.js';
import { dispatchInto, type OutOption, outOf } from './out.js';

/** The params of an op without any; shared, so that a call allocates none. */
export const NO_PARAMS: Readonly<Record<never, never>> = Object.freeze({});

// biome-ignore lint/suspicious/noExplicitAny: signatures are declared beside each op.
type AnyMethod = (this: Tensor, ...args: any[]) => unknown;

/** Adds a method; the declared interface in the op's file gives its type. */
export function addMethod(name: string | symbol, method: AnyMethod): void {
  Object.defineProperty(Tensor.prototype, name, {
    value: method,
    writable: true,
    configurable: true,
    enumerable: false,
  });
}

/** The same for a method in place that runs other ops: its errors have its name. */
export function addInPlaceMethod(name: string, method: AnyMethod): void {
  addMethod(name, function (a?: unknown, b?: unknown) {
    try {
      return method.call(this, a, b);
    } catch (error) {
      throw namedAfter(error, name);
    }
  });
}

/** A function of one tensor. */
export type UnaryFunction = (input: Tensor, options?: OutOption) => Tensor;
/** A function of two tensors, one of which may be a number. */
export type BinaryFunction = (input: TensorLike, other: TensorLike, options?: OutOption) => Tensor;

/**
 * The function and the methods `name` and (unless its result is of another dtype) `name_` of an op
 * of one tensor without parameters. The function takes `out` if the op has that trait.
 */
export function unaryFunction(name: string, op: AnyOp, inPlace = true): UnaryFunction {
  addMethod(name, function (more?: unknown) {
    if (more !== undefined) refuseMore(more, name);
    return dispatchOne(op, [this], NO_PARAMS);
  });
  if (inPlace) {
    addMethod(`${name}_`, function (more?: unknown) {
      if (more !== undefined) refuseMore(more, `${name}_`);
      return dispatchOne(op, [this], NO_PARAMS, this);
    });
  }
  const hasOut = op.traits.includes('out');
  return (input, options) => {
    requireTensor(input, name);
    if (options === undefined) return dispatchOne(op, [input], NO_PARAMS);
    if (!hasOut) refuseMore(options, name);
    return dispatchInto(op, [input], NO_PARAMS, outOf(name, options));
  };
}

/** The function, which takes `out`, and the methods `name` and `name_` of an op of two tensors. */
export function binaryFunction(name: string, op: AnyOp): BinaryFunction {
  addMethod(name, function (other: TensorLike, more?: unknown) {
    if (more !== undefined) refuseMore(more, name);
    return dispatchOne(op, [this, operand(other, this.device, name)], NO_PARAMS);
  });
  const inPlace = `${name}_`;
  addMethod(inPlace, function (other: TensorLike, more?: unknown) {
    if (more !== undefined) refuseMore(more, inPlace);
    return dispatchOne(op, [this, operand(other, this.device, inPlace)], NO_PARAMS, this);
  });
  return (input, other, options) => {
    const both = operands(input, other, name);
    return options === undefined
      ? dispatchOne(op, both, NO_PARAMS)
      : dispatchInto(op, both, NO_PARAMS, outOf(name, options));
  };
}
