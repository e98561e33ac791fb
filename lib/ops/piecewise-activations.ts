/**
 * Piecewise linear activations, written in other ops: hardtanh, relu6, hardsigmoid, hardswish,
 * hardshrink, softshrink, threshold, prelu.
 */

import { ArgumentError, ShapeError } from '../core/errors.js';
import { checkLimit, checkNumber } from '../core/options.js';
import { formatShape } from '../core/shape.js';
import { defineFunction, type MethodOf } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { defineComposite } from './composite.js';
import { requireNumbers, requireTensor } from './operand.js';
import { sampleTensor } from './samples.js';
import { samples, withTwin } from './smooth-activations.js';
import { where } from './where.js';

/**
 * Each element moved into [minVal, maxVal], by default [-1, 1]. Shapes: any, kept. Dtypes: any,
 * kept. Gradient: yes, 0 outside.
 *
 * @throws ArgumentError if minVal is above maxVal or either is NaN, and unless `input` is a tensor
 * @see PyTorch `torch.nn.functional.hardtanh`
 */
export const hardtanh = defineComposite(
  'hardtanh',
  defineFunction(
    'hardtanh(input, /, minVal, maxVal)',
    (input: Tensor, minVal = -1, maxVal = 1): Tensor => {
      requireTensor(input, 'hardtanh');
      checkLimit('hardtanh', 'minVal', minVal);
      checkLimit('hardtanh', 'maxVal', maxVal);
      if (!(minVal <= maxVal))
        throw new ArgumentError(`hardtanh: minVal ${minVal} is above maxVal ${maxVal}`, {
          op: 'hardtanh',
          minVal,
          maxVal,
        });
      if (!input.requiresGrad) return input.clamp({ min: minVal, max: maxVal });
      // The gradient of clamp is 1 at the bounds, that of hardtanh is 0.
      return where(
        input.gt(minVal).logicalAnd(input.lt(maxVal)),
        input,
        input.detach().clamp({ min: minVal, max: maxVal }),
      );
    },
  ),
  withTwin,
);

/**
 * min(max(x, 0), 6). Shapes: any, kept. Dtypes: any, kept. Gradient: yes, 0 outside [0, 6].
 *
 * @throws ArgumentError unless `input` is a tensor
 * @see PyTorch `torch.nn.functional.relu6`
 */
export const relu6 = defineComposite(
  'relu6',
  (input: Tensor): Tensor => {
    requireTensor(input, 'relu6');
    return hardtanh(input, { minVal: 0, maxVal: 6 });
  },
  withTwin,
);

/**
 * relu6(x + 3) / 6. Shapes: any, kept. Dtypes: floating, kept; integers and bools give the default
 * floating type. Gradient: yes.
 *
 * @see PyTorch `torch.nn.functional.hardsigmoid`
 */
export const hardsigmoid = defineComposite(
  'hardsigmoid',
  (input: Tensor): Tensor => {
    requireTensor(input, 'hardsigmoid');
    return relu6(input.add(3)).div(6);
  },
  withTwin,
);

/**
 * x relu6(x + 3) / 6. Shapes and dtypes as {@link hardsigmoid}. Gradient: yes.
 *
 * @see PyTorch `torch.nn.functional.hardswish`; Howard et al., arXiv:1905.02244
 */
export const hardswish = defineComposite(
  'hardswish',
  (input: Tensor): Tensor => {
    requireTensor(input, 'hardswish');
    return hardsigmoid(input).mul(input);
  },
  withTwin,
);

/** The tensor, whose gradient is 0 within [-lambd, lambd] and at NaN. */
function passingBeyond(input: Tensor, lambd: number): Tensor {
  return input.requiresGrad ? where(input.abs().gt(lambd), input, input.detach()) : input;
}

/**
 * 0 within [-lambd, lambd], x outside; lambd is 0.5 by default. Shapes: any, kept. Dtypes: numbers,
 * kept. Gradient: yes, 0 within.
 *
 * @throws ArgumentError unless `input` is a tensor
 * @see PyTorch `torch.nn.functional.hardshrink`
 */
export const hardshrink = defineComposite(
  'hardshrink',
  defineFunction('hardshrink(input, /, lambd)', (input: Tensor, lambd = 0.5): Tensor => {
    requireTensor(input, 'hardshrink');
    return where(input.abs().le(lambd), 0, passingBeyond(input, lambd));
  }),
  { samples },
);

/**
 * 0 within [-lambd, lambd], x moved by lambd towards 0 outside; lambd is 0.5 by default. Shapes:
 * any, kept. Dtypes: floating, kept. Gradient: yes.
 *
 * @throws ArgumentError unless `input` is a tensor
 * @see PyTorch `torch.nn.functional.softshrink`
 */
export const softshrink = defineComposite(
  'softshrink',
  defineFunction('softshrink(input, /, lambd)', (input: Tensor, lambd = 0.5): Tensor => {
    requireTensor(input, 'softshrink');
    requireNumbers('softshrink', input);
    checkNumber('softshrink', 'lambd', lambd, { from: 0 });
    return passingBeyond(input, lambd).sub(input.detach().clamp({ min: -lambd, max: lambd }));
  }),
  { samples },
);

/**
 * x above `threshold`, `value` elsewhere. Shapes: any, kept. Dtypes: any, kept unless `value` is of
 * a higher category. Gradient: yes, 0 elsewhere.
 *
 * @throws ArgumentError unless `input` is a tensor
 * @see PyTorch `torch.nn.functional.threshold`
 */
export const threshold = defineComposite(
  'threshold',
  defineFunction(
    'threshold(input, /, threshold, value)',
    (input: Tensor, threshold: number, value: number): Tensor => {
      requireTensor(input, 'threshold');
      for (const [name, bound] of Object.entries({ threshold, value }))
        checkLimit('threshold', name, bound);
      return where(input.le(threshold), value, input); // NaN is kept
    },
  ),
  { samples: () => [[sampleTensor([3, 4]), 0.1, 5]] },
);

/**
 * x where above 0, weight x elsewhere. Shapes: input `[N, C, ...]`, or `[C]`, or `[]`; weight
 * `[C]`, or `[1]` or `[]` for all channels; the result has the input's. Dtypes: promoted; floating
 * for a gradient. Gradient: both.
 *
 * @throws ShapeError if the weight does not fit the channels; DeviceError for tensors on different
 * devices; ArgumentError unless both are tensors
 * @see PyTorch `torch.nn.functional.prelu`; He et al., arXiv:1502.01852
 */
export const prelu = defineComposite(
  'prelu',
  defineFunction('prelu(input, /, weight)', (input: Tensor, weight: Tensor): Tensor => {
    requireTensor(input, 'prelu');
    requireTensor(weight, 'prelu', 'weight');
    const channelDim = input.ndim > 1 ? 1 : 0;
    const n = weight.numel();
    if (weight.ndim > 1 || (n !== 1 && n !== input.sizes[channelDim])) {
      throw new ShapeError(
        `prelu: a weight of shape ${formatShape(weight.sizes)} does not fit the channels of ` +
          `${formatShape(input.sizes)}`,
        { op: 'prelu' },
      );
    }
    const spread =
      n === 1
        ? weight.reshape([])
        : weight.reshape(input.sizes.map((_, i) => (i === channelDim ? n : 1)));
    const positive = input.gt(0);
    // keeps infinite elements above 0 out of the weight's gradient
    return where(positive, input, where(positive, 0, input).mul(spread));
  }),
  {
    samples: () => [
      [sampleTensor([3, 4]), sampleTensor([4], { seed: 2 })],
      [sampleTensor([5]), sampleTensor([1], { seed: 2 })],
    ],
  },
);

declare module '../core/tensor.js' {
  interface Tensor {
    /** Each element moved into [minVal, maxVal]. The same as {@link hardtanh}. */
    hardtanh: MethodOf<typeof hardtanh>;
    /**
     * {@link hardtanh} in place. @throws ArgumentError if minVal is above maxVal; InPlaceError as
     * {@link Tensor.relu_}
     */
    hardtanh_: MethodOf<typeof hardtanh, this>;
    /** min(max(x, 0), 6). The same as {@link relu6}. */
    relu6(): Tensor;
    /** {@link relu6} in place. @throws InPlaceError as {@link Tensor.relu_} */
    relu6_(): this;
    /** relu6(x + 3) / 6. The same as {@link hardsigmoid}. */
    hardsigmoid(): Tensor;
    /**
     * {@link hardsigmoid} in place. @throws DtypeError for integers and bools; InPlaceError as
     * {@link Tensor.relu_}
     */
    hardsigmoid_(): this;
    /** x relu6(x + 3) / 6. The same as {@link hardswish}. */
    hardswish(): Tensor;
    /**
     * {@link hardswish} in place. @throws DtypeError for integers and bools; InPlaceError as {@link
     * Tensor.relu_}
     */
    hardswish_(): this;
    /** 0 within [-lambd, lambd], x outside. The same as {@link hardshrink}. */
    hardshrink: MethodOf<typeof hardshrink>;
    /**
     * 0 within [-lambd, lambd], moved by lambd towards 0 outside. The same as {@link softshrink}.
     */
    softshrink: MethodOf<typeof softshrink>;
    /** x above `threshold`, `value` elsewhere. The same as {@link threshold}. */
    threshold: MethodOf<typeof threshold>;
    /** x where above 0, weight x elsewhere. The same as {@link prelu}. */
    prelu: MethodOf<typeof prelu>;
  }
}
