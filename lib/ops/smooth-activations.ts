/**
 * Smooth activations, written in other ops: logsigmoid, mish, selu, celu, glu, softsign,
 * tanhshrink, softmin, gumbelSoftmax.
 */

import { ArgumentError, ShapeError } from '../core/errors.js';
import { checkFlag, checkLimit, checkNumber } from '../core/options.js';
import { formatShape, wrapDim } from '../core/shape.js';
import { defineFunction, type MethodOf, underName } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { elu, leakyRelu, softplus } from './activation.js';
import { defineComposite } from './composite.js';
import { type DtypeOption, requireFloating, requireNumbers, requireTensor } from './operand.js';
import type { RandomOptions } from './random.js';
import { randLike } from './random-factories.js';
import { sampleTensor } from './samples.js';
import { where } from './where.js';

/** @internal */
export const samples = () => [[sampleTensor([3, 4])], [sampleTensor([2, 1, 7], { seed: 4 })]];
/** @internal */
export const withTwin = { inPlace: true, samples } as const;

defineComposite('leakyRelu', leakyRelu, withTwin);
defineComposite('elu', elu, withTwin);
defineComposite('softplus', softplus, { samples });

/**
 * log(sigmoid(x)), without overflow. Shapes: any, kept. Dtypes: floating, kept; integers give the
 * default floating type. Gradient: yes.
 *
 * @throws ArgumentError unless `input` is a tensor; DtypeError for bools
 * @see PyTorch `torch.nn.functional.logsigmoid`
 */
export const logsigmoid = defineComposite(
  'logsigmoid',
  (input: Tensor): Tensor => {
    requireTensor(input, 'logsigmoid');
    requireNumbers('logsigmoid', input);
    // beyond it, float64 has no difference
    return softplus(input.neg(), { threshold: 40 }).neg();
  },
  { samples },
);

/**
 * x tanh(softplus(x)). Shapes and dtypes as {@link hardsigmoid}. Gradient: yes.
 *
 * @throws ArgumentError unless `input` is a tensor
 * @see PyTorch `torch.nn.functional.mish`; Misra, arXiv:1908.08681
 */
export const mish = defineComposite(
  'mish',
  (input: Tensor): Tensor => {
    requireTensor(input, 'mish');
    return softplus(input).tanh().mul(input);
  },
  withTwin,
);

const SELU_ALPHA = 1.6732632423543772;
const SELU_SCALE = 1.0507009873554805;

/**
 * The elu, scaled, with the alpha that keeps mean 0 and variance 1 from layer to layer. Shapes and
 * dtypes as {@link hardsigmoid}. Gradient: yes.
 *
 * @throws ArgumentError unless `input` is a tensor
 * @see PyTorch `torch.nn.functional.selu`; Klambauer et al., arXiv:1706.02515
 */
export const selu = defineComposite(
  'selu',
  (input: Tensor): Tensor => {
    requireTensor(input, 'selu');
    return elu(input, { alpha: SELU_ALPHA }).mul(SELU_SCALE);
  },
  withTwin,
);

/**
 * x where it is above 0, alpha (exp(x / alpha) - 1) below; alpha is 1 by default. Shapes and dtypes
 * as {@link hardsigmoid}. Gradient: yes.
 *
 * @throws ArgumentError for an alpha of 0, and unless `input` is a tensor
 * @see PyTorch `torch.nn.functional.celu`; Barron, arXiv:1704.07483
 */
export const celu = defineComposite(
  'celu',
  defineFunction('celu(input, /, alpha)', (input: Tensor, alpha = 1): Tensor => {
    requireTensor(input, 'celu');
    checkLimit('celu', 'alpha', alpha);
    if (alpha === 0) throw new ArgumentError('celu: alpha must not be 0', { op: 'celu', alpha });
    const scaled = input.div(alpha);
    // the slope of expm1 underflows near -1
    const below = alpha > 0 ? elu(scaled) : scaled.clamp({ min: 0 }).expm1();
    return where(input.gt(0), input, below.mul(alpha));
  }),
  withTwin,
);

/**
 * The first half along a dim (the last by default) times the sigmoid of the second. Shapes: `[...,
 * 2n, ...]` to `[..., n, ...]`. Dtypes as {@link hardsigmoid}. Gradient: yes.
 *
 * @throws ShapeError for an odd size or no dims; IndexError for a dim out of range; ArgumentError
 * unless `input` is a tensor
 * @see PyTorch `torch.nn.functional.glu`; Dauphin et al., arXiv:1612.08083
 */
export const glu = defineComposite(
  'glu',
  defineFunction('glu(input, /, dim)', (input: Tensor, dim = -1): Tensor => {
    requireTensor(input, 'glu');
    const size = input.sizes[wrapDim(dim, input.ndim, 'glu')] ?? 1;
    if (input.ndim === 0 || size % 2 !== 0)
      throw new ShapeError(
        `glu: dim ${dim} of shape ${formatShape(input.sizes)} must have an even size`,
        { op: 'glu', shape: input.sizes },
      );
    const [value, gate] = input.split([size / 2, size / 2], dim) as [Tensor, Tensor];
    return value.mul(gate.sigmoid());
  }),
  { samples: () => [[sampleTensor([3, 4])], [sampleTensor([6, 3]), 0]] },
);

/**
 * x / (1 + |x|). Shapes and dtypes as {@link hardsigmoid}. Gradient: yes.
 *
 * @throws ArgumentError unless `input` is a tensor
 * @see PyTorch `torch.nn.functional.softsign`
 */
export const softsign = defineComposite(
  'softsign',
  (input: Tensor): Tensor => {
    requireTensor(input, 'softsign');
    return input.div(input.abs().add(1));
  },
  { samples },
);

/**
 * x - tanh(x). Shapes and dtypes as {@link hardsigmoid}. Gradient: yes.
 *
 * @throws ArgumentError unless `input` is a tensor
 * @see PyTorch `torch.nn.functional.tanhshrink`
 */
export const tanhshrink = defineComposite(
  'tanhshrink',
  (input: Tensor): Tensor => {
    requireTensor(input, 'tanhshrink');
    return input.sub(input.tanh());
  },
  { samples },
);

/**
 * softmax of -x along a dim. Shapes: any, kept. Dtypes: floating, kept; integers give float32.
 * Gradient: yes.
 *
 * @throws IndexError for a dim out of range; DtypeError for bools
 * @see PyTorch `torch.nn.functional.softmin`
 */
export const softmin = defineComposite(
  'softmin',
  defineFunction(
    'softmin(input, /, dim, *, dtype)',
    (input: Tensor, dim: number, options: DtypeOption = {}): Tensor => {
      requireTensor(input, 'softmin');
      requireNumbers('softmin', input);
      wrapDim(dim, input.ndim, 'softmin');
      return input.neg().softmax(dim, options);
    },
  ),
  { samples: () => [[sampleTensor([3, 4]), 1]] },
);

/**
 * Samples of a categorical distribution that have a gradient: softmax of (logits + Gumbel noise) /
 * tau along a dim. Shapes: any, kept. Dtypes: floating, kept. Gradient: yes. With `hard`, ones and
 * zeros that have the gradient of the soft values. `tau`, 1 by default, is the temperature: the
 * lower, the nearer to ones and zeros. `eps` does nothing, as in PyTorch. Draws from `generator`,
 * by default the default one.
 *
 * @throws IndexError for a dim out of range; ArgumentError unless `logits` is a tensor
 * @see PyTorch `torch.nn.functional.gumbel_softmax`; Jang et al., arXiv:1611.01144; Maddison et
 * al., arXiv:1611.00712
 */
export const gumbelSoftmax = underName(
  'gumbelSoftmax',
  defineFunction(
    'gumbelSoftmax(logits, /, tau, hard, eps, dim, *, generator)',
    (
      logits: Tensor,
      tau = 1,
      hard = false,
      eps = 1e-10,
      dim = -1,
      { generator }: Pick<RandomOptions, 'generator'> = {},
    ): Tensor => {
      requireTensor(logits, 'gumbelSoftmax', 'logits');
      checkFlag('gumbelSoftmax', 'hard', hard);
      checkNumber('gumbelSoftmax', 'eps', eps); // accepted and ignored, as in PyTorch
      requireFloating(logits, 'gumbelSoftmax', 'logits');
      wrapDim(dim, logits.ndim, 'gumbelSoftmax');
      const uniform = randLike(logits, generator ? { generator } : {});
      const exponential = uniform.neg().log1p().neg().clamp({ min: 1e-30 });
      const soft = logits.sub(exponential.log()).div(tau).softmax(dim);
      if (!hard) return soft;
      const largest = soft.detach().argmax(dim, true);
      const ones = soft.detach().zerosLike().scatter(dim, largest, 1);
      return ones.sub(soft.detach()).add(soft);
    },
  ),
);

declare module '../core/tensor.js' {
  interface Tensor {
    /**
     * {@link leakyRelu} in place. @throws DtypeError for integers and bools; InPlaceError as {@link
     * Tensor.relu_}
     */
    leakyRelu_: MethodOf<typeof leakyRelu, this>;
    /**
     * {@link elu} in place. @throws DtypeError for integers and bools; InPlaceError as {@link
     * Tensor.relu_}
     */
    elu_: MethodOf<typeof elu, this>;
    /** x above 0, negativeSlope * x (default 0.01) elsewhere. The same as {@link leakyRelu}. */
    leakyRelu: MethodOf<typeof leakyRelu>;
    /** x above 0, alpha (exp(x) - 1) elsewhere. The same as {@link elu}. */
    elu: MethodOf<typeof elu>;
    /** log(1 + exp(beta x)) / beta. The same as {@link softplus}. */
    softplus: MethodOf<typeof softplus>;
    /** log(sigmoid(x)). The same as {@link logsigmoid}. */
    logsigmoid(): Tensor;
    /** x tanh(softplus(x)). The same as {@link mish}. */
    mish(): Tensor;
    /**
     * {@link mish} in place. @throws DtypeError for integers and bools; InPlaceError as {@link
     * Tensor.relu_}
     */
    mish_(): this;
    /** The elu that keeps mean 0 and variance 1. The same as {@link selu}. */
    selu(): Tensor;
    /**
     * {@link selu} in place. @throws DtypeError for integers and bools; InPlaceError as {@link
     * Tensor.relu_}
     */
    selu_(): this;
    /** x above 0, alpha (exp(x / alpha) - 1) below. The same as {@link celu}. */
    celu: MethodOf<typeof celu>;
    /**
     * {@link celu} in place. @throws ArgumentError for an alpha of 0; DtypeError for integers and
     * bools; InPlaceError as {@link Tensor.relu_}
     */
    celu_: MethodOf<typeof celu, this>;
    /** The first half along a dim times the sigmoid of the second. The same as {@link glu}. */
    glu: MethodOf<typeof glu>;
    /** x / (1 + |x|). The same as {@link softsign}. */
    softsign(): Tensor;
    /** x - tanh(x). The same as {@link tanhshrink}. */
    tanhshrink(): Tensor;
    /** softmax of -x along a dim. The same as {@link softmin}. */
    softmin: MethodOf<typeof softmin>;
  }
}
