/**
 * Comparisons and logic: results are bool tensors, without gradients. Bitwise ops take integers and
 * bools. Those of the op table take the option `out` of {@link add}.
 */

import { calledAs } from '../core/call-context.js';
import { dispatchOne } from '../core/dispatch.js';
import { bool, int64 } from '../core/dtype.js';
import type { Op, PointwiseSpec } from '../core/op.js';
import { checkFlag, checkNumber } from '../core/options.js';
import { defineFunction, type MethodOf, methodOf, underName } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { definePointwise } from './define-pointwise.js';
import { addMethod, type BinaryFunction, binaryFunction, NO_PARAMS } from './method.js';
import { requirePair, requireTensor, type TensorLike } from './operand.js';
import { dispatchInto, type OutOption, outOf } from './out.js';
import { logicalNot } from './pointwise-unary.js';
import { binarySamples, unarySamples } from './samples.js';

function define(
  name: string,
  doc: string,
  expression: string,
  spec: Pick<PointwiseSpec, 'classes' | 'result'>,
): BinaryFunction {
  const samples = spec.classes === 'I' ? { dtype: int64, low: 0, high: 6 } : {};
  const op: Op<object> = definePointwise(name, 2, {
    doc,
    expression,
    ...spec,
    out: true,
    vjp: 'not-differentiable',
    samples: binarySamples(NO_PARAMS, samples),
  });
  return binaryFunction(name, op);
}

const compares = { classes: 'A', result: 'BOOL' } as const;
const bitwise = { classes: 'I', result: 'SAME' } as const;

/**
 * Whether elements are equal; NaN equals nothing. The result is a tensor, so a condition of it is
 * always true: `if (a.equal(b))` compares two tensors, `a.eq(b).all().item()` elements. Shapes: broadcast. Dtypes: any, compared in the
 * promoted type; the result is bool. Gradient: none.
 *
 * @throws ShapeError if the shapes do not broadcast; DeviceError for tensors on different devices;
 * ArgumentError unless one operand is a tensor and the other a tensor or a number
 * @see PyTorch `torch.eq`
 */
export const eq = define('eq', 'Whether elements are equal.', 'x == y', compares);
/**
 * Whether elements differ, NaN from everything. Shapes, dtypes and errors as {@link eq}. Gradient:
 * none. @see PyTorch `torch.ne`
 */
export const ne = define('ne', 'Whether elements differ.', 'x != y', compares);
/**
 * Whether `input` is less than `other`. Shapes, dtypes and errors as {@link eq}. Gradient: none.
 * @see PyTorch `torch.lt`
 */
export const lt = define('lt', 'Whether input is less than other.', 'x < y', compares);
/**
 * Whether `input` is at most `other`. Shapes, dtypes and errors as {@link eq}. Gradient: none. @see
 * PyTorch `torch.le`
 */
export const le = define('le', 'Whether input is at most other.', 'x <= y', compares);
/**
 * Whether `input` is greater than `other`. Shapes, dtypes and errors as {@link eq}. Gradient: none.
 * @see PyTorch `torch.gt`
 */
export const gt = define('gt', 'Whether input is greater than other.', 'x > y', compares);
/**
 * Whether `input` is at least `other`. Shapes, dtypes and errors as {@link eq}. Gradient: none.
 * @see PyTorch `torch.ge`
 */
export const ge = define('ge', 'Whether input is at least other.', 'x >= y', compares);
/**
 * Whether both are not 0. Shapes, dtypes and errors as {@link eq}. Gradient: none. @see PyTorch
 * `torch.logical_and`
 */
export const logicalAnd = define(
  'logicalAnd',
  'Whether both are not 0.',
  '(x != T(0)) & (y != T(0))',
  compares,
);
/**
 * Whether at least one is not 0. Shapes, dtypes and errors as {@link eq}. Gradient: none. @see
 * PyTorch `torch.logical_or`
 */
export const logicalOr = define(
  'logicalOr',
  'Whether one is not 0.',
  '(x != T(0)) | (y != T(0))',
  compares,
);
/**
 * Whether exactly one is not 0. Shapes, dtypes and errors as {@link eq}. Gradient: none. @see
 * PyTorch `torch.logical_xor`
 */
export const logicalXor = define(
  'logicalXor',
  'Whether exactly one is not 0.',
  '(x != T(0)) != (y != T(0))',
  compares,
);
/**
 * Bits set in both. Shapes: broadcast. Dtypes: integers and bools, promoted. Gradient: none.
 *
 * @throws DtypeError for floating operands; ShapeError, DeviceError, ArgumentError as {@link eq}
 * @see PyTorch `torch.bitwise_and`
 */
export const bitwiseAnd = define('bitwiseAnd', 'Bits set in both.', 'x & y', bitwise);
/**
 * Bits set in at least one. Shapes, dtypes and errors as {@link bitwiseAnd}. Gradient: none. @see
 * PyTorch `torch.bitwise_or`
 */
export const bitwiseOr = define('bitwiseOr', 'Bits set in one of both.', 'x | y', bitwise);
/**
 * Bits set in exactly one. Shapes, dtypes and errors as {@link bitwiseAnd}. Gradient: none. @see
 * PyTorch `torch.bitwise_xor`
 */
export const bitwiseXor = define('bitwiseXor', 'Bits set in exactly one.', 'x ^ y', bitwise);
/**
 * Bits of `input` shifted left by `other`; 0 if `other` is negative or at least the number of bits
 * of the dtype. Shapes, dtypes and errors as {@link bitwiseAnd}. Gradient: none.
 *
 * @see PyTorch `torch.bitwise_left_shift`
 */
export const bitwiseLeftShift = define(
  'bitwiseLeftShift',
  'Bits moved up.',
  'm::shift_left(x, y)',
  bitwise,
);
/**
 * Bits of `input` shifted right by `other`, sign kept; 0 or -1, by the sign, if `other` is negative
 * or at least the number of bits of the dtype. Shapes, dtypes and errors as {@link bitwiseAnd}.
 * Gradient: none.
 *
 * @see PyTorch `torch.bitwise_right_shift`
 */
export const bitwiseRightShift = define(
  'bitwiseRightShift',
  'Bits moved down, sign kept.',
  'm::shift_right(x, y)',
  bitwise,
);

const bitwiseNotOp: Op<object> = definePointwise('bitwiseNot', 1, {
  doc: 'All bits turned over; for bool the opposite.',
  expression: '~x',
  ...bitwise,
  out: true,
  vjp: 'not-differentiable',
  samples: unarySamples(NO_PARAMS, { dtype: int64, low: -4, high: 4 }),
});

/**
 * All bits inverted; for bool the negation. Shapes: any, kept. Dtypes: integers and bool, kept.
 * Gradient: none.
 *
 * @throws DtypeError for floating point tensors; and what {@link add} throws for `out`
 * @see PyTorch `torch.bitwise_not`
 */
export function bitwiseNot(input: Tensor, options: OutOption = {}): Tensor {
  requireTensor(input, 'bitwiseNot');
  if (input.dtype === bool) return logicalNot(input, options);
  return dispatchInto(bitwiseNotOp, [input], NO_PARAMS, outOf('bitwiseNot', options));
}
addMethod('bitwiseNot', function () {
  return bitwiseNot(this);
});
addMethod('bitwiseNot_', function () {
  return this.dtype === bool
    ? this.logicalNot_()
    : dispatchOne(bitwiseNotOp, [this], NO_PARAMS, this);
});

/**
 * Whether two tensors have the same shape and equal elements; dtypes may differ, and NaN equals
 * nothing. Blocks until the values are known. Gradient: none.
 *
 * @throws DeviceError for tensors of one shape on different devices
 * @see PyTorch `torch.equal`
 */
export function equal(input: Tensor, other: Tensor): boolean {
  requireTensor(input, 'equal');
  requireTensor(other, 'equal', 'other');
  const sameSizes =
    input.sizes.length === other.sizes.length &&
    input.sizes.every((size, i) => size === other.sizes[i]);
  return sameSizes && Boolean(calledAs('equal', () => eq(input, other).all().item()));
}

/**
 * Whether elements are close: |input - other| <= atol + rtol * |other| (atol 1e-8 and rtol 1e-5 by
 * default). Infinities are close to themselves alone, NaN to NaN with `equalNan`. Shapes:
 * broadcast. Dtypes: any, promoted; the result is bool. Gradient: none.
 *
 * @throws ShapeError if the shapes do not broadcast; DeviceError for tensors on different devices
 * @see PyTorch `torch.isclose`
 */
export const isclose = underName(
  'isclose',
  defineFunction(
    'isclose(input, /, other, rtol, atol, equalNan)',
    (input: Tensor, other: Tensor, rtol = 1e-5, atol = 1e-8, equalNan = false): Tensor => {
      requirePair(input, other, 'isclose');
      checkFlag('isclose', 'equalNan', equalNan);
      checkNumber('isclose', 'rtol', rtol, { from: 0 });
      checkNumber('isclose', 'atol', atol, { from: 0 });
      if (input.dtype === bool && other.dtype === bool) return eq(input, other);
      const near = input
        .sub(other)
        .abs()
        .le(other.abs().mul(rtol).add(atol))
        .logicalAnd(other.isfinite());
      const close = near.logicalOr(eq(input, other));
      return equalNan ? close.logicalOr(input.isnan().logicalAnd(other.isnan())) : close;
    },
  ),
);

/**
 * Whether all elements are close; see {@link isclose} for options, shapes, dtypes and errors.
 * Blocks until the values are known. Gradient: none.
 *
 * @see PyTorch `torch.allclose`
 */
export const allclose = defineFunction(
  'allclose(input, /, other, rtol, atol, equalNan)',
  (input: Tensor, other: Tensor, rtol = 1e-5, atol = 1e-8, equalNan = false): boolean => {
    requirePair(input, other, 'allclose');
    checkFlag('allclose', 'equalNan', equalNan);
    return Boolean(
      calledAs('allclose', () => isclose(input, other, rtol, atol, equalNan).all().item()),
    );
  },
);

addMethod('equal', function (other: Tensor) {
  return equal(this, other);
});
addMethod('allclose', methodOf(allclose));

declare module '../core/tensor.js' {
  interface Tensor {
    /** Whether elements are equal, as bool. The same as {@link eq}. */
    eq(other: TensorLike): Tensor;
    /**
     * {@link eq} in place, as ones and zeros. @throws ShapeError unless `other` broadcasts to this
     * shape; InPlaceError as {@link Tensor.relu_}
     */
    eq_(other: TensorLike): this;
    /** Whether elements differ, as bool. The same as {@link ne}. */
    ne(other: TensorLike): Tensor;
    /** {@link ne} in place; as {@link Tensor.eq_}. */
    ne_(other: TensorLike): this;
    /** Whether this is less than `other`, as bool. The same as {@link lt}. */
    lt(other: TensorLike): Tensor;
    /** {@link lt} in place; as {@link Tensor.eq_}. */
    lt_(other: TensorLike): this;
    /** Whether this is at most `other`, as bool. The same as {@link le}. */
    le(other: TensorLike): Tensor;
    /** {@link le} in place; as {@link Tensor.eq_}. */
    le_(other: TensorLike): this;
    /** Whether this is greater than `other`, as bool. The same as {@link gt}. */
    gt(other: TensorLike): Tensor;
    /** {@link gt} in place; as {@link Tensor.eq_}. */
    gt_(other: TensorLike): this;
    /** Whether this is at least `other`, as bool. The same as {@link ge}. */
    ge(other: TensorLike): Tensor;
    /** {@link ge} in place; as {@link Tensor.eq_}. */
    ge_(other: TensorLike): this;
    /** Whether both are not 0, as bool. The same as {@link logicalAnd}. */
    logicalAnd(other: TensorLike): Tensor;
    /** {@link logicalAnd} in place; as {@link Tensor.eq_}. */
    logicalAnd_(other: TensorLike): this;
    /** Whether at least one is not 0, as bool. The same as {@link logicalOr}. */
    logicalOr(other: TensorLike): Tensor;
    /** {@link logicalOr} in place; as {@link Tensor.eq_}. */
    logicalOr_(other: TensorLike): this;
    /** Whether exactly one is not 0, as bool. The same as {@link logicalXor}. */
    logicalXor(other: TensorLike): Tensor;
    /** {@link logicalXor} in place; as {@link Tensor.eq_}. */
    logicalXor_(other: TensorLike): this;
    /** Bits set in both. The same as {@link bitwiseAnd}. */
    bitwiseAnd(other: TensorLike): Tensor;
    /**
     * {@link bitwiseAnd} in place. @throws DtypeError for floating operands, or an integer `other`
     * where this is bool; else as {@link Tensor.eq_}
     */
    bitwiseAnd_(other: TensorLike): this;
    /** Bits set in at least one. The same as {@link bitwiseOr}. */
    bitwiseOr(other: TensorLike): Tensor;
    /** {@link bitwiseOr} in place; as {@link Tensor.bitwiseAnd_}. */
    bitwiseOr_(other: TensorLike): this;
    /** Bits set in exactly one. The same as {@link bitwiseXor}. */
    bitwiseXor(other: TensorLike): Tensor;
    /** {@link bitwiseXor} in place; as {@link Tensor.bitwiseAnd_}. */
    bitwiseXor_(other: TensorLike): this;
    /** Bits shifted left by `other`. The same as {@link bitwiseLeftShift}. */
    bitwiseLeftShift(other: TensorLike): Tensor;
    /** {@link bitwiseLeftShift} in place; as {@link Tensor.bitwiseAnd_}. */
    bitwiseLeftShift_(other: TensorLike): this;
    /** Bits shifted right by `other`, sign kept. The same as {@link bitwiseRightShift}. */
    bitwiseRightShift(other: TensorLike): Tensor;
    /** {@link bitwiseRightShift} in place; as {@link Tensor.bitwiseAnd_}. */
    bitwiseRightShift_(other: TensorLike): this;
    /** All bits inverted; for bool the negation. The same as {@link bitwiseNot}. */
    bitwiseNot(): Tensor;
    /**
     * {@link bitwiseNot} in place. @throws DtypeError for floating point tensors; InPlaceError for
     * elements that share memory
     */
    bitwiseNot_(): this;
    /** Whether shapes and all elements are equal. Blocks. The same as {@link equal}. */
    equal(other: Tensor): boolean;
    /**
     * Whether all elements are close. Blocks. The same as {@link allclose}.
     *
     * @example
     * ones([2]).allclose(ones([2]).add(1e-7)); // true
     */
    allclose: MethodOf<typeof allclose>;
  }
}
