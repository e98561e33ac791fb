/** Losses written in other ops: smoothL1Loss, huberLoss, klDiv, binaryCrossEntropy and margin losses. */

import { autocastOperands } from '../core/autocast.js';
import { int64 } from '../core/dtype.js';
import { ArgumentError } from '../core/errors.js';
import { optionsOf } from '../core/options.js';
import { broadcastShapes, type Shape } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';
import { defineComposite } from './composite.js';
import { binaryCrossEntropyWithLogits, checkPair, crossEntropy, type LossOptions, type LossReduction, l1Loss, mseLoss, nllLoss, reduceElements } from './loss.js';
import { requireFloating, requireNumbers, requirePair, requireTensor } from './operand.js';
import { cosineSimilarity } from './products.js';
import { sampleTensor } from './samples.js';
import { where } from './where.js';

const pair = () => [sampleTensor([3, 4]), sampleTensor([3, 4], { seed: 3 })];

defineComposite('mseLoss', mseLoss, { samples: () => [pair()] });
defineComposite('l1Loss', l1Loss, { samples: () => [pair()] });
defineComposite('crossEntropy', crossEntropy, { samples: () => [[sampleTensor([3, 4]), sampleTensor([3], { dtype: int64, low: 0, high: 4 })]] });
defineComposite('nllLoss', nllLoss, { samples: () => [[sampleTensor([3, 4]), sampleTensor([3], { dtype: int64, low: 0, high: 4 })]] });
defineComposite('binaryCrossEntropyWithLogits', binaryCrossEntropyWithLogits, {
  method: false,
  samples: () => [[sampleTensor([3, 4]), sampleTensor([3, 4], { low: 0, high: 1 })]],
});

/** Squares below `beta`, absolute differences above. Gradient: both. @throws ShapeError, ArgumentError @see Girshick, arXiv:1504.08083 */
export function smoothL1Loss(input: Tensor, target: Tensor, options: LossOptions & { beta?: number } = {}): Tensor {
  const { reduction = 'mean', beta = 1 } = optionsOf('smoothL1Loss', options);
  checkPair('smoothL1Loss', input, target, reduction);
  const [x, y] = autocastOperands('float32 on cuda', [input, target] as const);
  if (beta < 0) throw new ArgumentError(`smoothL1Loss: beta must not be negative, got ${beta}`, { op: 'smoothL1Loss', beta });
  if (beta === 0) return l1Loss(x, y, { reduction });
  const distance = x.sub(y).abs();
  return reduceElements(where(distance.lt(beta), distance.square().mul(0.5 / beta), distance.sub(beta / 2)), reduction);
}
defineComposite('smoothL1Loss', smoothL1Loss, { method: false, samples: () => [pair(), [...pair(), { beta: 0.5, reduction: 'sum' }]] });

/** Half squares below `delta`, delta times the rest above. Gradient: both. @throws ShapeError, ArgumentError */
export function huberLoss(input: Tensor, target: Tensor, options: LossOptions & { delta?: number } = {}): Tensor {
  const { reduction = 'mean', delta = 1 } = optionsOf('huberLoss', options);
  checkPair('huberLoss', input, target, reduction);
  if (!(delta > 0)) throw new ArgumentError(`huberLoss: delta must be above 0, got ${delta}`, { op: 'huberLoss', delta });
  return smoothL1Loss(input, target, { reduction, beta: delta }).mul(delta);
}
defineComposite('huberLoss', huberLoss, { method: false, samples: () => [[...pair(), { delta: 0.7 }]] });

/** Options of {@link klDiv}. */
export interface KlDivOptions {
  /** `'batchmean'` is the divergence by its definition: the sum over the first size. */
  reduction?: LossReduction | 'batchmean';
  /** The target holds log probabilities. */
  logTarget?: boolean;
}

/** The Kullback-Leibler divergence of log probabilities from a target distribution. Gradient: both. @throws ShapeError, ArgumentError */
export function klDiv(input: Tensor, target: Tensor, options: KlDivOptions = {}): Tensor {
  const { reduction = 'mean', logTarget = false } = optionsOf('klDiv', options);
  checkPair('klDiv', input, target, reduction === 'batchmean' ? 'sum' : reduction);
  const [x, y] = autocastOperands('float32', [input, target] as const);
  const losses = logTarget ? y.exp().mul(y.sub(x)) : y.xlogy(y).sub(y.mul(x));
  return reduction === 'batchmean' ? losses.sum().div(x.shape[0] ?? 1) : reduceElements(losses, reduction);
}
defineComposite('klDiv', klDiv, {
  method: false,
  samples: () => [
    [sampleTensor([3, 4]), sampleTensor([3, 4], { low: 0.1, high: 1, seed: 3 }), { reduction: 'batchmean' }],
    [...pair(), { logTarget: true }],
  ],
});

/** Options of {@link binaryCrossEntropy}. */
export interface BinaryCrossEntropyOptions extends LossOptions {
  /** A factor for each element; broadcast. */
  weight?: Tensor | null;
}

/** Binary cross entropy of probabilities; logarithms are at least -100. Gradient: both. @throws ShapeError, ArgumentError */
export function binaryCrossEntropy(input: Tensor, target: Tensor, options: BinaryCrossEntropyOptions = {}): Tensor {
  const { weight = null, reduction = 'mean' } = optionsOf('binaryCrossEntropy', options);
  checkPair('binaryCrossEntropy', input, target, reduction);
  for (const t of [input, target]) requireNumbers('binaryCrossEntropy', t);
  if (weight !== null) requirePair(input, weight, 'binaryCrossEntropy', 'weight');
  const log = (t: Tensor): Tensor => t.log().clamp({ min: -100 });
  const losses = target
    .mul(log(input))
    .add(
      target
        .neg()
        .add(1)
        .mul(log(input.neg().add(1))),
    )
    .neg();
  return reduceElements(weight === null ? losses : losses.mul(weight), reduction);
}
defineComposite('binaryCrossEntropy', binaryCrossEntropy, {
  method: false,
  samples: () => [[sampleTensor([3, 4], { low: 0.1, high: 0.9 }), sampleTensor([3, 4], { low: 0, high: 1, seed: 3 })]],
});

/** Options of losses with a margin. */
export interface MarginOptions extends LossOptions {
  margin?: number;
}

/** max(0, -target (input1 - input2) + margin): which of two should be larger. Gradient: inputs. @throws ShapeError, ArgumentError */
export function marginRankingLoss(input1: Tensor, input2: Tensor, target: Tensor, options: MarginOptions = {}): Tensor {
  const { margin = 0, reduction = 'mean' } = optionsOf('marginRankingLoss', options);
  checkPair('marginRankingLoss', input1, input2, reduction, 'input2');
  requireTensor(target, 'marginRankingLoss', 'target');
  broadcastShapes(broadcastShapes(input1.shape, input2.shape, 'marginRankingLoss'), target.shape, 'marginRankingLoss');
  return reduceElements(input1.sub(input2).mul(target).neg().add(margin).clamp({ min: 0 }), reduction);
}
defineComposite('marginRankingLoss', marginRankingLoss, { method: false, samples: () => [[...pair(), sampleTensor([3, 4], { seed: 5 }).sign().detach()]] });

/** 1 - cos of pairs with target 1, max(0, cos - margin) of those with -1. Gradient: inputs. @throws ShapeError, ArgumentError */
export function cosineEmbeddingLoss(input1: Tensor, input2: Tensor, target: Tensor, options: MarginOptions = {}): Tensor {
  const { margin = 0, reduction = 'mean' } = optionsOf('cosineEmbeddingLoss', options);
  checkPair('cosineEmbeddingLoss', input1, input2, reduction, 'input2');
  requireTensor(target, 'cosineEmbeddingLoss', 'target');
  for (const t of [input1, input2]) requireFloating(t, 'cosineEmbeddingLoss');
  broadcastShapes(broadcastShapes(input1.shape, input2.shape, 'cosineEmbeddingLoss').slice(0, -1), target.shape, 'cosineEmbeddingLoss');
  const cosine = cosineSimilarity(input1, input2, { dim: -1 });
  return reduceElements(where(target.eq(1), cosine.neg().add(1), cosine.sub(margin).clamp({ min: 0 })), reduction);
}
defineComposite('cosineEmbeddingLoss', cosineEmbeddingLoss, { method: false, samples: () => [[...pair(), sampleTensor([3], { seed: 5 }).sign().detach()]] });

/** max(0, |anchor - positive| - |anchor - negative| + margin), with p-norms of rows. Gradient: all. @throws ShapeError, ArgumentError */
export function tripletMarginLoss(anchor: Tensor, positive: Tensor, negative: Tensor, options: MarginOptions & { p?: number; eps?: number } = {}): Tensor {
  const { margin = 1, p = 2, eps = 1e-6, reduction = 'mean' } = optionsOf('tripletMarginLoss', options);
  checkPair('tripletMarginLoss', anchor, positive, reduction, 'positive');
  requirePair(anchor, negative, 'tripletMarginLoss', 'negative');
  const last = (t: Tensor): Shape => broadcastShapes(anchor.shape, t.shape, 'tripletMarginLoss').slice(0, -1);
  broadcastShapes(last(positive), last(negative), 'tripletMarginLoss');
  requireFloating(anchor, 'tripletMarginLoss', 'anchor');
  const distance = (other: Tensor): Tensor => anchor.sub(other).add(eps).norm(p, -1);
  return reduceElements(distance(positive).sub(distance(negative)).add(margin).clamp({ min: 0 }), reduction);
}
defineComposite('tripletMarginLoss', tripletMarginLoss, { method: false, samples: () => [[...pair(), sampleTensor([3, 4], { seed: 5 })]] });

declare module '../core/tensor.js' {
  interface Tensor {
    /** Mean of squared differences. Gradient: both. @throws ShapeError */
    mseLoss(target: Tensor, options?: LossOptions): Tensor;
    /** Mean of absolute differences. Gradient: both. @throws ShapeError */
    l1Loss(target: Tensor, options?: LossOptions): Tensor;
    /** Cross entropy of logits and class indices (or probabilities). Gradient: this. @throws ShapeError, DtypeError, IndexError */
    crossEntropy(target: Tensor, options?: Parameters<typeof crossEntropy>[2]): Tensor;
    /** Negative log likelihood of log probabilities and class indices. Gradient: this. @throws ShapeError, DtypeError, IndexError */
    nllLoss(target: Tensor, options?: Parameters<typeof nllLoss>[2]): Tensor;
  }
}
