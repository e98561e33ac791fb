/**
 * Quotients and remainders: div, floorDivide, remainder, fmod. Shapes broadcast and dtypes promote
 * as in pointwise-binary.ts, which lists the errors.
 */

import { reduced } from '../core/decompose.js';
import { dispatchOne } from '../core/dispatch.js';
import type { Op } from '../core/op.js';
import { checkOneOf, optionsOf } from '../core/options.js';
import type { Tensor } from '../core/tensor.js';
import { definePointwise } from './define-pointwise.js';
import { addMethod, binaryFunction, NO_PARAMS } from './method.js';
import { operand, operands, type TensorLike } from './operand.js';
import { dispatchInto, type OutOption } from './out.js';
import { savesBothForOther } from './pointwise-binary.js';
import { binarySamples } from './samples.js';

const trueDivOp: Op<object> = definePointwise('div', 2, {
  out: true,
  doc: 'Quotient in floating point, also of integers.',
  expression: 'x / y',
  linear: [[0]],
  saves: { inputs: (needs) => (needs(1) ? [0, 1] : [1]) },
  vjp: (ctx, g) => {
    const divisor = reduced(ctx.input(1));
    const quotient = g.div(divisor);
    return [
      ctx.needs(0) ? quotient : null,
      ctx.needs(1) ? quotient.mul(ctx.input(0)).div(divisor).neg() : null,
    ];
  },
  samples: binarySamples(NO_PARAMS, {}, { low: 0.5, high: 3 }),
});

function integerDivision(name: string, expression: string, doc: string): Op<object> {
  return definePointwise(name, 2, {
    out: name === 'floorDivide',
    doc,
    expression,
    classes: 'A',
    vjp: (ctx, g) => [ctx.needs(0) ? g.zerosLike() : null, ctx.needs(1) ? g.zerosLike() : null],
    samples: binarySamples(NO_PARAMS, {}, { low: 0.5, high: 3 }),
  });
}
const floorDivideOp = integerDivision(
  'floorDivide',
  'm::floor_divide(x, y)',
  'Quotient rounded down.',
);
const truncDivideOp = integerDivision(
  'truncDivide',
  'm::trunc_divide(x, y)',
  'Quotient rounded towards zero.',
);

const remainderOp: Op<object> = definePointwise('remainder', 2, {
  out: true,
  doc: 'Remainder with the sign of the divisor, as in Python.',
  expression: 'm::remainder(x, y)',
  classes: 'A',
  saves: savesBothForOther,
  vjp: (ctx, g) => [
    ctx.needs(0) ? g : null,
    ctx.needs(1) ? g.mul(div(ctx.input(0), ctx.input(1), { roundingMode: 'floor' })).neg() : null,
  ],
  samples: binarySamples(NO_PARAMS, {}, { low: 0.5, high: 3 }),
});

const fmodOp: Op<object> = definePointwise('fmod', 2, {
  out: true,
  doc: 'Remainder with the sign of the dividend, as in C.',
  expression: 'm::fmod(x, y)',
  classes: 'A',
  saves: savesBothForOther,
  vjp: (ctx, g) => [
    ctx.needs(0) ? g : null,
    ctx.needs(1) ? g.mul(div(ctx.input(0), ctx.input(1), { roundingMode: 'trunc' })).neg() : null,
  ],
  samples: binarySamples(NO_PARAMS, {}, { low: 0.5, high: 3 }),
});

/** How `div` rounds: not at all (null), towards zero (trunc), or down (floor). */
export type RoundingMode = 'trunc' | 'floor' | null;

interface DivOptions {
  /** How the quotient is rounded; null (the default) for not at all. */
  roundingMode?: RoundingMode;
}

function divOpOf(
  name: string,
  options: DivOptions | undefined,
  names = 'roundingMode',
): Op<object> {
  if (options !== undefined) optionsOf(name, options, names);
  const mode = options?.roundingMode ?? null;
  if (mode !== null) checkOneOf(name, 'roundingMode', mode, ['floor', 'trunc']);
  return mode === null ? trueDivOp : mode === 'floor' ? floorDivideOp : truncDivideOp;
}

/**
 * input / other. Shapes: both broadcast. Dtypes: floating, the default one for integers; with a
 * rounding mode, promoted. Gradient: both, 0 if rounded; none with `out`, as {@link add}.
 *
 * @throws ShapeError, DeviceError, ArgumentError as {@link mul}; KernelError if rounded integers
 * are divided by 0 on the CPU
 * @see PyTorch `torch.div`
 */
export function div(
  input: TensorLike,
  other: TensorLike,
  options?: DivOptions & OutOption,
): Tensor {
  const op = divOpOf('div', options, 'roundingMode out');
  return dispatchInto(op, operands(input, other, 'div'), NO_PARAMS, options?.out);
}

/**
 * input / other, rounded down; dtypes promoted, integers stay integers. Gradient: 0.
 *
 * @throws ShapeError, DeviceError, ArgumentError as {@link mul}; KernelError for integers by 0 on
 * the CPU
 * @see PyTorch `torch.floor_divide`
 */
export const floorDivide = binaryFunction('floorDivide', floorDivideOp);
/**
 * The remainder of {@link floorDivide}: it has the sign of the divisor, as in Python. Dtypes:
 * promoted. Gradient: both.
 *
 * @throws ShapeError, DeviceError, ArgumentError as {@link mul}; KernelError for integers by 0 on
 * the CPU
 * @see PyTorch `torch.remainder`
 */
export const remainder = binaryFunction('remainder', remainderOp);
/**
 * The remainder of division towards zero: it has the sign of the dividend, as in C. Dtypes:
 * promoted. Gradient: both.
 *
 * @throws ShapeError, DeviceError, ArgumentError as {@link mul}; KernelError for integers by 0 on
 * the CPU
 * @see PyTorch `torch.fmod`
 */
export const fmod = binaryFunction('fmod', fmodOp);
addMethod('div', function (other: TensorLike, options?: DivOptions) {
  return dispatchOne(
    divOpOf('div', options),
    [this, operand(other, this.device, 'div')],
    NO_PARAMS,
  );
});
addMethod('div_', function (other: TensorLike, options?: DivOptions) {
  const op = divOpOf('div_', options);
  return dispatchOne(op, [this, operand(other, this.device, 'div_')], NO_PARAMS, this);
});

declare module '../core/tensor.js' {
  interface Tensor {
    /**
     * this / other, in floating point unless a rounding mode is given; the same as {@link div}.
     *
     * @example
     * tensor([1, 3]).div(2); // [0.5, 1.5]
     * tensor([1, 3]).div(2, { roundingMode: 'floor' }); // [0, 1]
     */
    div(other: TensorLike, options?: DivOptions): Tensor;
    /** {@link div} in place; see {@link Tensor.add_}. */
    div_(other: TensorLike, options?: DivOptions): this;
    /** this / other, rounded down; the same as {@link floorDivide}. */
    floorDivide(other: TensorLike): Tensor;
    /** {@link floorDivide} in place; see {@link Tensor.add_}. */
    floorDivide_(other: TensorLike): this;
    /** Remainder with the sign of the divisor; the same as {@link remainder}. */
    remainder(other: TensorLike): Tensor;
    /** {@link remainder} in place; see {@link Tensor.add_}. */
    remainder_(other: TensorLike): this;
    /** Remainder with the sign of the dividend; the same as {@link fmod}. */
    fmod(other: TensorLike): Tensor;
    /** {@link fmod} in place; see {@link Tensor.add_}. */
    fmod_(other: TensorLike): this;
  }
}
