/**
 * The larger or smaller of two, written in other ops: fmax, fmin, clampMin, clampMax.
 */

import { defineFunction, type MethodOf } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { two } from './arithmetic.js';
import { clamp } from './clamp.js';
import { defineComposite } from './composite.js';
import { operand, requirePair, requireTensor, type TensorLike } from './operand.js';
import { sampleTensor } from './samples.js';
import { where } from './where.js';

/**
 * The larger of two elements; a number wins over NaN. Shapes: broadcast. Dtypes: promoted.
 * Gradient: both, on ties the first.
 *
 * @throws ShapeError if shapes do not broadcast; DeviceError for two devices
 * @see PyTorch `torch.fmax`
 */
export const fmax = defineComposite(
  'fmax',
  (input: Tensor, other: Tensor): Tensor => {
    requirePair(input, other, 'fmax');
    return where(input.ge(other).logicalOr(other.isnan()), input, other);
  },
  { samples: two },
);

/**
 * The smaller of two elements; a number wins over NaN. Shapes: broadcast. Dtypes: promoted.
 * Gradient: both, on ties the first.
 *
 * @throws ShapeError if shapes do not broadcast; DeviceError for two devices
 * @see PyTorch `torch.fmin`
 */
export const fmin = defineComposite(
  'fmin',
  (input: Tensor, other: Tensor): Tensor => {
    requirePair(input, other, 'fmin');
    return where(input.le(other).logicalOr(other.isnan()), input, other);
  },
  { samples: two },
);

/**
 * Each element, or `min` where it is smaller: {@link clamp} with one bound, a number or a tensor
 * that broadcasts. Dtypes: promoted for integers and tensors. Gradient: yes, and of a tensor as
 * bound.
 *
 * @throws ArgumentError for null or a value that is not a tensor; ShapeError, DeviceError for a
 * tensor as bound
 * @see PyTorch `torch.clamp_min`
 */
export const clampMin = defineComposite(
  'clampMin',
  defineFunction('clampMin(input, /, min)', (input: Tensor, min: TensorLike): Tensor => {
    requireTensor(input, 'clampMin');
    requirePair(input, operand(min, input.device, 'clampMin'), 'clampMin', 'min');
    return clamp(input, { min });
  }),
  {
    inPlace: true,
    samples: () => [[sampleTensor([3, 4]), -0.5]],
  },
);

/**
 * Each element, or `max` where it is larger: {@link clamp} with one bound, a number or a tensor
 * that broadcasts. Dtypes: promoted for integers and tensors. Gradient: yes, and of a tensor as
 * bound.
 *
 * @throws ArgumentError for null or a value that is not a tensor; ShapeError, DeviceError for a
 * tensor as bound
 * @see PyTorch `torch.clamp_max`
 */
export const clampMax = defineComposite(
  'clampMax',
  defineFunction('clampMax(input, /, max)', (input: Tensor, max: TensorLike): Tensor => {
    requireTensor(input, 'clampMax');
    requirePair(input, operand(max, input.device, 'clampMax'), 'clampMax', 'max');
    return clamp(input, { max });
  }),
  {
    inPlace: true,
    samples: () => [[sampleTensor([3, 4]), 0.5]],
  },
);

declare module '../core/tensor.js' {
  interface Tensor {
    /** The larger of two elements; a number wins over NaN; the same as {@link fmax}. */
    fmax(other: Tensor): Tensor;
    /** The smaller of two elements; a number wins over NaN; the same as {@link fmin}. */
    fmin(other: Tensor): Tensor;
    /** Each element, or `min` where it is smaller; the same as {@link clampMin}. */
    clampMin: MethodOf<typeof clampMin>;
    /** {@link clampMin} in place; see {@link Tensor.add_}. */
    clampMin_: MethodOf<typeof clampMin, this>;
    /** Each element, or `max` where it is larger; the same as {@link clampMax}. */
    clampMax: MethodOf<typeof clampMax>;
    /** {@link clampMax} in place; see {@link Tensor.add_}. */
    clampMax_: MethodOf<typeof clampMax, this>;
  }
}
