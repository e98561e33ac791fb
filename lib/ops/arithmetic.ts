/**
 * Arithmetic written in other ops: frac, deg2rad, rad2deg, rsub, positive.
 */

import { DtypeError } from '../core/errors.js';
import { defineFunction, type MethodOf } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { defineComposite } from './composite.js';
import { operand, requireNumbers, requirePair, requireTensor, type TensorLike } from './operand.js';
import { sub } from './pointwise-binary.js';
import { sampleTensor } from './samples.js';

/** @internal */
export const one = (low: number, high: number) => () => [
  [sampleTensor([3, 4], { low, high })],
  [sampleTensor([], { low, high })],
];
/** @internal */
export const two = () => [
  [sampleTensor([3, 4]), sampleTensor([4], { seed: 7 })],
  [sampleTensor([5]), sampleTensor([5], { seed: 7 })],
];

/**
 * The fractional part, with the sign of the element; 0 for integers. Shape and dtype stay.
 * Gradient: yes.
 *
 * @throws DtypeError for bool; ArgumentError for a value that is not a tensor
 * @see PyTorch `torch.frac`
 */
export const frac = defineComposite(
  'frac',
  (input: Tensor): Tensor => {
    requireTensor(input, 'frac');
    requireNumbers('frac', input);
    return input.sub(input.trunc());
  },
  { inPlace: true, samples: one(0.1, 0.9) },
);

/**
 * Degrees as radians. Dtypes: floating stay, others give the default one. Gradient: yes. @throws
 * ArgumentError @see PyTorch `torch.deg2rad`
 */
export const deg2rad = defineComposite(
  'deg2rad',
  (input: Tensor): Tensor => {
    requireTensor(input, 'deg2rad');
    return input.mul(Math.PI / 180);
  },
  { inPlace: true, samples: one(-90, 90) },
);

/**
 * Radians as degrees. Dtypes: floating stay, others give the default one. Gradient: yes. @throws
 * ArgumentError @see PyTorch `torch.rad2deg`
 */
export const rad2deg = defineComposite(
  'rad2deg',
  (input: Tensor): Tensor => {
    requireTensor(input, 'rad2deg');
    return input.mul(180 / Math.PI);
  },
  { inPlace: true, samples: one(-2, 2) },
);

/**
 * other - alpha * input, with `alpha` 1. Shapes: broadcast. Dtypes: promoted, with alpha. Gradient:
 * both.
 *
 * @throws ShapeError if shapes do not broadcast; DeviceError for two devices; ArgumentError for a
 * value that is not a tensor
 * @see PyTorch `torch.rsub`
 */
export const rsub = defineComposite(
  'rsub',
  defineFunction(
    'rsub(input, /, other, *, alpha)',
    (input: Tensor, other: TensorLike, { alpha = 1 }: { alpha?: number } = {}): Tensor => {
      requireTensor(input, 'rsub');
      const minuend = operand(other, input.device, 'rsub');
      requirePair(input, minuend, 'rsub');
      return sub(minuend, input, alpha === 1 ? undefined : { alpha });
    },
  ),
  { samples: () => [[sampleTensor([3, 4]), 2, { alpha: 3 }]] },
);

/**
 * The tensor itself. Gradient: yes. @throws DtypeError for bool; ArgumentError for a value that is
 * not a tensor @see PyTorch `torch.positive`
 */
export const positive = defineComposite(
  'positive',
  (input: Tensor): Tensor => {
    requireTensor(input, 'positive');
    if (input.dtype.category === 0)
      throw new DtypeError('positive: a bool tensor has no sign', { op: 'positive' });
    return input;
  },
  { samples: one(-2, 2) },
);

declare module '../core/tensor.js' {
  interface Tensor {
    /** The fractional part; the same as {@link frac}. */
    frac(): Tensor;
    /** {@link frac} in place; see {@link Tensor.add_}. */
    frac_(): this;
    /** Degrees as radians; the same as {@link deg2rad}. */
    deg2rad(): Tensor;
    /** {@link deg2rad} in place; see {@link Tensor.add_}. */
    deg2rad_(): this;
    /** Radians as degrees; the same as {@link rad2deg}. */
    rad2deg(): Tensor;
    /** {@link rad2deg} in place; see {@link Tensor.add_}. */
    rad2deg_(): this;
    /** other - alpha * this; the same as {@link rsub}. */
    rsub: MethodOf<typeof rsub>;
    /** The tensor itself; the same as {@link positive}. */
    positive(): Tensor;
  }
}
