/**
 * Infinities, NaN and signs, written in other ops: nanToNum, isposinf, isneginf, heaviside,
 * isclose.
 */

import { bfloat16, float16, float32, float64 } from '../core/dtype.js';
import { DtypeError } from '../core/errors.js';
import { defineFunction, type MethodOf } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { one, two } from './arithmetic.js';
import { isclose } from './comparison.js';
import { defineComposite } from './composite.js';
import { requirePair, requireTensor } from './operand.js';
import { sampleTensor } from './samples.js';
import { where } from './where.js';

const largest = new Map([
  [float16, 65504],
  [bfloat16, 2 ** 127 * (2 - 2 ** -7)],
  [float32, 2 ** 127 * (2 - 2 ** -23)],
  [float64, Number.MAX_VALUE],
]);

/**
 * NaN and infinities replaced by numbers: `nan` (0), `posinf` (the largest number of the dtype) and
 * `neginf` (the lowest); integers and bools are copied. Shape and dtype stay. Gradient: yes, 0
 * where an element was replaced.
 *
 * @throws ArgumentError for a value that is not a tensor
 * @see PyTorch `torch.nan_to_num`
 */
export const nanToNum = defineComposite(
  'nanToNum',
  defineFunction(
    'nanToNum(input, /, nan, posinf, neginf)',
    (
      input: Tensor,
      nan = 0,
      posinf: number | null = null,
      neginf: number | null = null,
    ): Tensor => {
      requireTensor(input, 'nanToNum');
      const limit = largest.get(input.dtype);
      if (limit === undefined) return input.clone();
      const high = where(input.eq(Number.POSITIVE_INFINITY), posinf ?? limit, input);
      const low = where(input.eq(Number.NEGATIVE_INFINITY), neginf ?? -limit, high);
      return where(input.isnan(), nan, low);
    },
  ),
  { inPlace: true, samples: one(-2, 2) },
);

/**
 * Whether each element is infinity, as bool; never for integers. Gradient: none. @see PyTorch
 * `torch.isposinf`
 */
export const isposinf = defineComposite(
  'isposinf',
  (input: Tensor): Tensor => {
    requireTensor(input, 'isposinf');
    return input.eq(Number.POSITIVE_INFINITY);
  },
  { samples: one(-2, 2) },
);

/**
 * Whether each element is minus infinity, as bool; never for integers. Gradient: none. @see PyTorch
 * `torch.isneginf`
 */
export const isneginf = defineComposite(
  'isneginf',
  (input: Tensor): Tensor => {
    requireTensor(input, 'isneginf');
    return input.eq(Number.NEGATIVE_INFINITY);
  },
  { samples: one(-2, 2) },
);

/**
 * 0 below 0, 1 above it, and `values` at it; 0 for NaN. Shapes: broadcast. Dtypes: as `values`.
 * Gradient: values.
 *
 * @throws ShapeError if shapes do not broadcast; DeviceError for two devices
 * @see PyTorch `torch.heaviside`
 */
export const heaviside = defineComposite(
  'heaviside',
  defineFunction('heaviside(input, /, values)', (input: Tensor, values: Tensor): Tensor => {
    requirePair(input, values, 'heaviside', 'values');
    if (input.dtype !== values.dtype)
      throw new DtypeError(
        `heaviside: expected equal dtypes, got ${input.dtype.name} and ${values.dtype.name}`,
        { op: 'heaviside' },
      );
    return where(input.eq(0), values, input.gt(0).to(values.dtype));
  }),
  {
    inPlace: true,
    samples: () => [[sampleTensor([3, 4]).detach(), sampleTensor([4], { seed: 3 })]],
  },
);

defineComposite('isclose', isclose, { samples: two });

declare module '../core/tensor.js' {
  interface Tensor {
    /** NaN and infinities replaced by numbers; the same as {@link nanToNum}. */
    nanToNum: MethodOf<typeof nanToNum>;
    /** {@link nanToNum} in place; see {@link Tensor.add_}. */
    nanToNum_: MethodOf<typeof nanToNum, this>;
    /** Whether each element is infinity; the same as {@link isposinf}. */
    isposinf(): Tensor;
    /** Whether each element is minus infinity; the same as {@link isneginf}. */
    isneginf(): Tensor;
    /** 0 below 0, 1 above it, `values` at it; the same as {@link heaviside}. */
    heaviside: MethodOf<typeof heaviside>;
    /** {@link heaviside} in place; see {@link Tensor.add_}. */
    heaviside_: MethodOf<typeof heaviside, this>;
    /** Whether elements are close; the same as {@link isclose}. */
    isclose: MethodOf<typeof isclose>;
  }
}
