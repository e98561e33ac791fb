/**
 * Pointwise ops written in others: logaddexp, hypot, nanToNum, logit, clampMin and their like.
 *
 * Shapes: of the input, or the one that both operands broadcast to. Dtypes: promoted; integers give
 * the default floating dtype where the result is no integer. All throw ShapeError if shapes do not
 * broadcast, DeviceError for two devices, ArgumentError for what is no tensor where one is asked
 * for.
 */
import { bfloat16, float16, float32, float64, getDefaultDtype } from '../core/dtype.js';
import { DtypeError } from '../core/errors.js';
import { checkLimit } from '../core/options.js';
import { broadcastShapes } from '../core/shape.js';
import { defineFunction, type MethodOf } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { softplus } from './activation.js';
import { isclose } from './comparison.js';
import { defineComposite } from './composite.js';
import {
  inFloats,
  operand,
  operands,
  requireNumbers,
  requirePair,
  requireTensor,
  type TensorLike,
} from './operand.js';
import { sub } from './pointwise-binary.js';
import { sampleTensor } from './samples.js';
import { clamp, where } from './where.js';

const one = (low: number, high: number) => () => [
  [sampleTensor([3, 4], { low, high })],
  [sampleTensor([], { low, high })],
];
const two = () => [
  [sampleTensor([3, 4]), sampleTensor([4], { seed: 7 })],
  [sampleTensor([5]), sampleTensor([5], { seed: 7 })],
];

/**
 * The fractional part, with the sign of the element; 0 for integers. Shape and dtype stay.
 * Gradient: yes.
 *
 * @throws DtypeError for bool; ArgumentError for no tensor
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
 * log(x / (1 - x)), the inverse of sigmoid; with `eps` (null), elements are moved into [eps, 1 -
 * eps] first. NaN outside [0, 1]. Dtypes: floating stay, others give the default one. Gradient:
 * yes, NaN outside [0, 1]; with `eps` 0 there.
 *
 * @throws ArgumentError for no tensor
 * @see PyTorch `torch.logit`
 */
export const logit = defineComposite(
  'logit',
  defineFunction('logit(input, /, eps)', (input: Tensor, eps: number | null = null): Tensor => {
    requireTensor(input, 'logit');
    if (eps !== null) checkLimit('logit', 'eps', eps);
    const given = input.dtype.isFloatingPoint ? input : input.to(getDefaultDtype());
    const x = eps === null ? given : given.clamp({ min: eps, max: 1 - eps });
    const log = x.log().sub(x.neg().log1p());
    if (eps !== null || !x.requiresGrad) return log;
    // outside, the slopes of the logarithms are numbers
    return log.mul(where(x.ge(0).logicalAnd(x.le(1)), x.detach().newOnes([]), Number.NaN));
  }),
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
 * @throws ArgumentError for no tensor
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
 * The larger operand plus softplus(beta (smaller - larger)) / beta: smooth on both sides of a tie,
 * so that its gradients of any order hold there. At equal infinities, which have no difference, the
 * gradient is that of the first.
 */
function addExponentials(input: Tensor, other: Tensor, beta: number): Tensor {
  return inFloats(input, other, (x, y) => {
    const first = x.ge(y);
    const [high, low] = [where(first, x, y), where(first, y, x)];
    const apart = where(low.eq(high).logicalAnd(low.isinf()), 0, low.sub(high));
    return high.add(softplus(apart, { beta }));
  });
}

/**
 * log(exp(input) + exp(other)) without overflow. Shapes: broadcast. Dtypes: promoted, integers give
 * the default floating one. Gradient: both; at equal infinities that of the first, where PyTorch
 * gives NaN.
 *
 * @throws ShapeError if shapes do not broadcast; DeviceError for two devices; DtypeError for two
 * bools; ArgumentError for no tensor
 * @see PyTorch `torch.logaddexp`
 */
export const logaddexp = defineComposite(
  'logaddexp',
  (input: Tensor, other: Tensor): Tensor => {
    requirePair(input, other, 'logaddexp');
    requireNumbers('logaddexp', input, other);
    return addExponentials(input, other, 1);
  },
  { inPlace: true, samples: two },
);

/**
 * log2(2^input + 2^other) without overflow. Shapes: broadcast. Dtypes: promoted, integers give the
 * default floating one. Gradient: as {@link logaddexp}.
 *
 * @throws ShapeError if shapes do not broadcast; DeviceError for two devices
 * @see PyTorch `torch.logaddexp2`
 */
export const logaddexp2 = defineComposite(
  'logaddexp2',
  (input: Tensor, other: Tensor): Tensor => {
    requirePair(input, other, 'logaddexp2');
    requireNumbers('logaddexp2', input, other);
    return addExponentials(input, other, Math.LN2);
  },
  { inPlace: true, samples: two },
);

/**
 * The length of the hypotenuse of a right triangle with these legs, without overflow. Shapes:
 * broadcast. Dtypes: promoted, integers give the default floating one. Gradient: both, 0 where both
 * are 0 (PyTorch: NaN).
 *
 * @throws ShapeError if shapes do not broadcast; DeviceError for two devices; ArgumentError for no
 * tensor
 * @see PyTorch `torch.hypot`
 */
export const hypot = defineComposite(
  'hypot',
  (input: Tensor, other: Tensor): Tensor => {
    requirePair(input, other, 'hypot');
    return inFloats(input, other, (x, y) => {
      const infinite = x.isinf().logicalOr(y.isinf());
      const longest = x.detach().abs().maximum(y.detach().abs());
      const zero = longest.eq(0);
      // a constant: the length does not depend on it
      const unit = where(zero.logicalOr(infinite), 1, longest);
      const squares = x.div(unit).square().add(y.div(unit).square());
      const length =
        x.requiresGrad || y.requiresGrad
          ? where(zero, 0, where(zero, 1, squares).sqrt())
          : squares.sqrt();
      // infinite beside NaN too, as in C
      return where(infinite, Number.POSITIVE_INFINITY, length.mul(unit));
    });
  },
  { inPlace: true, samples: two },
);

/**
 * input * log(other), and 0 where input is 0 and other is not NaN; the input may be a number.
 * Shapes: broadcast. Dtypes: promoted, integers give the default floating one. Gradient: both, as
 * in PyTorch log(other) where input is 0; but 0 where both are, or `other` is infinite, not NaN or
 * infinity.
 *
 * @throws ShapeError if shapes do not broadcast; DeviceError for two devices; ArgumentError if
 * `other` is no tensor
 * @see PyTorch `torch.xlogy`
 */
export const xlogy = defineComposite(
  'xlogy',
  (input: TensorLike, other: TensorLike): Tensor => {
    const [first, second] = operands(input, other, 'xlogy');
    broadcastShapes(first.shape, second.shape, 'xlogy');
    return inFloats(first, second, (x, y) => {
      // Only these logarithms are not finite; 0 times the others is 0 by itself, with the right
      // gradient.
      const zero = y.le(0).logicalOr(y.eq(Number.POSITIVE_INFINITY)).logicalAnd(x.eq(0));
      return where(zero, 0, where(zero, 1, y).log().mul(x));
    });
  },
  {
    inPlace: true,
    samples: () => [[sampleTensor([3, 4]), sampleTensor([4], { seed: 7, low: 0.3, high: 2 })]],
  },
);

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
 * @throws ArgumentError for null or no tensor; ShapeError, DeviceError for a tensor as bound
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
 * @throws ArgumentError for null or no tensor; ShapeError, DeviceError for a tensor as bound
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

/**
 * other - alpha * input, with `alpha` 1. Shapes: broadcast. Dtypes: promoted, with alpha. Gradient:
 * both.
 *
 * @throws ShapeError if shapes do not broadcast; DeviceError for two devices; ArgumentError for no
 * tensor
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
 * The tensor itself. Gradient: yes. @throws DtypeError for bool; ArgumentError for no tensor @see
 * PyTorch `torch.positive`
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
    /** The fractional part; the same as {@link frac}. */
    frac(): Tensor;
    /** {@link frac} in place; see {@link Tensor.add_}. */
    frac_(): this;
    /** log(x / (1 - x)); the same as {@link logit}. */
    logit: MethodOf<typeof logit>;
    /** {@link logit} in place; see {@link Tensor.add_}. */
    logit_: MethodOf<typeof logit, this>;
    /** Degrees as radians; the same as {@link deg2rad}. */
    deg2rad(): Tensor;
    /** {@link deg2rad} in place; see {@link Tensor.add_}. */
    deg2rad_(): this;
    /** Radians as degrees; the same as {@link rad2deg}. */
    rad2deg(): Tensor;
    /** {@link rad2deg} in place; see {@link Tensor.add_}. */
    rad2deg_(): this;
    /** NaN and infinities replaced by numbers; the same as {@link nanToNum}. */
    nanToNum: MethodOf<typeof nanToNum>;
    /** {@link nanToNum} in place; see {@link Tensor.add_}. */
    nanToNum_: MethodOf<typeof nanToNum, this>;
    /** log(exp(this) + exp(other)) without overflow; the same as {@link logaddexp}. */
    logaddexp(other: Tensor): Tensor;
    /** {@link logaddexp} in place; see {@link Tensor.add_}. */
    logaddexp_(other: Tensor): this;
    /** log2(2^this + 2^other) without overflow; the same as {@link logaddexp2}. */
    logaddexp2(other: Tensor): Tensor;
    /** {@link logaddexp2} in place; see {@link Tensor.add_}. */
    logaddexp2_(other: Tensor): this;
    /** The length of the hypotenuse; the same as {@link hypot}. */
    hypot(other: Tensor): Tensor;
    /** {@link hypot} in place; see {@link Tensor.add_}. */
    hypot_(other: Tensor): this;
    /** this * log(other), 0 where this is 0; the same as {@link xlogy}. */
    xlogy(other: TensorLike): Tensor;
    /** {@link xlogy} in place; see {@link Tensor.add_}. */
    xlogy_(other: TensorLike): this;
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
    /** other - alpha * this; the same as {@link rsub}. */
    rsub: MethodOf<typeof rsub>;
    /** The tensor itself; the same as {@link positive}. */
    positive(): Tensor;
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
