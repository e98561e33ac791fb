/** Puts methods on Tensor. Each op file declares their types and docs by declaration merging. */

import { dispatchOne } from '../core/dispatch.js';
import type { AnyOp } from '../core/op.js';
import { Tensor } from '../core/tensor.js';
import { refuseMore, requireTensor } from './operand.js';

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

/**
 * The function and the methods `name` and (unless its result is of another dtype) `name_` of an op
 * of one tensor without parameters.
 */
export function unaryFunction(name: string, op: AnyOp, inPlace = true): (input: Tensor) => Tensor {
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
  return (input: Tensor, more?: unknown) => {
    if (more !== undefined) refuseMore(more, name);
    requireTensor(input, name);
    return dispatchOne(op, [input], NO_PARAMS);
  };
}
