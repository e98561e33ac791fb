/** Activations written in other ops: relu6, hardtanh, mish, selu, glu and their like. */

import { ArgumentError, ShapeError } from '../core/errors.js';
import { checkLimit, optionsOf } from '../core/options.js';
import { formatShape, wrapDim } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';
import { elu, leakyRelu, softplus } from './activation.js';
import { defineComposite } from './composite.js';
import { requireFloating, requireNumbers, requireTensor } from './operand.js';
import { type RandomOptions, rand } from './random.js';
import { sampleTensor } from './samples.js';
import { where } from './where.js';

const samples = () => [[sampleTensor([3, 4])], [sampleTensor([2, 1, 7], { seed: 4 })]];
const withTwin = { inPlace: true, samples } as const;

defineComposite('leakyRelu', leakyRelu, withTwin);
defineComposite('elu', elu, withTwin);
defineComposite('softplus', softplus, { samples });

/** log(sigmoid(x)), without overflow. Gradient: yes. */
export function logsigmoid(input: Tensor): Tensor {
  requireTensor(input, 'logsigmoid');
  requireNumbers('logsigmoid', input);
  return softplus(input.neg()).neg();
}
defineComposite('logsigmoid', logsigmoid, { samples });

/** Each element moved into [minVal, maxVal]. Gradient: yes, 0 outside. @throws ArgumentError */
export function hardtanh(input: Tensor, options: { minVal?: number; maxVal?: number } = {}): Tensor {
  requireTensor(input, 'hardtanh');
  const { minVal = -1, maxVal = 1 } = optionsOf('hardtanh', options);
  if (!(minVal <= maxVal)) throw new ArgumentError(`hardtanh: minVal ${minVal} is above maxVal ${maxVal}`, { op: 'hardtanh', minVal, maxVal });
  return input.clamp({ min: minVal, max: maxVal });
}
defineComposite('hardtanh', hardtanh, withTwin);

/** min(max(x, 0), 6). Gradient: yes. */
export function relu6(input: Tensor): Tensor {
  requireTensor(input, 'relu6');
  return hardtanh(input, { minVal: 0, maxVal: 6 });
}
defineComposite('relu6', relu6, withTwin);

/** relu6(x + 3) / 6. Gradient: yes. */
export function hardsigmoid(input: Tensor): Tensor {
  requireTensor(input, 'hardsigmoid');
  return relu6(input.add(3)).div(6);
}
defineComposite('hardsigmoid', hardsigmoid, withTwin);

/** x relu6(x + 3) / 6. Gradient: yes. @see Howard et al., arXiv:1905.02244 */
export function hardswish(input: Tensor): Tensor {
  requireTensor(input, 'hardswish');
  return hardsigmoid(input).mul(input);
}
defineComposite('hardswish', hardswish, withTwin);

/** x tanh(softplus(x)). Gradient: yes. @see Misra, arXiv:1908.08681 */
export function mish(input: Tensor): Tensor {
  requireTensor(input, 'mish');
  return softplus(input).tanh().mul(input);
}
defineComposite('mish', mish, withTwin);

const SELU_ALPHA = 1.6732632423543772;
const SELU_SCALE = 1.0507009873554805;

/** The elu that keeps mean 0 and variance 1. Gradient: yes. @see Klambauer et al., arXiv:1706.02515 */
export function selu(input: Tensor): Tensor {
  requireTensor(input, 'selu');
  return elu(input, { alpha: SELU_ALPHA }).mul(SELU_SCALE);
}
defineComposite('selu', selu, withTwin);

/** x above 0, alpha (exp(x / alpha) - 1) below. Gradient: yes. @see Barron, arXiv:1704.07483 */
export function celu(input: Tensor, options: { alpha?: number } = {}): Tensor {
  requireTensor(input, 'celu');
  const { alpha = 1 } = optionsOf('celu', options);
  if (alpha === 0) throw new ArgumentError('celu: alpha must not be 0', { op: 'celu', alpha });
  const below = input.clamp({ max: 0 }).div(alpha).expm1().mul(alpha);
  return input.clamp({ min: 0 }).add(below);
}
defineComposite('celu', celu, withTwin);

/** The first half along a dim times the sigmoid of the second. Gradient: yes. @throws ShapeError for an odd size */
export function glu(input: Tensor, dim = -1): Tensor {
  requireTensor(input, 'glu');
  const size = input.shape[wrapDim(dim, input.ndim, 'glu')] ?? 1;
  if (input.ndim === 0 || size % 2 !== 0) throw new ShapeError(`glu: dim ${dim} of shape ${formatShape(input.shape)} must have an even size`, { op: 'glu', shape: input.shape });
  const [value, gate] = input.split([size / 2, size / 2], dim) as [Tensor, Tensor];
  return value.mul(gate.sigmoid());
}
defineComposite('glu', glu, { samples: () => [[sampleTensor([3, 4])], [sampleTensor([6, 3]), 0]] });

/** x / (1 + |x|). Gradient: yes. */
export function softsign(input: Tensor): Tensor {
  requireTensor(input, 'softsign');
  return input.div(input.abs().add(1));
}
defineComposite('softsign', softsign, { samples });

/** x - tanh(x). Gradient: yes. */
export function tanhshrink(input: Tensor): Tensor {
  requireTensor(input, 'tanhshrink');
  return input.sub(input.tanh());
}
defineComposite('tanhshrink', tanhshrink, { samples });

/** 0 within [-lambd, lambd], x outside. Gradient: yes. */
export function hardshrink(input: Tensor, options: { lambd?: number } = {}): Tensor {
  requireTensor(input, 'hardshrink');
  const { lambd = 0.5 } = optionsOf('hardshrink', options);
  return where(input.abs().le(lambd), 0, input);
}
defineComposite('hardshrink', hardshrink, { samples });

/** 0 within [-lambd, lambd], x moved by lambd towards 0 outside. Gradient: yes. */
export function softshrink(input: Tensor, options: { lambd?: number } = {}): Tensor {
  requireTensor(input, 'softshrink');
  requireNumbers('softshrink', input);
  const { lambd = 0.5 } = optionsOf('softshrink', options);
  return input.sub(input.clamp({ min: -lambd, max: lambd }));
}
defineComposite('softshrink', softshrink, { samples });

/** x above the threshold, `value` else. Gradient: yes. */
export function threshold(input: Tensor, limit: number, value: number): Tensor {
  requireTensor(input, 'threshold');
  for (const [name, bound] of Object.entries({ threshold: limit, value })) checkLimit('threshold', name, bound);
  return where(input.gt(limit), input, value);
}
defineComposite('threshold', threshold, { samples: () => [[sampleTensor([3, 4]), 0.1, 5]] });

/** softmax of -x along a dim. Gradient: yes. */
export function softmin(input: Tensor, dim: number): Tensor {
  requireTensor(input, 'softmin');
  requireNumbers('softmin', input);
  wrapDim(dim, input.ndim, 'softmin');
  return input.neg().softmax(dim);
}
defineComposite('softmin', softmin, { samples: () => [[sampleTensor([3, 4]), 1]] });

/**
 * x above 0, weight x below. The weight has one element, or one for each channel: dim 1 (dim 0 of a vector). Gradient: both.
 *
 * @throws ShapeError
 * @see He et al., arXiv:1502.01852
 */
export function prelu(input: Tensor, weight: Tensor): Tensor {
  requireTensor(input, 'prelu');
  requireTensor(weight, 'prelu', 'weight');
  const channelDim = input.ndim > 1 ? 1 : 0;
  const n = weight.numel();
  if (weight.ndim > 1 || (n !== 1 && n !== input.shape[channelDim])) {
    throw new ShapeError(`prelu: a weight of shape ${formatShape(weight.shape)} does not fit the channels of ${formatShape(input.shape)}`, { op: 'prelu' });
  }
  const spread = n === 1 ? weight.reshape([]) : weight.reshape(input.shape.map((_, i) => (i === channelDim ? n : 1)));
  return where(input.gt(0), input, input.mul(spread));
}
defineComposite('prelu', prelu, {
  samples: () => [
    [sampleTensor([3, 4]), sampleTensor([4], { seed: 2 })],
    [sampleTensor([5]), sampleTensor([1], { seed: 2 })],
  ],
});

/** Options of {@link gumbelSoftmax}. */
export interface GumbelSoftmaxOptions extends Pick<RandomOptions, 'generator'> {
  tau?: number;
  /** Ones and zeros in the forward pass, the soft values' gradient in the backward pass. */
  hard?: boolean;
  dim?: number;
}

/** Samples of a categorical distribution with a gradient. Gradient: yes. @see Jang et al., arXiv:1611.01144 */
export function gumbelSoftmax(logits: Tensor, options: GumbelSoftmaxOptions = {}): Tensor {
  requireTensor(logits, 'gumbelSoftmax', 'logits');
  const { tau = 1, hard = false, dim = -1, generator } = optionsOf('gumbelSoftmax', options);
  requireFloating(logits, 'gumbelSoftmax', 'logits');
  wrapDim(dim, logits.ndim, 'gumbelSoftmax');
  const uniform = rand(logits.shape, { dtype: logits.dtype, device: logits.device, ...(generator ? { generator } : {}) });
  const exponential = uniform.neg().log1p().neg().clamp({ min: 1e-30 });
  const soft = logits.sub(exponential.log()).div(tau).softmax(dim);
  if (!hard) return soft;
  const largest = soft.detach().argmax(dim, { keepdim: true });
  const ones = soft.detach().zerosLike().scatter(dim, largest, 1);
  return ones.sub(soft.detach()).add(soft);
}

declare module '../core/tensor.js' {
  interface Tensor {
    /** x above 0, negativeSlope * x below. Gradient: yes. */
    leakyRelu(options?: { negativeSlope?: number }): Tensor;
    leakyRelu_(options?: { negativeSlope?: number }): this;
    /** x above 0, alpha (exp(x) - 1) below. Gradient: yes. */
    elu(options?: { alpha?: number }): Tensor;
    elu_(options?: { alpha?: number }): this;
    /** log(1 + exp(beta x)) / beta. Gradient: yes. */
    softplus(options?: { beta?: number; threshold?: number }): Tensor;
    /** log(sigmoid(x)). Gradient: yes. */
    logsigmoid(): Tensor;
    /** Each element moved into [minVal, maxVal]. Gradient: yes. @throws ArgumentError */
    hardtanh(options?: { minVal?: number; maxVal?: number }): Tensor;
    hardtanh_(options?: { minVal?: number; maxVal?: number }): this;
    /** min(max(x, 0), 6). Gradient: yes. */
    relu6(): Tensor;
    relu6_(): this;
    /** relu6(x + 3) / 6. Gradient: yes. */
    hardsigmoid(): Tensor;
    hardsigmoid_(): this;
    /** x relu6(x + 3) / 6. Gradient: yes. */
    hardswish(): Tensor;
    hardswish_(): this;
    /** x tanh(softplus(x)). Gradient: yes. */
    mish(): Tensor;
    mish_(): this;
    /** The elu that keeps mean 0 and variance 1. Gradient: yes. */
    selu(): Tensor;
    selu_(): this;
    /** x above 0, alpha (exp(x / alpha) - 1) below. Gradient: yes. */
    celu(options?: { alpha?: number }): Tensor;
    celu_(options?: { alpha?: number }): this;
    /** The first half along a dim times the sigmoid of the second. Gradient: yes. @throws ShapeError */
    glu(dim?: number): Tensor;
    /** x / (1 + |x|). Gradient: yes. */
    softsign(): Tensor;
    /** x - tanh(x). Gradient: yes. */
    tanhshrink(): Tensor;
    /** 0 within [-lambd, lambd], x outside. Gradient: yes. */
    hardshrink(options?: { lambd?: number }): Tensor;
    /** 0 within [-lambd, lambd], moved towards 0 outside. Gradient: yes. */
    softshrink(options?: { lambd?: number }): Tensor;
    /** x above the threshold, `value` else. Gradient: yes. */
    threshold(limit: number, value: number): Tensor;
    /** softmax of -x along a dim. Gradient: yes. */
    softmin(dim: number): Tensor;
    /** x above 0, weight x below. Gradient: both. @throws ShapeError */
    prelu(weight: Tensor): Tensor;
  }
}
