/**
 * Pointwise ops of one tensor: exponentials, logarithms, roots, signs, rounding, and tests for NaN
 * and infinity. Each is the PyTorch op of that name; trigonometry.ts has the trigonometric ones.
 *
 * Shapes: as the input. Dtypes: `exp` to `erfc` keep floating dtypes and give the default one for
 * integers and bools; `neg` to `trunc` keep every dtype; `isnan` to `logicalNot` give bool.
 * Gradient: yes in floating point, unless the op says otherwise. Every function throws
 * ArgumentError unless it gets a tensor; in place, also DtypeError for integers if the result is
 * floating. All but `isnan` to `isfinite` take the option `out` of {@link add}.
 */

import { dispatchOne } from '../core/dispatch.js';
import { bool } from '../core/dtype.js';
import { ArgumentError } from '../core/errors.js';
import type { Op } from '../core/op.js';
import { shown } from '../core/options.js';
import { defineFunction, type MethodOf, methodOf } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { writeOut } from './composite.js';
import { definePointwise } from './define-pointwise.js';
import { addMethod, NO_PARAMS, type UnaryFunction, unaryFunction } from './method.js';
import { requireTensor } from './operand.js';
import { dispatchInto, type OutOption } from './out.js';
import { unarySamples } from './samples.js';

type Definition = Parameters<typeof definePointwise<1>>[2];
type Short = Omit<Definition, 'samples'> & { range?: { low?: number; high?: number } };

/** @internal */
export function unary(name: string, { range, ...definition }: Short): UnaryFunction {
  const hasTwins = definition.result !== 'BOOL' || name === 'logicalNot';
  const op: Op<object> = definePointwise(name, 1, {
    out: hasTwins,
    ...definition,
    samples: unarySamples(NO_PARAMS, range),
  });
  return unaryFunction(name, op, hasTwins);
}

/** @internal */
export const savesInput = { inputs: [0] } as const;
/** @internal */
export const savesOutput = { outputs: [0] } as const;
const positive = { low: 0.1, high: 3 };

/** e to the power of each element. Gradient: yes. @see PyTorch `torch.exp` */
export const exp = unary('exp', {
  autocast: 'float32 on cuda',
  doc: 'e to the power of each element.',
  expression: 'm::exp(x)',
  saves: savesOutput,
  vjp: (ctx, g) => [g.mul(ctx.output(0))],
});
/** 2 to the power of each element. Gradient: yes. @see PyTorch `torch.exp2` */
export const exp2 = unary('exp2', {
  doc: '2 to the power of each element.',
  expression: 'm::exp2(x)',
  saves: savesOutput,
  vjp: (ctx, g) => [g.mul(ctx.output(0)).mul(Math.LN2)],
});
/** exp(x) - 1, exact for small x. Gradient: yes. @see PyTorch `torch.expm1` */
export const expm1 = unary('expm1', {
  autocast: 'float32 on cuda',
  doc: 'exp(x) - 1, exact for small x.',
  expression: 'm::expm1(x)',
  saves: savesOutput,
  vjp: (ctx, g) => [g.mul(ctx.output(0).add(1))],
});
/**
 * Natural logarithm; NaN for negative elements, -infinity for 0. Gradient: yes. @see PyTorch
 * `torch.log`
 */
export const log = unary('log', {
  autocast: 'float32 on cuda',
  doc: 'Natural logarithm.',
  expression: 'm::log(x)',
  range: positive,
  saves: savesInput,
  vjp: (ctx, g) => [g.div(ctx.input(0))],
});
/** Logarithm to base 2. Gradient: yes. @see PyTorch `torch.log2` */
export const log2 = unary('log2', {
  autocast: 'float32 on cuda',
  doc: 'Logarithm to base 2.',
  expression: 'm::log2(x)',
  range: positive,
  saves: savesInput,
  vjp: (ctx, g) => [g.div(ctx.input(0).mul(Math.LN2))],
});
/** Logarithm to base 10. Gradient: yes. @see PyTorch `torch.log10` */
export const log10 = unary('log10', {
  autocast: 'float32 on cuda',
  doc: 'Logarithm to base 10.',
  expression: 'm::log10(x)',
  range: positive,
  saves: savesInput,
  vjp: (ctx, g) => [g.div(ctx.input(0).mul(Math.LN10))],
});
/** log(1 + x), exact for small x. Gradient: yes. @see PyTorch `torch.log1p` */
export const log1p = unary('log1p', {
  autocast: 'float32 on cuda',
  doc: 'log(1 + x), exact for small x.',
  expression: 'm::log1p(x)',
  range: positive,
  saves: savesInput,
  vjp: (ctx, g) => [g.div(ctx.input(0).add(1))],
});
/**
 * Square root; NaN for negative elements. Gradient: yes, infinite at 0. @see PyTorch `torch.sqrt`
 */
export const sqrt = unary('sqrt', {
  doc: 'Square root; NaN for negative elements.',
  expression: 'm::sqrt(x)',
  range: positive,
  saves: savesOutput,
  vjp: (ctx, g) => [g.div(ctx.output(0).mul(2))],
});
/** One over the square root; infinity for 0. Gradient: yes. @see PyTorch `torch.rsqrt` */
export const rsqrt = unary('rsqrt', {
  autocast: 'float32 on cuda',
  doc: 'One over the square root.',
  expression: 'T(1) / m::sqrt(x)',
  range: positive,
  saves: savesOutput,
  vjp: (ctx, g) => [g.mul(ctx.output(0).pow(3)).mul(-0.5)],
});
/** One over each element; infinity for 0. Gradient: yes. @see PyTorch `torch.reciprocal` */
export const reciprocal = unary('reciprocal', {
  autocast: 'float32 on cuda',
  doc: 'One over each element.',
  expression: 'T(1) / x',
  range: positive,
  saves: savesOutput,
  vjp: (ctx, g) => [g.mul(ctx.output(0).square()).neg()],
});
/** Error function. Gradient: yes. @see PyTorch `torch.erf` */
export const erf = unary('erf', {
  doc: 'Error function.',
  expression: 'm::erf(x)',
  saves: savesInput,
  vjp: (ctx, g) => [g.mul(ctx.input(0).square().neg().exp()).mul(2 / Math.sqrt(Math.PI))],
});
/** One minus the error function. Gradient: yes. @see PyTorch `torch.erfc` */
export const erfc = unary('erfc', {
  doc: 'One minus the error function.',
  expression: 'm::erfc(x)',
  saves: savesInput,
  vjp: (ctx, g) => [g.mul(ctx.input(0).square().neg().exp()).mul(-2 / Math.sqrt(Math.PI))],
});
/**
 * Each element with its sign changed; unsigned ones wrap around. Gradient: yes. @throws DtypeError
 * for bool @see PyTorch `torch.neg`
 */
export const neg = unary('neg', {
  doc: 'Each element with its sign changed.',
  expression: '-x',
  linear: [[0]],
  classes: 'A',
  refuses: ([x]) => (x?.dtype === bool ? 'a bool tensor has no sign; use logicalNot' : null),
  vjp: (_ctx, g) => [g.neg()],
});
/** Absolute value. Gradient: yes, 0 at 0. @see PyTorch `torch.abs` */
export const abs = unary('abs', {
  doc: 'Absolute value; its gradient at 0 is 0.',
  expression: 'm::abs(x)',
  classes: 'A',
  saves: savesInput,
  vjp: (ctx, g) => [g.mul(ctx.input(0).sign())],
});
const squareOfNumbers = unary('square', {
  doc: 'Each element times itself.',
  expression: 'x * x',
  classes: 'A',
  saves: savesInput,
  vjp: (ctx, g) => [g.mul(ctx.input(0)).mul(2)],
});
/** Each element times itself; of bools in int64. Gradient: yes. @see PyTorch `torch.square` */
export function square(input: Tensor, options?: OutOption): Tensor {
  requireTensor(input, 'square');
  return squareOfNumbers(input.dtype === bool ? input.long() : input, options);
}
addMethod('square', function () {
  return square(this);
});

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
  out: true,
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
 * Shape and dtype stay. Gradient: 0; none with `out`.
 *
 * @throws ArgumentError unless `decimals` is an integer, and 0 for integer dtypes; for a value that
 * is not a tensor; and what {@link add} throws for `out`
 * @see PyTorch `torch.round`
 */
export const round = defineFunction(
  'round(input, /, *, decimals, out)',
  (input: Tensor, { decimals = 0, out }: RoundOptions & OutOption = {}): Tensor => {
    requireTensor(input, 'round');
    if (decimals === 0) return dispatchInto(roundOp, [input], NO_PARAMS, out);
    return writeOut('round', [input], out, () => roundMethod(input, { decimals }));
  },
);
const roundMethod = defineFunction(
  'round(input, /, *, decimals)',
  (input: Tensor, { decimals = 0 }: RoundOptions = {}): Tensor => {
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
addMethod('round', methodOf(roundMethod));
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

/** Whether each element is NaN, as bool. Gradient: none. @see PyTorch `torch.isnan` */
export const isnan: (input: Tensor) => Tensor = unary('isnan', {
  doc: 'Whether each element is NaN.',
  expression: 'x != x',
  classes: 'A',
  result: 'BOOL',
  vjp: 'not-differentiable',
});
/**
 * Whether each element is infinite, of either sign, as bool. Gradient: none. @see PyTorch
 * `torch.isinf`
 */
export const isinf: (input: Tensor) => Tensor = unary('isinf', {
  doc: 'Whether each element is infinite.',
  expression: 'm::is_inf(x)',
  classes: 'A',
  result: 'BOOL',
  vjp: 'not-differentiable',
});
/**
 * Whether each element is neither infinite nor NaN, as bool. Gradient: none. @see PyTorch
 * `torch.isfinite`
 */
export const isfinite: (input: Tensor) => Tensor = unary('isfinite', {
  doc: 'Whether each element is neither infinite nor NaN.',
  expression: 'm::is_finite(x)',
  classes: 'A',
  result: 'BOOL',
  vjp: 'not-differentiable',
});
/** Whether each element is 0, as bool. Gradient: none. @see PyTorch `torch.logical_not` */
export const logicalNot = unary('logicalNot', {
  doc: 'Whether each element is 0.',
  expression: 'x == T(0)',
  classes: 'A',
  result: 'BOOL',
  vjp: 'not-differentiable',
});

declare module '../core/tensor.js' {
  interface Tensor {
    /**
     * {@link exp}: e to the power of each element.
     *
     * @example
     * tensor([0, 1]).exp(); // [1, 2.7183]
     */ exp(): Tensor;
    /** {@link exp} in place; see {@link Tensor.add_}. */ exp_(): this;
    /** {@link exp2}: 2 to the power of each element. */ exp2(): Tensor;
    /** {@link exp2} in place; see {@link Tensor.add_}. */ exp2_(): this;
    /** {@link expm1}: exp(x) - 1, exact for small x. */ expm1(): Tensor;
    /** {@link expm1} in place; see {@link Tensor.add_}. */ expm1_(): this;
    /** {@link log}: natural logarithm. */ log(): Tensor;
    /** {@link log} in place; see {@link Tensor.add_}. */ log_(): this;
    /** {@link log2}: logarithm to base 2. */ log2(): Tensor;
    /** {@link log2} in place; see {@link Tensor.add_}. */ log2_(): this;
    /** {@link log10}: logarithm to base 10. */ log10(): Tensor;
    /** {@link log10} in place; see {@link Tensor.add_}. */ log10_(): this;
    /** {@link log1p}: log(1 + x), exact for small x. */ log1p(): Tensor;
    /** {@link log1p} in place; see {@link Tensor.add_}. */ log1p_(): this;
    /** {@link sqrt}: square root. */ sqrt(): Tensor;
    /** {@link sqrt} in place; see {@link Tensor.add_}. */ sqrt_(): this;
    /** {@link rsqrt}: one over the square root. */ rsqrt(): Tensor;
    /** {@link rsqrt} in place; see {@link Tensor.add_}. */ rsqrt_(): this;
    /** {@link reciprocal}: one over each element. */ reciprocal(): Tensor;
    /** {@link reciprocal} in place; see {@link Tensor.add_}. */ reciprocal_(): this;
    /** {@link erf}: error function. */ erf(): Tensor;
    /** {@link erf} in place; see {@link Tensor.add_}. */ erf_(): this;
    /** {@link erfc}: one minus the error function. */ erfc(): Tensor;
    /** {@link erfc} in place; see {@link Tensor.add_}. */ erfc_(): this;
    /** {@link neg}: each element with its sign changed. */ neg(): Tensor;
    /** {@link neg} in place; see {@link Tensor.add_}. */ neg_(): this;
    /** {@link abs}: absolute value. */ abs(): Tensor;
    /** {@link abs} in place; see {@link Tensor.add_}. */ abs_(): this;
    /**
     * {@link square}: each element times itself.
     *
     * @example
     * tensor([-1, 3]).square(); // [1, 9]
     */ square(): Tensor;
    /** {@link square} in place; see {@link Tensor.add_}. */ square_(): this;
    /** {@link sign}: -1, 0 or 1. */ sign(): Tensor;
    /** {@link sign} in place; see {@link Tensor.add_}. */ sign_(): this;
    /**
     * {@link floor}: the largest integer not above each element, in the same dtype.
     */ floor(): Tensor;
    /** {@link floor} in place; see {@link Tensor.add_}. */ floor_(): this;
    /**
     * {@link ceil}: the smallest integer not below each element, in the same dtype.
     */ ceil(): Tensor;
    /** {@link ceil} in place; see {@link Tensor.add_}. */ ceil_(): this;
    /** {@link round}: the nearest integer, halves to even. */ round: MethodOf<typeof roundMethod>;
    /** {@link round} in place; see {@link Tensor.add_}. */ round_: MethodOf<typeof round_, this>;
    /** {@link trunc}: the integer part, towards zero, in the same dtype. */ trunc(): Tensor;
    /** {@link trunc} in place; see {@link Tensor.add_}. */ trunc_(): this;
    /** {@link isnan}: whether each element is NaN, as bool. */ isnan(): Tensor;
    /**
     * {@link isinf}: whether each element is infinite, of either sign, as bool.
     */ isinf(): Tensor;
    /**
     * {@link isfinite}: whether each element is neither infinite nor NaN, as bool.
     */ isfinite(): Tensor;
    /** {@link logicalNot}: whether each element is 0, as bool. */ logicalNot(): Tensor;
    /** {@link logicalNot} in place; see {@link Tensor.add_}. */ logicalNot_(): this;
  }
}
