/** Losses of two tensors of one shape: mseLoss, l1Loss, binaryCrossEntropyWithLogits. */

import { autocastOperands } from '../core/autocast.js';
import { broadcastShapes } from '../core/shape.js';
import { defineFunction, underName } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { softplus } from './activation.js';
import { checkPair, type LossOptions, reduceElements, requireSameShape } from './loss-checks.js';
import { requireNumbers, requirePair } from './operand.js';
import { where } from './where.js';

/**
 * Both in the shape of the loss, so that a tensor without dims has as much say in its dtype as one
 * with dims. @internal
 */
export function spread(input: Tensor, target: Tensor): readonly [Tensor, Tensor] {
  if (input.dtype === target.dtype) return [input, target];
  const shape = broadcastShapes(input.shape, target.shape, 'loss');
  return [input.expand(shape), target.expand(shape)];
}

/**
 * Mean of squared differences. Shapes: broadcast; the result is `[]`, or the broadcast shape for
 * `'none'`. Dtypes: promoted; floating for the mean. Gradient: both.
 *
 * @throws ShapeError if the shapes do not broadcast; DtypeError for the mean of integers;
 * DeviceError for tensors on different devices; ArgumentError for an unknown reduction, or what is
 * no tensor
 * @see PyTorch `torch.nn.functional.mse_loss`
 */
export const mseLoss = underName(
  'mseLoss',
  defineFunction(
    'mseLoss(input, /, target, *, reduction)',
    (input: Tensor, target: Tensor, { reduction = 'mean' }: LossOptions = {}): Tensor => {
      checkPair('mseLoss', input, target, reduction);
      const [x, y] = spread(...autocastOperands('float32', [input, target] as const));
      return reduceElements(x.sub(y).square(), reduction);
    },
  ),
);

/**
 * Mean of absolute differences. Shapes, dtypes and errors as {@link mseLoss}. Gradient: both, 0
 * where they are equal.
 *
 * @see PyTorch `torch.nn.functional.l1_loss`
 */
export const l1Loss = underName(
  'l1Loss',
  defineFunction(
    'l1Loss(input, /, target, *, reduction)',
    (input: Tensor, target: Tensor, { reduction = 'mean' }: LossOptions = {}): Tensor => {
      checkPair('l1Loss', input, target, reduction);
      const [x, y] = spread(...autocastOperands('float32 on cuda', [input, target] as const));
      return reduceElements(x.sub(y).abs(), reduction);
    },
  ),
);

/** Options of {@link binaryCrossEntropyWithLogits}. */
export interface LogitsLossOptions extends LossOptions {
  /** A factor for each element; broadcast. None by default. */
  weight?: Tensor | null;
  /**
   * A factor for the part of the loss where the label is 1, such as one for each class; broadcast.
   * None by default.
   */
  posWeight?: Tensor | null;
}

/**
 * Binary cross entropy of logits and labels in [0, 1], without overflow; the sigmoid is included.
 * Shapes: broadcast; the result is `[]`, or the broadcast shape for `'none'`. Dtypes: floating,
 * promoted. Gradient: logits, labels and factors.
 *
 * @throws ShapeError if the shapes do not broadcast; DtypeError for bool labels; DeviceError for
 * tensors on different devices; ArgumentError for an unknown reduction, or what is no tensor
 * @see PyTorch `torch.nn.functional.binary_cross_entropy_with_logits`
 */
export const binaryCrossEntropyWithLogits = underName(
  'binaryCrossEntropyWithLogits',
  defineFunction(
    'binaryCrossEntropyWithLogits(input, /, target, weight, *, reduction, posWeight)',
    (
      logits: Tensor,
      target: Tensor,
      weight: Tensor | null = null,
      { reduction = 'mean', posWeight = null }: Omit<LogitsLossOptions, 'weight'> = {},
    ): Tensor => {
      checkPair('binaryCrossEntropyWithLogits', logits, target, reduction);
      for (const t of [logits, target]) requireNumbers('binaryCrossEntropyWithLogits', t);
      for (const [name, t] of Object.entries({ weight, posWeight }))
        if (t !== null) requirePair(target, t, 'binaryCrossEntropyWithLogits', name);
      requireSameShape('binaryCrossEntropyWithLogits', logits, target);
      const [input, labels] = autocastOperands('float32', [logits, target] as const);
      // (1 - y) x + log(1 + exp(-x)) for x >= 0, else log(1 + exp(x)) - y x: no exponential is large,
      // and the gradient of neither side cancels.
      const positive = input.ge(0);
      const logSum = softplus(where(positive, input.neg(), input));
      const losses =
        posWeight === null
          ? // of bytes, 0 - 1 would wrap around
            positive.to(input.dtype).sub(labels).mul(input).add(logSum)
          : where(positive, labels.neg().add(1), labels.mul(posWeight).neg())
              .mul(input)
              .add(posWeight.sub(1).mul(labels).add(1).mul(logSum));
      return reduceElements(weight === null ? losses : losses.mul(weight), reduction);
    },
  ),
);
