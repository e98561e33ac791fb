/**
 * Losses of elements: mseLoss, l1Loss, smoothL1Loss, huberLoss, klDiv and the binary cross
 * entropies.
 */

import { autocastOperands } from '../core/autocast.js';
import { checkNumber, checkOneOf } from '../core/options.js';
import { broadcastShapes } from '../core/shape.js';
import { defineFunction, type MethodOf, underName } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { softplus } from './activation.js';
import { defineComposite } from './composite.js';
import type { crossEntropy, nllLoss } from './cross-entropy.js';
import {
  checkPair,
  type LossOptions,
  type LossReduction,
  reduceElements,
  requireSameShape,
  warnOfBroadcast,
} from './loss-checks.js';
import { requireNumbers, requirePair } from './operand.js';
import { sampleTensor } from './samples.js';
import { where } from './where.js';

/**
 * Broadcasts both to the shape of the loss, so that a tensor without dims counts for promotion as
 * one with dims does. @internal
 */
export function spread(input: Tensor, target: Tensor): readonly [Tensor, Tensor] {
  if (input.dtype === target.dtype) return [input, target];
  const shape = broadcastShapes(input.sizes, target.sizes, 'loss');
  return [input.expand(shape), target.expand(shape)];
}

/**
 * Mean of squared differences. Shapes: broadcast; the result is `[]`, or the broadcast shape for
 * `'none'`. Dtypes: promoted; floating for the mean. Gradient: both.
 *
 * @throws ShapeError if the shapes do not broadcast; DtypeError for the mean of integers;
 * DeviceError for tensors on different devices; ArgumentError for an unknown reduction, or a value
 * that is not a tensor
 * @see PyTorch `torch.nn.functional.mse_loss`
 * @example
 * mseLoss(tensor([1, 2]), tensor([1, 4])); // 2
 */
export const mseLoss = underName(
  'mseLoss',
  defineFunction(
    'mseLoss(input, /, target, *, reduction)',
    (input: Tensor, target: Tensor, { reduction = 'mean' }: LossOptions = {}): Tensor => {
      checkPair('mseLoss', input, target, reduction);
      warnOfBroadcast('mseLoss', input, target);
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
      warnOfBroadcast('l1Loss', input, target);
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
 * tensors on different devices; ArgumentError for an unknown reduction, or a value that is not a
 * tensor
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
      // (1 - y) x + log(1 + exp(-x)) for x >= 0, else log(1 + exp(x)) - y x: no exponential is
      // large, and neither gradient cancels.
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

/** @internal */
export const pair = () => [sampleTensor([3, 4]), sampleTensor([3, 4], { seed: 3 })];

defineComposite('mseLoss', mseLoss, { samples: () => [pair()] });
defineComposite('l1Loss', l1Loss, { samples: () => [pair()] });
defineComposite('binaryCrossEntropyWithLogits', binaryCrossEntropyWithLogits, {
  method: false,
  samples: () => [[sampleTensor([3, 4]), sampleTensor([3, 4], { low: 0, high: 1 })]],
});

/**
 * 0.5 d^2 / beta where the absolute difference d is below `beta` (1 by default), d - beta / 2
 * elsewhere; the absolute difference for beta 0. Shapes: broadcast; the result is `[]`, or the
 * broadcast shape for `'none'`. Dtypes: floating, promoted. Gradient: both.
 *
 * @throws ShapeError if the shapes do not broadcast; DeviceError for tensors on different devices;
 * ArgumentError for a negative beta, an unknown reduction, or a value that is not a tensor
 * @see PyTorch `torch.nn.functional.smooth_l1_loss`; Girshick, arXiv:1504.08083
 */
export const smoothL1Loss = defineComposite(
  'smoothL1Loss',
  defineFunction(
    'smoothL1Loss(input, /, target, *, reduction, beta)',
    (
      input: Tensor,
      target: Tensor,
      { reduction = 'mean', beta = 1 }: LossOptions & { beta?: number } = {},
    ): Tensor => {
      checkPair('smoothL1Loss', input, target, reduction);
      warnOfBroadcast('smoothL1Loss', input, target);
      const [x, y] = spread(...autocastOperands('float32 on cuda', [input, target] as const));
      checkNumber('smoothL1Loss', 'beta', beta, { from: 0 });
      if (beta === 0) return l1Loss(x, y, { reduction });
      const difference = x.sub(y);
      const distance = difference.abs();
      const beyond = distance.ge(beta);
      // an infinite square would make the gradient beyond beta NaN
      const near = where(beyond, 0, difference)
        .square() // of the difference, whose slope at 0 is 1
        .mul(0.5 / beta);
      return reduceElements(where(beyond, distance.sub(beta / 2), near), reduction);
    },
  ),
  {
    method: false,
    samples: () => [pair(), [...pair(), { beta: 0.5, reduction: 'sum' }]],
  },
);

/**
 * 0.5 d^2 where the absolute difference d is below `delta` (1 by default), delta (d - delta / 2)
 * elsewhere. Shapes and dtypes as {@link smoothL1Loss}. Gradient: both.
 *
 * @throws ArgumentError unless delta is above 0; else as {@link smoothL1Loss}
 * @see PyTorch `torch.nn.functional.huber_loss`
 */
export const huberLoss = defineComposite(
  'huberLoss',
  defineFunction(
    'huberLoss(input, /, target, reduction, delta)',
    (input: Tensor, target: Tensor, reduction: LossReduction = 'mean', delta = 1): Tensor => {
      checkPair('huberLoss', input, target, reduction);
      warnOfBroadcast('huberLoss', input, target);
      checkNumber('huberLoss', 'delta', delta, { above: 0 });
      return smoothL1Loss(input, target, { reduction, beta: delta }).mul(delta);
    },
  ),
  {
    method: false,
    samples: () => [[...pair(), { delta: 0.7 }]],
  },
);

/** Options of {@link klDiv}. */
export interface KlDivOptions {
  /**
   * `'batchmean'` is the divergence by its definition: the sum over the first size of the input.
   * `'mean'`, over all elements, by default.
   */
  reduction?: LossReduction | 'batchmean';
  /** The target holds log probabilities. False by default. */
  logTarget?: boolean;
}

/**
 * The Kullback-Leibler divergence of a distribution, given by log probabilities, from a target:
 * target (log target - input), 0 where the target is 0. Shapes: broadcast; the result is `[]`, or
 * the broadcast shape for `'none'`. Dtypes: floating, promoted. Gradient: both; of a target of 0 it
 * is finite, where PyTorch gives NaN.
 *
 * @throws ShapeError if the shapes do not broadcast; DeviceError for tensors on different devices;
 * ArgumentError for an unknown reduction, or a value that is not a tensor
 * @see PyTorch `torch.nn.functional.kl_div`
 */
export const klDiv = defineComposite(
  'klDiv',
  defineFunction(
    'klDiv(input, /, target, *, reduction, logTarget)',
    (
      input: Tensor,
      target: Tensor,
      { reduction = 'mean', logTarget = false }: KlDivOptions = {},
    ): Tensor => {
      checkOneOf('klDiv', 'reduction', reduction, ['none', 'mean', 'sum', 'batchmean']);
      checkPair('klDiv', input, target, reduction === 'batchmean' ? 'sum' : reduction);
      const [x, y] = autocastOperands('float32', [input, target] as const);
      const losses = logTarget ? y.exp().mul(y.sub(x)) : y.xlogy(y).sub(y.mul(x));
      return reduction === 'batchmean'
        ? losses.sum().div(x.sizes[0] ?? 1)
        : reduceElements(losses, reduction);
    },
  ),
  {
    method: false,
    samples: () => [
      [
        sampleTensor([3, 4]),
        sampleTensor([3, 4], { low: 0.1, high: 1, seed: 3 }),
        { reduction: 'batchmean' },
      ],
      [...pair(), { logTarget: true }],
    ],
  },
);

/** Options of {@link binaryCrossEntropy}. */
export interface BinaryCrossEntropyOptions extends LossOptions {
  /** A factor for each element; broadcast. None by default. */
  weight?: Tensor | null;
}

/**
 * The logarithm, at least -100, with a slope of at most 1e12, so that the gradient at 0 is finite
 * and not 0.
 */
function boundedLog(t: Tensor): Tensor {
  const value = t.log().clamp({ min: -100 });
  if (!t.requiresGrad) return value;
  const least = 1e-12;
  const below = t.sub(t.detach()).div(least).add(value.detach());
  return where(t.ge(least), t.clamp({ min: least }).log(), below);
}

/**
 * Binary cross entropy of probabilities and labels, both in [0, 1]; logarithms are at least -100.
 * Shapes: broadcast; the result is `[]`, or the broadcast shape for `'none'`. Dtypes: floating,
 * promoted. Gradient: both. For logits, {@link binaryCrossEntropyWithLogits} is safer.
 *
 * @throws ShapeError if the shapes do not broadcast; DtypeError for bools; DeviceError for tensors
 * on different devices; ArgumentError for an unknown reduction, or a value that is not a tensor
 * @see PyTorch `torch.nn.functional.binary_cross_entropy`
 */
export const binaryCrossEntropy = defineComposite(
  'binaryCrossEntropy',
  defineFunction(
    'binaryCrossEntropy(input, /, target, weight, *, reduction)',
    (
      input: Tensor,
      target: Tensor,
      weight: Tensor | null = null,
      { reduction = 'mean' }: LossOptions = {},
    ): Tensor => {
      checkPair('binaryCrossEntropy', input, target, reduction);
      requireSameShape('binaryCrossEntropy', input, target);
      for (const t of [input, target]) requireNumbers('binaryCrossEntropy', t);
      if (weight !== null) requirePair(input, weight, 'binaryCrossEntropy', 'weight');
      const losses = target
        .mul(boundedLog(input))
        .add(
          target
            .neg()
            .add(1)
            .mul(boundedLog(input.neg().add(1))),
        )
        .neg();
      return reduceElements(weight === null ? losses : losses.mul(weight), reduction);
    },
  ),
  {
    method: false,
    samples: () => [
      [
        sampleTensor([3, 4], { low: 0.1, high: 0.9 }),
        sampleTensor([3, 4], { low: 0, high: 1, seed: 3 }),
      ],
    ],
  },
);

declare module '../core/tensor.js' {
  interface Tensor {
    /** Mean of squared differences. The same as {@link mseLoss}. */
    mseLoss: MethodOf<typeof mseLoss>;
    /** Mean of absolute differences. The same as {@link l1Loss}. */
    l1Loss: MethodOf<typeof l1Loss>;
    /**
     * Cross entropy of these logits and class indices, or probabilities. The same as {@link
     * crossEntropy}.
     */
    crossEntropy: MethodOf<typeof crossEntropy>;
    /**
     * Negative log likelihood of these log probabilities and class indices. The same as {@link
     * nllLoss}.
     */
    nllLoss: MethodOf<typeof nllLoss>;
  }
}
