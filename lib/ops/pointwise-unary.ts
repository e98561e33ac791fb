/** Pointwise ops of one tensor: exponentials, powers, trigonometry, rounding. Gradients in float only, as in PyTorch. */

import { dispatchOne } from '../core/dispatch.js';
import { bool } from '../core/dtype.js';
import { ArgumentError } from '../core/errors.js';
import type { Op } from '../core/op.js';
import { shown } from '../core/options.js';
import type { Tensor } from '../core/tensor.js';
import { definePointwise } from './define-pointwise.js';
import { addMethod, NO_PARAMS, unaryFunction } from './method.js';
import { requireOptions, requireTensor } from './operand.js';
import { unarySamples } from './samples.js';

type None = Record<string, never>;
type Definition = Parameters<typeof definePointwise<None>>[2];
type Short = Omit<Definition, 'samples'> & { range?: { low?: number; high?: number } };

function unary(name: string, { range, ...definition }: Short): (input: Tensor) => Tensor {
  const op: Op<None> = definePointwise<None>(name, 1, { ...definition, samples: unarySamples(NO_PARAMS as None, range) });
  return unaryFunction(name, op, definition.result !== 'BOOL' || name === 'logicalNot');
}

const savesInput = { inputs: [0] } as const;
const savesOutput = { outputs: [0] } as const;
const positive = { low: 0.1, high: 3 };
const inUnit = { low: -0.9, high: 0.9 };

export const exp = unary('exp', {
  autocast: 'float32 on cuda',
  doc: 'e to the power of each element.',
  expression: 'm::exp(x)',
  saves: savesOutput,
  vjp: (ctx, g) => [g.mul(ctx.output(0))],
});
export const exp2 = unary('exp2', {
  doc: '2 to the power of each element.',
  expression: 'm::exp2(x)',
  saves: savesOutput,
  vjp: (ctx, g) => [g.mul(ctx.output(0)).mul(Math.LN2)],
});
export const expm1 = unary('expm1', {
  autocast: 'float32 on cuda',
  doc: 'exp(x) - 1, exact for small x.',
  expression: 'm::expm1(x)',
  saves: savesOutput,
  vjp: (ctx, g) => [g.mul(ctx.output(0).add(1))],
});
export const log = unary('log', {
  autocast: 'float32 on cuda',
  doc: 'Natural logarithm.',
  expression: 'm::log(x)',
  range: positive,
  saves: savesInput,
  vjp: (ctx, g) => [g.div(ctx.input(0))],
});
export const log2 = unary('log2', {
  autocast: 'float32 on cuda',
  doc: 'Logarithm to base 2.',
  expression: 'm::log2(x)',
  range: positive,
  saves: savesInput,
  vjp: (ctx, g) => [g.div(ctx.input(0).mul(Math.LN2))],
});
export const log10 = unary('log10', {
  autocast: 'float32 on cuda',
  doc: 'Logarithm to base 10.',
  expression: 'm::log10(x)',
  range: positive,
  saves: savesInput,
  vjp: (ctx, g) => [g.div(ctx.input(0).mul(Math.LN10))],
});
export const log1p = unary('log1p', {
  autocast: 'float32 on cuda',
  doc: 'log(1 + x), exact for small x.',
  expression: 'm::log1p(x)',
  range: positive,
  saves: savesInput,
  vjp: (ctx, g) => [g.div(ctx.input(0).add(1))],
});
export const sqrt = unary('sqrt', {
  doc: 'Square root; NaN for negative elements.',
  expression: 'm::sqrt(x)',
  range: positive,
  saves: savesOutput,
  vjp: (ctx, g) => [g.div(ctx.output(0).mul(2))],
});
export const rsqrt = unary('rsqrt', {
  autocast: 'float32 on cuda',
  doc: 'One over the square root.',
  expression: 'T(1) / m::sqrt(x)',
  range: positive,
  saves: savesOutput,
  vjp: (ctx, g) => [g.mul(ctx.output(0).pow(3)).mul(-0.5)],
});
export const reciprocal = unary('reciprocal', {
  autocast: 'float32 on cuda',
  doc: 'One over each element.',
  expression: 'T(1) / x',
  range: positive,
  saves: savesOutput,
  vjp: (ctx, g) => [g.mul(ctx.output(0).square()).neg()],
});
export const sin = unary('sin', {
  doc: 'Sine, of radians.',
  expression: 'm::sin(x)',
  saves: savesInput,
  vjp: (ctx, g) => [g.mul(ctx.input(0).cos())],
});
export const cos = unary('cos', {
  doc: 'Cosine, of radians.',
  expression: 'm::cos(x)',
  saves: savesInput,
  vjp: (ctx, g) => [g.mul(ctx.input(0).sin().neg())],
});
export const tan = unary('tan', {
  autocast: 'float32 on cuda',
  doc: 'Tangent, of radians.',
  expression: 'm::tan(x)',
  range: inUnit,
  saves: savesOutput,
  vjp: (ctx, g) => [g.mul(ctx.output(0).square().add(1))],
});
export const asin = unary('asin', {
  autocast: 'float32 on cuda',
  doc: 'Inverse sine, in radians.',
  expression: 'm::asin(x)',
  range: inUnit,
  saves: savesInput,
  vjp: (ctx, g) => [g.mul(ctx.input(0).square().neg().add(1).rsqrt())],
});
export const acos = unary('acos', {
  autocast: 'float32 on cuda',
  doc: 'Inverse cosine, in radians.',
  expression: 'm::acos(x)',
  range: inUnit,
  saves: savesInput,
  vjp: (ctx, g) => [g.mul(ctx.input(0).square().neg().add(1).rsqrt()).neg()],
});
export const atan = unary('atan', {
  doc: 'Inverse tangent, in radians.',
  expression: 'm::atan(x)',
  saves: savesInput,
  vjp: (ctx, g) => [g.div(ctx.input(0).square().add(1))],
});
export const sinh = unary('sinh', {
  autocast: 'float32 on cuda',
  doc: 'Hyperbolic sine.',
  expression: 'm::sinh(x)',
  saves: savesInput,
  vjp: (ctx, g) => [g.mul(ctx.input(0).cosh())],
});
export const cosh = unary('cosh', {
  autocast: 'float32 on cuda',
  doc: 'Hyperbolic cosine.',
  expression: 'm::cosh(x)',
  saves: savesInput,
  vjp: (ctx, g) => [g.mul(ctx.input(0).sinh())],
});
export const asinh = unary('asinh', {
  doc: 'Inverse hyperbolic sine.',
  expression: 'm::asinh(x)',
  saves: savesInput,
  vjp: (ctx, g) => [g.mul(ctx.input(0).square().add(1).rsqrt())],
});
export const acosh = unary('acosh', {
  doc: 'Inverse hyperbolic cosine.',
  expression: 'm::acosh(x)',
  range: { low: 1.2, high: 4 },
  saves: savesInput,
  vjp: (ctx, g) => [g.mul(ctx.input(0).square().sub(1).rsqrt())],
});
export const atanh = unary('atanh', {
  doc: 'Inverse hyperbolic tangent.',
  expression: 'm::atanh(x)',
  range: inUnit,
  saves: savesInput,
  vjp: (ctx, g) => [g.div(ctx.input(0).square().neg().add(1))],
});
export const erf = unary('erf', {
  doc: 'Error function.',
  expression: 'm::erf(x)',
  saves: savesInput,
  vjp: (ctx, g) => [g.mul(ctx.input(0).square().neg().exp()).mul(2 / Math.sqrt(Math.PI))],
});
export const erfc = unary('erfc', {
  doc: 'One minus the error function.',
  expression: 'm::erfc(x)',
  saves: savesInput,
  vjp: (ctx, g) => [g.mul(ctx.input(0).square().neg().exp()).mul(-2 / Math.sqrt(Math.PI))],
});
export const neg = unary('neg', {
  doc: 'Each element with its sign changed.',
  expression: '-x',
  classes: 'A',
  refuses: ([x]) => (x?.dtype === bool ? 'a bool tensor has no sign; use logicalNot' : null),
  vjp: (_ctx, g) => [g.neg()],
});
export const abs = unary('abs', {
  doc: 'Absolute value; its gradient at 0 is 0.',
  expression: 'm::abs(x)',
  classes: 'A',
  saves: savesInput,
  vjp: (ctx, g) => [g.mul(ctx.input(0).sign())],
});
export const square = unary('square', {
  doc: 'Each element times itself.',
  expression: 'x * x',
  classes: 'A',
  saves: savesInput,
  vjp: (ctx, g) => [g.mul(ctx.input(0)).mul(2)],
});

/** The ops whose gradient is zero almost everywhere. */
const zeroGradient: Definition['vjp'] = (_ctx, g) => [g.zerosLike()];

export const sign = unary('sign', { doc: '-1, 0 or 1.', expression: 'm::sign(x)', classes: 'A', vjp: zeroGradient });
export const floor = unary('floor', { doc: 'The next integer below.', expression: 'm::floor(x)', classes: 'A', vjp: zeroGradient });
export const ceil = unary('ceil', { doc: 'The next integer above.', expression: 'm::ceil(x)', classes: 'A', vjp: zeroGradient });
const roundOp = definePointwise<None>('round', 1, {
  doc: 'The nearest integer, halves to even.',
  expression: 'm::round(x)',
  classes: 'A',
  vjp: zeroGradient,
  samples: unarySamples(NO_PARAMS as None),
});

/** Options of {@link round}. */
export interface RoundOptions {
  /** Digits after the point; negative ones round to tens, hundreds and so on. */
  decimals?: number;
}

/**
 * The nearest integer, or the nearest number of so many decimals; halves to even. Gradient: 0.
 *
 * @throws ArgumentError for decimals that are no integer, or of integers
 * @see PyTorch `torch.round`
 */
export function round(input: Tensor, options: RoundOptions = {}): Tensor {
  requireTensor(input, 'round');
  requireOptions(options, 'round', '{ decimals: 2 }');
  const { decimals = 0 } = options;
  if (!Number.isInteger(decimals)) throw new ArgumentError(`round: expected decimals to be an integer, got ${shown(decimals)}`, { op: 'round', decimals });
  const whole = (t: Tensor): Tensor => dispatchOne(roundOp, [t], NO_PARAMS);
  if (decimals === 0) return whole(input);
  if (!input.dtype.isFloatingPoint) throw new ArgumentError(`round: ${input.dtype.name} has no decimals`, { op: 'round', decimals });
  const scale = 10 ** Math.abs(decimals);
  return decimals > 0 ? whole(input.mul(scale)).div(scale) : whole(input.div(scale)).mul(scale);
}
addMethod('round', function (options?: RoundOptions) {
  return round(this, options);
});
addMethod('round_', function (options?: RoundOptions) {
  return options === undefined ? dispatchOne(roundOp, [this], NO_PARAMS, this) : this.copy_(round(this, options));
});
export const trunc = unary('trunc', { doc: 'The integer part, towards zero.', expression: 'm::trunc(x)', classes: 'A', vjp: zeroGradient });

export const isnan = unary('isnan', { doc: 'Whether each element is NaN.', expression: 'x != x', classes: 'A', result: 'BOOL', vjp: 'not-differentiable' });
export const isinf = unary('isinf', { doc: 'Whether each element is infinite.', expression: 'm::is_inf(x)', classes: 'A', result: 'BOOL', vjp: 'not-differentiable' });
export const isfinite = unary('isfinite', {
  doc: 'Whether each element is neither infinite nor NaN.',
  expression: 'm::is_finite(x)',
  classes: 'A',
  result: 'BOOL',
  vjp: 'not-differentiable',
});
export const logicalNot = unary('logicalNot', { doc: 'Whether each element is 0.', expression: 'x == T(0)', classes: 'A', result: 'BOOL', vjp: 'not-differentiable' });

declare module '../core/tensor.js' {
  interface Tensor {
    /** e to the power of each element. Gradient: yes. */
    exp(): Tensor;
    exp_(): this;
    /** 2 to the power of each element. Gradient: yes. */
    exp2(): Tensor;
    exp2_(): this;
    /** exp(x) - 1, exact for small x. Gradient: yes. */
    expm1(): Tensor;
    expm1_(): this;
    /** Natural logarithm. Gradient: yes. */
    log(): Tensor;
    log_(): this;
    /** Logarithm to base 2. Gradient: yes. */
    log2(): Tensor;
    log2_(): this;
    /** Logarithm to base 10. Gradient: yes. */
    log10(): Tensor;
    log10_(): this;
    /** log(1 + x), exact for small x. Gradient: yes. */
    log1p(): Tensor;
    log1p_(): this;
    /** Square root; NaN for negative elements. Gradient: yes. */
    sqrt(): Tensor;
    sqrt_(): this;
    /** One over the square root. Gradient: yes. */
    rsqrt(): Tensor;
    rsqrt_(): this;
    /** One over each element. Gradient: yes. */
    reciprocal(): Tensor;
    reciprocal_(): this;
    /** Sine, of radians. Gradient: yes. */
    sin(): Tensor;
    sin_(): this;
    /** Cosine, of radians. Gradient: yes. */
    cos(): Tensor;
    cos_(): this;
    /** Tangent, of radians. Gradient: yes. */
    tan(): Tensor;
    tan_(): this;
    /** Inverse sine, in radians. Gradient: yes. */
    asin(): Tensor;
    asin_(): this;
    /** Inverse cosine, in radians. Gradient: yes. */
    acos(): Tensor;
    acos_(): this;
    /** Inverse tangent, in radians. Gradient: yes. */
    atan(): Tensor;
    atan_(): this;
    /** Hyperbolic sine. Gradient: yes. */
    sinh(): Tensor;
    sinh_(): this;
    /** Hyperbolic cosine. Gradient: yes. */
    cosh(): Tensor;
    cosh_(): this;
    /** Inverse hyperbolic sine. Gradient: yes. */
    asinh(): Tensor;
    asinh_(): this;
    /** Inverse hyperbolic cosine. Gradient: yes. */
    acosh(): Tensor;
    acosh_(): this;
    /** Inverse hyperbolic tangent. Gradient: yes. */
    atanh(): Tensor;
    atanh_(): this;
    /** Error function. Gradient: yes. */
    erf(): Tensor;
    erf_(): this;
    /** One minus the error function. Gradient: yes. */
    erfc(): Tensor;
    erfc_(): this;
    /** Each element with its sign changed. Gradient: yes. */
    neg(): Tensor;
    neg_(): this;
    /** Absolute value. Gradient: yes, 0 at 0. */
    abs(): Tensor;
    abs_(): this;
    /** Each element times itself. Gradient: yes. */
    square(): Tensor;
    square_(): this;
    /** -1, 0 or 1. */
    sign(): Tensor;
    sign_(): this;
    /** The next integer below. */
    floor(): Tensor;
    floor_(): this;
    /** The next integer above. */
    ceil(): Tensor;
    ceil_(): this;
    /** The nearest integer, halves to even. */
    round(options?: RoundOptions): Tensor;
    round_(options?: RoundOptions): this;
    /** The integer part, towards zero. */
    trunc(): Tensor;
    trunc_(): this;
    /** Whether each element is NaN. */
    isnan(): Tensor;
    /** Whether each element is infinite. */
    isinf(): Tensor;
    /** Whether each element is neither infinite nor NaN. */
    isfinite(): Tensor;
    /** Whether each element is 0. */
    logicalNot(): Tensor;
    logicalNot_(): this;
  }
}
