/**
 * Losses written in other ops: smoothL1Loss, huberLoss, klDiv, binaryCrossEntropy and margin
 * losses.
 */

import { autocastOperands } from '../core/autocast.js';
import { int64 } from '../core/dtype.js';
import { ArgumentError } from '../core/errors.js';
import { checkOneOf } from '../core/options.js';
import { broadcastShapes, type Shape } from '../core/shape.js';
import { defineFunction, type MethodOf } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { defineComposite } from './composite.js';
import {
  binaryCrossEntropyWithLogits,
  crossEntropy,
  l1Loss,
  mseLoss,
  nllLoss,
  spread,
} from './loss.js';
import {
  checkPair,
  type LossOptions,
  type LossReduction,
  reduceElements,
  requireSameShape,
} from './loss-checks.js';
import { requireFloating, requireNumbers, requirePair, requireTensor } from './operand.js';
import { sampleTensor } from './samples.js';
import { where } from './where.js';

const pair = () => [sampleTensor([3, 4]), sampleTensor([3, 4], { seed: 3 })];

defineComposite('mseLoss', mseLoss, { samples: () => [pair()] });
defineComposite('l1Loss', l1Loss, { samples: () => [pair()] });
defineComposite('crossEntropy', crossEntropy, {
  samples: () => [[sampleTensor([3, 4]), sampleTensor([3], { dtype: int64, low: 0, high: 4 })]],
});
defineComposite('nllLoss', nllLoss, {
  samples: () => [[sampleTensor([3, 4]), sampleTensor([3], { dtype: int64, low: 0, high: 4 })]],
});
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
 * ArgumentError for a negative beta, an unknown reduction, or what is no tensor
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
      const [x, y] = spread(...autocastOperands('float32 on cuda', [input, target] as const));
      if (beta < 0)
        throw new ArgumentError(`smoothL1Loss: beta must not be negative, got ${beta}`, {
          op: 'smoothL1Loss',
          beta,
        });
      if (beta === 0) return l1Loss(x, y, { reduction });
      const difference = x.sub(y);
      const distance = difference.abs();
      const far = distance.ge(beta);
      // an infinite square would spoil the gradient of what is far
      const near = where(far, 0, difference)
        .square() // of the difference, whose slope at 0 is 1
        .mul(0.5 / beta);
      return reduceElements(where(far, distance.sub(beta / 2), near), reduction);
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
      if (!(delta > 0))
        throw new ArgumentError(`huberLoss: delta must be above 0, got ${delta}`, {
          op: 'huberLoss',
          delta,
        });
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
 * ArgumentError for an unknown reduction, or what is no tensor
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
        ? losses.sum().div(x.shape[0] ?? 1)
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

/** The logarithm, at least -100, with a slope of at most 1e12: finite at 0, and not lost there. */
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
 * on different devices; ArgumentError for an unknown reduction, or what is no tensor
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

/** Options of losses with a margin. */
export interface MarginOptions extends LossOptions {
  /**
   * By how much the one must beat the other for a loss of 0. Default: 1 for `tripletMarginLoss`,
   * else 0.
   */
  margin?: number;
}

/**
 * max(0, -target (input1 - input2) + margin): target 1 says that the first should be larger, -1 the
 * second. Shapes: broadcast; the result is `[]`, or the broadcast shape for `'none'`. Dtypes:
 * promoted; floating for the mean. Gradient: all.
 *
 * @throws ShapeError if the shapes do not broadcast; DtypeError for the mean of integers;
 * DeviceError for tensors on different devices; ArgumentError for an unknown reduction, or inputs
 * that are no tensors
 * @see PyTorch `torch.nn.functional.margin_ranking_loss`
 */
export const marginRankingLoss = defineComposite(
  'marginRankingLoss',
  defineFunction(
    'marginRankingLoss(input1, /, input2, target, margin, *, reduction)',
    (
      input1: Tensor,
      input2: Tensor,
      target: Tensor,
      margin = 0,
      { reduction = 'mean' }: LossOptions = {},
    ): Tensor => {
      checkPair('marginRankingLoss', input1, input2, reduction, 'input2');
      requireTensor(target, 'marginRankingLoss', 'target');
      broadcastShapes(
        broadcastShapes(input1.shape, input2.shape, 'marginRankingLoss'),
        target.shape,
        'marginRankingLoss',
      );
      return reduceElements(
        input1.sub(input2).mul(target).neg().add(margin).clamp({ min: 0 }),
        reduction,
      );
    },
  ),
  {
    method: false,
    samples: () => [[...pair(), sampleTensor([3, 4], { seed: 5 }).sign().detach()]],
  },
);

/**
 * 1 - cos of pairs of vectors with target 1, max(0, cos - margin) of those with -1. Shapes: inputs
 * `[N, D]` or `[D]`, target `[N]` or `[]`; the result is `[]`, or the target's shape for `'none'`.
 * Dtypes: inputs floating, promoted; target any. Gradient: inputs.
 *
 * @throws ShapeError if the shapes do not fit; DtypeError for inputs of integers; DeviceError for
 * tensors on different devices; ArgumentError for an unknown reduction, or inputs that are no
 * tensors
 * @see PyTorch `torch.nn.functional.cosine_embedding_loss`
 */
export const cosineEmbeddingLoss = defineComposite(
  'cosineEmbeddingLoss',
  defineFunction(
    'cosineEmbeddingLoss(input1, /, input2, target, margin, *, reduction)',
    (
      input1: Tensor,
      input2: Tensor,
      target: Tensor,
      margin = 0,
      { reduction = 'mean' }: LossOptions = {},
    ): Tensor => {
      checkPair('cosineEmbeddingLoss', input1, input2, reduction, 'input2');
      requireTensor(target, 'cosineEmbeddingLoss', 'target');
      for (const t of [input1, input2]) requireFloating(t, 'cosineEmbeddingLoss');
      broadcastShapes(
        broadcastShapes(input1.shape, input2.shape, 'cosineEmbeddingLoss').slice(0, -1),
        target.shape,
        'cosineEmbeddingLoss',
      );
      // PyTorch's bound, on the squares
      const squared = (t: Tensor): Tensor => t.square().sum(-1).add(1e-12);
      const cosine = input1
        .mul(input2)
        .sum(-1)
        .div(squared(input1).mul(squared(input2)).sqrt());
      const apart = where(target.eq(-1), cosine.sub(margin).clamp({ min: 0 }), 0);
      return reduceElements(where(target.eq(1), cosine.neg().add(1), apart), reduction);
    },
  ),
  {
    method: false,
    samples: () => [[...pair(), sampleTensor([3], { seed: 5 }).sign().detach()]],
  },
);

/**
 * max(0, |anchor - positive| - |anchor - negative| + margin), with p-norms over the last dim (by
 * default p 2, margin 1, and eps 1e-6 added to each difference). Shapes: `[..., D]`, broadcast; the
 * result is `[]`, or `[...]` for `'none'`. Dtypes: floating, promoted. Gradient: all.
 *
 * @throws ShapeError if the shapes do not broadcast; DeviceError for tensors on different devices;
 * ArgumentError for an unknown reduction, or an anchor or positive that is no tensor
 * @see PyTorch `torch.nn.functional.triplet_margin_loss`; Schroff et al., arXiv:1503.03832
 */
export const tripletMarginLoss = defineComposite(
  'tripletMarginLoss',
  defineFunction(
    'tripletMarginLoss(anchor, /, positive, negative, margin, p, eps, *, reduction)',
    (
      anchor: Tensor,
      positive: Tensor,
      negative: Tensor,
      margin = 1,
      p = 2,
      eps = 1e-6,
      { reduction = 'mean' }: LossOptions = {},
    ): Tensor => {
      checkPair('tripletMarginLoss', anchor, positive, reduction, 'positive');
      requirePair(anchor, negative, 'tripletMarginLoss', 'negative');
      const last = (t: Tensor): Shape =>
        broadcastShapes(anchor.shape, t.shape, 'tripletMarginLoss').slice(0, -1);
      broadcastShapes(last(positive), last(negative), 'tripletMarginLoss');
      requireFloating(anchor, 'tripletMarginLoss', 'anchor');
      const distance = (other: Tensor): Tensor => anchor.sub(other).add(eps).norm(p, -1);
      return reduceElements(
        distance(positive).sub(distance(negative)).add(margin).clamp({ min: 0 }),
        reduction,
      );
    },
  ),
  {
    method: false,
    samples: () => [[...pair(), sampleTensor([3, 4], { seed: 5 })]],
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
