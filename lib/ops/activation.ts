/** Activation functions. Backward ops are ops too: one pass over memory instead of several. */

import { dispatchOne } from '../core/dispatch.js';
import type { Op } from '../core/op.js';
import { type ParamSchema, type ParamsOf, param } from '../core/op-params.js';
import { checkLimit, checkOneOf } from '../core/options.js';
import { defineFunction, type MethodOf, methodOf } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { definePointwise } from './define-pointwise.js';
import { addMethod, NO_PARAMS, unaryFunction } from './method.js';
import { requireTensor } from './operand.js';
import { sampleTensor, unarySamples } from './samples.js';
import { where } from './where.js';

/**
 * Defines the backward op of (gradient, x); `decompose` computes the same with other ops, for
 * second derivatives.
 */
function backwardOp<const S extends ParamSchema = Record<never, never>>(
  name: string,
  expression: string,
  decompose: (g: Tensor, x: Tensor, params: ParamsOf<S>) => Tensor,
  sample: ParamsOf<S>,
  params?: S,
): Op<ParamsOf<S>> {
  return definePointwise(name, 2, {
    doc: `Gradient of ${name.replace('Backward', '')}.`,
    expression,
    linear: [[0]], // the gradient
    ...(params && { params }),
    vjp: 'not-differentiable',
    decompose: ([g, x], given) => [decompose(g, x, given)],
    samples: () => [
      { inputs: [sampleTensor([3, 4]), sampleTensor([3, 4], { seed: 5 })], params: sample },
    ],
  });
}

function gradientOf<P extends object>(op: Op<P>, g: Tensor, x: Tensor, params: P): Tensor {
  return dispatchOne(op, [g, x], params);
}

const savesInput = { inputs: [0] } as const;
const savesOutput = { outputs: [0] } as const;

const reluBackward = backwardOp(
  'reluBackward',
  'y <= T(0) ? T(0) : x',
  (g, y) => where(y.le(0), 0, g),
  NO_PARAMS,
);
const reluOp = definePointwise('relu', 1, {
  doc: 'max(x, 0).',
  expression: 'x < T(0) ? T(0) : x',
  classes: 'A',
  saves: savesOutput,
  vjp: (ctx, g) => [gradientOf(reluBackward, g, ctx.output(0), NO_PARAMS)],
  samples: unarySamples(NO_PARAMS),
});

const sigmoidBackward = backwardOp(
  'sigmoidBackward',
  'x * (T(1) - y) * y',
  (g, y) => g.mul(y.neg().add(1)).mul(y),
  NO_PARAMS,
);
const sigmoidOp = definePointwise('sigmoid', 1, {
  out: true,
  doc: '1 / (1 + exp(-x)).',
  expression: 'T(1) / (T(1) + m::exp(-x))',
  saves: savesOutput,
  vjp: (ctx, g) => [gradientOf(sigmoidBackward, g, ctx.output(0), NO_PARAMS)],
  samples: unarySamples(NO_PARAMS),
});

const tanhBackward = backwardOp(
  'tanhBackward',
  'x * (T(1) - y * y)',
  (g, y) => g.mul(y.mul(y).neg().add(1)),
  NO_PARAMS,
);
const tanhOp = definePointwise('tanh', 1, {
  out: true,
  doc: 'Hyperbolic tangent.',
  expression: 'm::tanh(x)',
  saves: savesOutput,
  vjp: (ctx, g) => [gradientOf(tanhBackward, g, ctx.output(0), NO_PARAMS)],
  samples: unarySamples(NO_PARAMS),
});

const siluBackward = backwardOp(
  'siluBackward',
  'm::silu_backward(x, y)',
  (g, x) => {
    const s = x.sigmoid();
    return g.mul(s.mul(x.mul(s.neg().add(1)).add(1)));
  },
  NO_PARAMS,
);
const siluOp = definePointwise('silu', 1, {
  doc: 'x * sigmoid(x).',
  expression: 'x / (T(1) + m::exp(-x))',
  saves: savesInput,
  vjp: (ctx, g) => [gradientOf(siluBackward, g, ctx.input(0), NO_PARAMS)],
  samples: unarySamples(NO_PARAMS),
});

const geluBackward = backwardOp(
  'geluBackward',
  'm::gelu_backward(x, y)',
  (g, x) => {
    const cdf = x.mul(Math.SQRT1_2).erf().add(1).mul(0.5);
    const pdf = x
      .square()
      .mul(-0.5)
      .exp()
      .mul(1 / Math.sqrt(2 * Math.PI));
    return g.mul(cdf.add(x.mul(pdf)));
  },
  NO_PARAMS,
);
const geluOp = definePointwise('gelu', 1, {
  doc: 'x times the normal distribution function of x.',
  expression: 'T(0.5) * x * (T(1) + m::erf(x * T(0.70710678118654752440)))',
  saves: savesInput,
  vjp: (ctx, g) => [gradientOf(geluBackward, g, ctx.input(0), NO_PARAMS)],
  samples: unarySamples(NO_PARAMS),
});

const GELU_BETA = Math.sqrt(2 / Math.PI);
const geluTanhBackward = backwardOp(
  'geluTanhBackward',
  'm::gelu_tanh_backward(x, y)',
  (g, x) => {
    const t = x.mul(x).mul(0.044715).add(1).mul(x).mul(GELU_BETA).tanh();
    const slope = x
      .square()
      .mul(3 * 0.044715)
      .add(1)
      .mul(GELU_BETA);
    const left = t.add(1).mul(0.5);
    return g.mul(left.add(x.mul(0.5).mul(t.square().neg().add(1)).mul(slope)));
  },
  NO_PARAMS,
);
const geluTanhOp = definePointwise('geluTanh', 1, {
  doc: 'gelu with the distribution function approximated by tanh.',
  expression:
    'T(0.5) * x * (T(1) + m::tanh(T(0.79788456080286535588) * (x + T(0.044715) * x * x * x)))',
  saves: savesInput,
  vjp: (ctx, g) => [gradientOf(geluTanhBackward, g, ctx.input(0), NO_PARAMS)],
  samples: unarySamples(NO_PARAMS),
});

const softplusParams = { beta: param.kernel(), threshold: param.kernel() };
const softplusBackward = backwardOp(
  'softplusBackward',
  '(y * p0 > p1) ? x : x / (T(1) + m::exp(-y * p0))',
  (g, x, { beta, threshold }) => where(x.mul(beta).gt(threshold), g, g.mul(x.mul(beta).sigmoid())),
  { beta: 1.5, threshold: 20 },
  softplusParams,
);
const softplusOp = definePointwise('softplus', 1, {
  doc: 'log(1 + exp(beta x)) / beta, and x above the threshold.',
  expression: '(x * p0 > p1) ? x : m::log1p(m::exp(x * p0)) / p0',
  params: softplusParams,
  saves: savesInput,
  vjp: (ctx, g) => [gradientOf(softplusBackward, g, ctx.input(0), ctx.params)],
  samples: unarySamples({ beta: 1.5, threshold: 20 }),
});

const slopeParams = { negativeSlope: param.kernel() };
const leakyReluBackward = backwardOp(
  'leakyReluBackward',
  'y > T(0) ? x : x * p0',
  (g, x, { negativeSlope }) => where(x.gt(0), g, g.mul(negativeSlope)),
  { negativeSlope: 0.1 },
  slopeParams,
);
const leakyReluOp = definePointwise('leakyRelu', 1, {
  doc: 'x above 0, negativeSlope * x below.',
  expression: 'x > T(0) ? x : x * p0',
  params: slopeParams,
  saves: savesInput,
  vjp: (ctx, g) => [gradientOf(leakyReluBackward, g, ctx.input(0), ctx.params)],
  samples: unarySamples({ negativeSlope: 0.1 }),
});

const alphaParams = { alpha: param.kernel() };
const eluBackward = backwardOp(
  'eluBackward',
  'y > T(0) ? x : x * p0 * m::exp(y)',
  // exp overflows for large positive elements
  (g, x, { alpha }) => where(x.gt(0), g, g.mul(where(x.ge(0), 0, x).exp()).mul(alpha)),
  { alpha: 0.7 },
  alphaParams,
);
const eluOp = definePointwise('elu', 1, {
  doc: 'x above 0, alpha (exp(x) - 1) below.',
  expression: 'x > T(0) ? x : p0 * m::expm1(x)',
  params: alphaParams,
  saves: savesInput,
  vjp: (ctx, g) => [gradientOf(eluBackward, g, ctx.input(0), ctx.params)],
  samples: unarySamples({ alpha: 0.7 }),
});

/**
 * max(x, 0); NaN stays. Shapes: any, kept. Dtypes: any, kept. Gradient: yes, 0 at 0.
 *
 * @throws ArgumentError unless `input` is a tensor
 * @see PyTorch `torch.nn.functional.relu`
 */
export const relu: (input: Tensor) => Tensor = unaryFunction('relu', reluOp);
/**
 * 1 / (1 + exp(-x)). Shapes: any, kept. Dtypes: floating, kept; integers and bools give the default
 * floating type. Gradient: yes; none with `out`.
 *
 * @throws ArgumentError unless `input` is a tensor; and what {@link add} throws for `out`
 * @see PyTorch `torch.sigmoid`
 */
export const sigmoid = unaryFunction('sigmoid', sigmoidOp);
/**
 * Hyperbolic tangent. Shapes, dtypes and `out` as {@link sigmoid}. Gradient: yes.
 *
 * @throws ArgumentError unless `input` is a tensor
 * @see PyTorch `torch.tanh`
 */
export const tanh = unaryFunction('tanh', tanhOp);
/**
 * x * sigmoid(x), also called swish. Shapes and dtypes as {@link sigmoid}. Gradient: yes.
 *
 * @throws ArgumentError unless `input` is a tensor
 * @see PyTorch `torch.nn.functional.silu`; Elfwing et al., arXiv:1702.03118
 */
export const silu: (input: Tensor) => Tensor = unaryFunction('silu', siluOp);

/**
 * How `gelu` computes the normal distribution function: `'none'` by erf, `'tanh'` by a polynomial
 * within tanh, off by less than 0.001.
 */
export type GeluApproximate = 'none' | 'tanh';

/**
 * x times the normal distribution function of x, exactly by default. Shapes and dtypes as {@link
 * sigmoid}. Gradient: yes.
 *
 * @throws ArgumentError unless `input` is a tensor
 * @see PyTorch `torch.nn.functional.gelu`; Hendrycks and Gimpel, arXiv:1606.08415
 */
export const gelu = defineFunction(
  'gelu(input, /, approximate)',
  (input: Tensor, approximate: GeluApproximate = 'none'): Tensor => {
    requireTensor(input, 'gelu');
    if (approximate !== 'none') checkOneOf('gelu', 'approximate', approximate, ['none', 'tanh']);
    return dispatchOne(approximate === 'tanh' ? geluTanhOp : geluOp, [input], NO_PARAMS);
  },
);

/**
 * log(1 + exp(beta x)) / beta, and x itself where beta x exceeds the threshold (beta 1 and
 * threshold 20 by default). Shapes and dtypes as {@link sigmoid}. Gradient: yes.
 *
 * @throws ArgumentError unless `input` is a tensor
 * @see PyTorch `torch.nn.functional.softplus`
 */
export const softplus = defineFunction(
  'softplus(input, /, beta, threshold)',
  (input: Tensor, beta = 1, threshold = 20): Tensor => {
    requireTensor(input, 'softplus');
    checkLimit('softplus', 'beta', beta);
    checkLimit('softplus', 'threshold', threshold);
    return dispatchOne(softplusOp, [input], { beta, threshold });
  },
);

/**
 * x where it is above 0, negativeSlope * x (0.01 x by default) elsewhere. Shapes and dtypes as
 * {@link sigmoid}. Gradient: yes, the slope at 0.
 *
 * @throws ArgumentError unless `input` is a tensor
 * @see PyTorch `torch.nn.functional.leaky_relu`
 */
export const leakyRelu = defineFunction(
  'leakyRelu(input, /, negativeSlope)',
  (input: Tensor, negativeSlope = 0.01): Tensor => {
    requireTensor(input, 'leakyRelu');
    checkLimit('leakyRelu', 'negativeSlope', negativeSlope);
    return dispatchOne(leakyReluOp, [input], { negativeSlope });
  },
);

/**
 * x where it is above 0, alpha (exp(x) - 1) elsewhere; alpha is 1 by default. Shapes and dtypes as
 * {@link sigmoid}. Gradient: yes.
 *
 * @throws ArgumentError unless `input` is a tensor
 * @see PyTorch `torch.nn.functional.elu`; Clevert et al., arXiv:1511.07289
 */
export const elu = defineFunction('elu(input, /, alpha)', (input: Tensor, alpha = 1): Tensor => {
  requireTensor(input, 'elu');
  checkLimit('elu', 'alpha', alpha);
  return dispatchOne(eluOp, [input], { alpha });
});

addMethod('gelu', methodOf(gelu));

declare module '../core/tensor.js' {
  interface Tensor {
    /**
     * max(x, 0). The same as {@link relu}.
     *
     * @example
     * tensor([-1, 2]).relu(); // [0, 2]
     */
    relu(): Tensor;
    /**
     * {@link relu} in place. @throws InPlaceError for a leaf that requires a gradient, or elements
     * that share memory
     */
    relu_(): this;
    /** 1 / (1 + exp(-x)). The same as {@link sigmoid}. */
    sigmoid(): Tensor;
    /**
     * {@link sigmoid} in place. @throws DtypeError for integers and bools; InPlaceError as {@link
     * Tensor.relu_}
     */
    sigmoid_(): this;
    /** Hyperbolic tangent. The same as {@link tanh}. */
    tanh(): Tensor;
    /**
     * {@link tanh} in place. @throws DtypeError for integers and bools; InPlaceError as {@link
     * Tensor.relu_}
     */
    tanh_(): this;
    /** x * sigmoid(x). The same as {@link silu}. */
    silu(): Tensor;
    /**
     * {@link silu} in place. @throws DtypeError for integers and bools; InPlaceError as {@link
     * Tensor.relu_}
     */
    silu_(): this;
    /** x times the normal distribution function of x. The same as {@link gelu}. */
    gelu: MethodOf<typeof gelu>;
  }
}
