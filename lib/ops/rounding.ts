/** Signs and rounding. Dtypes: all, kept. The gradient is 0 everywhere. */

import { dispatchOne } from '../core/dispatch.js';
import { ArgumentError } from '../core/errors.js';
import { shown } from '../core/options.js';
import { defineFunction, type MethodOf, methodOf } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { definePointwise } from './define-pointwise.js';
import { addMethod, NO_PARAMS } from './method.js';
import { requireTensor } from './operand.js';
import { type Definition, unary } from './pointwise-unary.js';
import { unarySamples } from './samples.js';

/** The ops whose gradient is zero almost everywhere. */
const zeroGradient: Definition['vjp'] = (_ctx, g) => [g.zerosLike()];

/** -1, 0 or 1. Gradient: 0. @see PyTorch `torch.sign` */
export const sign = unary('sign', {
  doc: '-1, 0 or 1.',
  expression: 'm::sign(x)',
  classes: 'A',
  vjp: zeroGradient,
});
/**
 * The largest integer not above each element, in the same dtype. Gradient: 0. @see PyTorch
 * `torch.floor`
 */
export const floor = unary('floor', {
  doc: 'The next integer below.',
  expression: 'm::floor(x)',
  classes: 'A',
  vjp: zeroGradient,
});
/**
 * The smallest integer not below each element, in the same dtype. Gradient: 0. @see PyTorch
 * `torch.ceil`
 */
export const ceil = unary('ceil', {
  doc: 'The next integer above.',
  expression: 'm::ceil(x)',
  classes: 'A',
  vjp: zeroGradient,
});
const roundOp = definePointwise('round', 1, {
  doc: 'The nearest integer, halves to even.',
  expression: 'm::round(x)',
  classes: 'A',
  vjp: zeroGradient,
  samples: unarySamples(NO_PARAMS),
});

/** Options of {@link round}. */
export interface RoundOptions {
  /** Digits after the point; negative ones round to tens, hundreds and so on. */
  decimals?: number;
}

/**
 * The nearest integer, or with `decimals` (0) the nearest number of so many digits; halves to even.
 * Shape and dtype stay. Gradient: 0.
 *
 * @throws ArgumentError for decimals that are no integer, or not 0 where the dtype is not floating;
 * for what is no tensor
 * @see PyTorch `torch.round`
 */
export const round = defineFunction(
  'round(input, /, *, decimals)',
  (input: Tensor, { decimals = 0 }: RoundOptions = {}): Tensor => {
    requireTensor(input, 'round');
    if (!Number.isInteger(decimals))
      throw new ArgumentError(`round: expected decimals to be an integer, got ${shown(decimals)}`, {
        op: 'round',
        decimals,
      });
    const whole = (t: Tensor): Tensor => dispatchOne(roundOp, [t], NO_PARAMS);
    if (decimals === 0) return whole(input);
    if (!input.dtype.isFloatingPoint)
      throw new ArgumentError(`round: ${input.dtype.name} has no decimals`, {
        op: 'round',
        decimals,
      });
    const scale = 10 ** Math.abs(decimals);
    return decimals > 0 ? whole(input.mul(scale)).div(scale) : whole(input.div(scale)).mul(scale);
  },
);
addMethod('round', methodOf(round));
const round_ = defineFunction(
  'round_(input, /, *, decimals)',
  (input: Tensor, options: RoundOptions = {}): Tensor =>
    options.decimals === undefined
      ? dispatchOne(roundOp, [input], NO_PARAMS, input)
      : input.copy_(round(input, options)),
);
addMethod('round_', methodOf(round_));
/** The integer part, towards zero, in the same dtype. Gradient: 0. @see PyTorch `torch.trunc` */
export const trunc = unary('trunc', {
  doc: 'The integer part, towards zero.',
  expression: 'm::trunc(x)',
  classes: 'A',
  vjp: zeroGradient,
});
declare module '../core/tensor.js' {
  interface Tensor {
    /** {@link sign}: -1, 0 or 1. */ sign(): Tensor;
    /** {@link floor}: the largest integer not above each element, in the same dtype. */ floor(): Tensor;
    /** {@link ceil}: the smallest integer not below each element, in the same dtype. */ ceil(): Tensor;
    /** {@link round}: the nearest integer, halves to even. */ round: MethodOf<typeof round>;
    /** {@link round} in place; see {@link Tensor.add_}. */ round_: MethodOf<typeof round_, this>;
    /** {@link trunc}: the integer part, towards zero, in the same dtype. */ trunc(): Tensor;
  }
}
