/**
 * Logarithms and roots without overflow, written in other ops: logit, logaddexp, logaddexp2, hypot,
 * xlogy. Shapes: broadcast. Dtypes: promoted to floating ones. Gradient: yes.
 */

import { getDefaultDtype } from '../core/dtype.js';
import { checkLimit } from '../core/options.js';
import { broadcastShapes } from '../core/shape.js';
import { defineFunction, type MethodOf } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { softplus } from './activation.js';
import { one, two } from './arithmetic.js';
import { defineComposite } from './composite.js';
import {
  inFloats,
  operands,
  requireNumbers,
  requirePair,
  requireTensor,
  type TensorLike,
} from './operand.js';
import { sampleTensor } from './samples.js';
import { where } from './where.js';

/**
 * log(x / (1 - x)), the inverse of sigmoid; with `eps` (null), elements are moved into [eps, 1 -
 * eps] first. NaN outside [0, 1]. Dtypes: floating stay, others give the default one. Gradient:
 * yes, NaN outside [0, 1]; with `eps` 0 there.
 *
 * @throws ArgumentError for a value that is not a tensor
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
    // outside [0, 1] the slopes of the logarithms would be finite
    return log.mul(where(x.ge(0).logicalAnd(x.le(1)), x.detach().newOnes([]), Number.NaN));
  }),
  { inPlace: true, samples: one(0.1, 0.9) },
);

/**
 * The larger operand plus softplus(beta (smaller - larger)) / beta: smooth at ties, so that its
 * gradients of any order are right there. At equal infinities, whose difference is NaN, the first
 * gets the gradient.
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
 * bools; ArgumentError for a value that is not a tensor
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
 * @throws ShapeError if shapes do not broadcast; DeviceError for two devices; ArgumentError for a
 * value that is not a tensor
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
      // a constant, because the length does not depend on it
      const unit = where(zero.logicalOr(infinite), 1, longest);
      const squares = x.div(unit).square().add(y.div(unit).square());
      const length =
        x.requiresGrad || y.requiresGrad
          ? where(zero, 0, where(zero, 1, squares).sqrt())
          : squares.sqrt();
      // infinite also if the other is NaN, as in C
      return where(infinite, Number.POSITIVE_INFINITY, length.mul(unit));
    });
  },
  { inPlace: true, samples: two },
);

/**
 * input * log(other), and 0 where input is 0 and other is not NaN; the input may be a number.
 * Shapes: broadcast. Dtypes: promoted, integers give the default floating one. Gradient: both, as
 * in PyTorch log(other) where input is 0; but 0, not NaN or infinity, if both are 0 or `other` is
 * infinite.
 *
 * @throws ShapeError if shapes do not broadcast; DeviceError for two devices; ArgumentError if
 * `other` is not a tensor
 * @see PyTorch `torch.xlogy`
 */
export const xlogy = defineComposite(
  'xlogy',
  (input: TensorLike, other: TensorLike): Tensor => {
    const [first, second] = operands(input, other, 'xlogy');
    broadcastShapes(first.sizes, second.sizes, 'xlogy');
    return inFloats(first, second, (x, y) => {
      // Only these logarithms are infinite or NaN; for the others 0 times the logarithm is 0 with
      // the right gradient.
      const zero = y.le(0).logicalOr(y.eq(Number.POSITIVE_INFINITY)).logicalAnd(x.eq(0));
      return where(zero, 0, where(zero, 1, y).log().mul(x));
    });
  },
  {
    inPlace: true,
    samples: () => [[sampleTensor([3, 4]), sampleTensor([4], { seed: 7, low: 0.3, high: 2 })]],
  },
);

declare module '../core/tensor.js' {
  interface Tensor {
    /** log(x / (1 - x)); the same as {@link logit}. */
    logit: MethodOf<typeof logit>;
    /** {@link logit} in place; see {@link Tensor.add_}. */
    logit_: MethodOf<typeof logit, this>;
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
  }
}
