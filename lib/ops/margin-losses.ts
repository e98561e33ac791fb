/**
 * Losses of distances against a margin, written in other ops: marginRankingLoss,
 * cosineEmbeddingLoss, tripletMarginLoss.
 */

import { broadcastShapes, type Shape } from '../core/shape.js';
import { defineFunction } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { defineComposite } from './composite.js';
import { pair } from './loss.js';
import { checkPair, type LossOptions, reduceElements } from './loss-checks.js';
import { requireFloating, requirePair, requireTensor } from './operand.js';
import { sampleTensor } from './samples.js';
import { where } from './where.js';

/** Options of losses with a margin. */
export interface MarginOptions extends LossOptions {
  /**
   * The margin between the two values from which the loss is 0. Default: 1 for `tripletMarginLoss`,
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
 * that are not tensors
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
        broadcastShapes(input1.sizes, input2.sizes, 'marginRankingLoss'),
        target.sizes,
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
 * tensors on different devices; ArgumentError for an unknown reduction, or inputs that are not
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
        broadcastShapes(input1.sizes, input2.sizes, 'cosineEmbeddingLoss').slice(0, -1),
        target.sizes,
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
 * ArgumentError for an unknown reduction, or an anchor or positive that is not a tensor
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
        broadcastShapes(anchor.sizes, t.sizes, 'tripletMarginLoss').slice(0, -1);
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
