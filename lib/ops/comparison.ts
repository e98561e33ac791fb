/** Comparisons and logic: results are bool tensors, without gradients. Bitwise ops take integers and bools. */

import { dispatchOne } from '../core/dispatch.js';
import { bool, int64 } from '../core/dtype.js';
import type { Op, PointwiseSpec } from '../core/op.js';
import { optionsOf } from '../core/options.js';
import type { Tensor } from '../core/tensor.js';
import { definePointwise } from './define-pointwise.js';
import { addMethod, NO_PARAMS } from './method.js';
import { operand, operands, requirePair, requireTensor, type TensorLike } from './operand.js';
import { binarySamples, unarySamples } from './samples.js';

type None = Record<string, never>;
type Binary = (input: TensorLike, other: TensorLike) => Tensor;

function define(name: string, doc: string, expression: string, spec: Pick<PointwiseSpec, 'classes' | 'result'>): Binary {
  const samples = spec.classes === 'I' ? { dtype: int64, low: 0, high: 6 } : {};
  const op: Op<None> = definePointwise<None>(name, 2, {
    doc,
    expression,
    ...spec,
    vjp: 'not-differentiable',
    samples: binarySamples(NO_PARAMS as None, samples),
  });
  addMethod(name, function (other: TensorLike) {
    return dispatchOne(op, [this, operand(other, this.device, name)], NO_PARAMS);
  });
  addMethod(`${name}_`, function (other: TensorLike) {
    return dispatchOne(op, [this, operand(other, this.device, name)], NO_PARAMS, this);
  });
  return (input, other) => dispatchOne(op, operands(input, other, name), NO_PARAMS);
}

const compares = { classes: 'A', result: 'BOOL' } as const;
const bitwise = { classes: 'I', result: 'SAME' } as const;

export const eq = define('eq', 'Whether elements are equal.', 'x == y', compares);
export const ne = define('ne', 'Whether elements differ.', 'x != y', compares);
export const lt = define('lt', 'Whether input is less than other.', 'x < y', compares);
export const le = define('le', 'Whether input is at most other.', 'x <= y', compares);
export const gt = define('gt', 'Whether input is greater than other.', 'x > y', compares);
export const ge = define('ge', 'Whether input is at least other.', 'x >= y', compares);
export const logicalAnd = define('logicalAnd', 'Whether both are not 0.', '(x != T(0)) & (y != T(0))', compares);
export const logicalOr = define('logicalOr', 'Whether one is not 0.', '(x != T(0)) | (y != T(0))', compares);
export const logicalXor = define('logicalXor', 'Whether exactly one is not 0.', '(x != T(0)) != (y != T(0))', compares);
export const bitwiseAnd = define('bitwiseAnd', 'Bits set in both.', 'x & y', bitwise);
export const bitwiseOr = define('bitwiseOr', 'Bits set in one of both.', 'x | y', bitwise);
export const bitwiseXor = define('bitwiseXor', 'Bits set in exactly one.', 'x ^ y', bitwise);
export const bitwiseLeftShift = define('bitwiseLeftShift', 'Bits moved up.', 'm::shift_left(x, y)', bitwise);
export const bitwiseRightShift = define('bitwiseRightShift', 'Bits moved down, sign kept.', 'm::shift_right(x, y)', bitwise);

const bitwiseNotOp: Op<None> = definePointwise<None>('bitwiseNot', 1, {
  doc: 'All bits turned over; for bool the opposite.',
  expression: '~x',
  ...bitwise,
  vjp: 'not-differentiable',
  samples: unarySamples(NO_PARAMS as None, { dtype: int64, low: -4, high: 4 }),
});

/** All bits turned over; for bool the opposite. @throws DtypeError for floating point tensors */
export function bitwiseNot(input: Tensor): Tensor {
  requireTensor(input, 'bitwiseNot');
  return input.dtype === bool ? input.logicalNot() : dispatchOne(bitwiseNotOp, [input], NO_PARAMS);
}
addMethod('bitwiseNot', function () {
  return bitwiseNot(this);
});
addMethod('bitwiseNot_', function () {
  return this.dtype === bool ? this.logicalNot_() : dispatchOne(bitwiseNotOp, [this], NO_PARAMS, this);
});

/** Whether two tensors have the same shape and equal elements. Blocks until the values are known. */
export function equal(input: Tensor, other: Tensor): boolean {
  requireTensor(input, 'equal');
  requireTensor(other, 'equal', 'other');
  const sameSizes = input.shape.length === other.shape.length && input.shape.every((size, i) => size === other.shape[i]);
  return sameSizes && Boolean(eq(input, other).all().item());
}

/**
 * Whether elements are close: |input - other| <= atol + rtol * |other|.
 *
 * @see PyTorch `torch.isclose`
 */
export function isclose(input: Tensor, other: Tensor, options: { rtol?: number; atol?: number; equalNan?: boolean } = {}): Tensor {
  requirePair(input, other, 'isclose');
  const { rtol = 1e-5, atol = 1e-8, equalNan = false } = optionsOf('isclose', options);
  if (input.dtype === bool && other.dtype === bool) return eq(input, other);
  const near = input.sub(other).abs().le(other.abs().mul(rtol).add(atol)).logicalAnd(other.isfinite());
  const close = near.logicalOr(eq(input, other));
  return equalNan ? close.logicalOr(input.isnan().logicalAnd(other.isnan())) : close;
}

/** Whether all elements are close; see {@link isclose}. Blocks until the values are known. */
export function allclose(input: Tensor, other: Tensor, options: { rtol?: number; atol?: number; equalNan?: boolean } = {}): boolean {
  requirePair(input, other, 'allclose');
  optionsOf('allclose', options);
  return Boolean(isclose(input, other, options).all().item());
}

addMethod('equal', function (other: Tensor) {
  return equal(this, other);
});
addMethod('allclose', function (other: Tensor, options?: { rtol?: number; atol?: number; equalNan?: boolean }) {
  return allclose(this, other, options);
});

declare module '../core/tensor.js' {
  interface Tensor {
    /** Whether elements are equal, as a bool tensor. */
    eq(other: TensorLike): Tensor;
    eq_(other: TensorLike): this;
    /** Whether elements differ. */
    ne(other: TensorLike): Tensor;
    ne_(other: TensorLike): this;
    /** Whether this is less than other. */
    lt(other: TensorLike): Tensor;
    lt_(other: TensorLike): this;
    /** Whether this is at most other. */
    le(other: TensorLike): Tensor;
    le_(other: TensorLike): this;
    /** Whether this is greater than other. */
    gt(other: TensorLike): Tensor;
    gt_(other: TensorLike): this;
    /** Whether this is at least other. */
    ge(other: TensorLike): Tensor;
    ge_(other: TensorLike): this;
    /** Whether both are not 0. */
    logicalAnd(other: TensorLike): Tensor;
    logicalAnd_(other: TensorLike): this;
    /** Whether one is not 0. */
    logicalOr(other: TensorLike): Tensor;
    logicalOr_(other: TensorLike): this;
    /** Whether exactly one is not 0. */
    logicalXor(other: TensorLike): Tensor;
    logicalXor_(other: TensorLike): this;
    /** Bits set in both; integers and bools. */
    bitwiseAnd(other: TensorLike): Tensor;
    bitwiseAnd_(other: TensorLike): this;
    /** Bits set in one of both; integers and bools. */
    bitwiseOr(other: TensorLike): Tensor;
    bitwiseOr_(other: TensorLike): this;
    /** Bits set in exactly one; integers and bools. */
    bitwiseXor(other: TensorLike): Tensor;
    bitwiseXor_(other: TensorLike): this;
    /** Bits moved up. */
    bitwiseLeftShift(other: TensorLike): Tensor;
    bitwiseLeftShift_(other: TensorLike): this;
    /** Bits moved down, sign kept. */
    bitwiseRightShift(other: TensorLike): Tensor;
    bitwiseRightShift_(other: TensorLike): this;
    /** All bits turned over; for bool the opposite. */
    bitwiseNot(): Tensor;
    bitwiseNot_(): this;
    /** Whether shapes and all elements are equal. Blocks. */
    equal(other: Tensor): boolean;
    /** Whether all elements are close. Blocks. */
    allclose(other: Tensor, options?: { rtol?: number; atol?: number; equalNan?: boolean }): boolean;
  }
}
