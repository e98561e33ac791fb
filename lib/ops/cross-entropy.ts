/**
 * Cross entropy and negative log likelihood, with class weights, ignored targets and label
 * smoothing.
 */

import { autocastDtype, autocastOperands } from '../core/autocast.js';
import { decomposed } from '../core/decompose.js';
import { dispatch, dispatchOne } from '../core/dispatch.js';
import { float16, int64 } from '../core/dtype.js';
import { DtypeError, ShapeError } from '../core/errors.js';
import { gradState } from '../core/modes.js';
import { checkNumber, checkProbability } from '../core/options.js';
import { formatShape, sameShape } from '../core/shape.js';
import { defineFunction, underName } from '../core/signature.js';
import { type Tensor, wrapNumber } from '../core/tensor.js';
import { defineComposite } from './composite.js';
import {
  type CrossEntropy,
  crossEntropyOp,
  crossEntropyWithGradient,
  lossDtype,
} from './cross-entropy-rows.js';
import { checkReduction, type LossReduction } from './loss-checks.js';
import { requireFloating, requireTensor } from './operand.js';
import { parallelOperands } from './parallel-loss.js';
import { reshapeIfNeeded } from './reshape-if-needed.js';
import { sampleTensor } from './samples.js';
import { where } from './where.js';

/** Options of {@link crossEntropy}. */
export interface CrossEntropyOptions {
  /**
   * A factor for each class, `[C]`; none by default. The mean is divided by the sum of the factors
   * of the targets that count.
   */
  weight?: Tensor | null;
  /**
   * Targets of this value do not count: loss 0, no gradient. -100 by default; not for class
   * probabilities.
   */
  ignoreIndex?: number;
  /** `'mean'` by default, over the targets that count. */
  reduction?: LossReduction;
  /** The share of the target that goes to all classes alike, in [0, 1]. 0 by default. */
  labelSmoothing?: number;
}

/**
 * Cross entropy of logits and class indices, or class probabilities; softmax included, so pass
 * logits.
 *
 * Shapes: input `[N, C]`, `[C]` or `[N, C, ...]`; target `[N]`, `[]` or `[N, ...]`, or
 * probabilities in the input's shape. The result is `[]`, or the target's shape without the classes
 * for `'none'`. The mean of no targets is NaN. Dtypes: input floating, kept, computed in float32
 * for low precision; target int64, or floating for probabilities. Gradient: input, a weight that
 * requires it, and probabilities.
 *
 * @throws ShapeError for shapes that do not fit; DtypeError for integer logits or another target
 * dtype; IndexError for a target that is not a class, possibly not before values are read;
 * ArgumentError for an unknown reduction, smoothing outside [0, 1], or a value that is not a tensor
 * @see PyTorch `torch.nn.functional.cross_entropy`; Szegedy et al., arXiv:1512.00567 for label
 * smoothing
 * @example
 * const logits = zeros([2, 4], { requiresGrad: true });
 * const loss = crossEntropy(logits, tensor([0, 3], { dtype: int64 }));
 * loss; // 1.3863
 */
export const crossEntropy = underName(
  'crossEntropy',
  defineFunction(
    'crossEntropy(input, /, target, weight, *, ignoreIndex, reduction, labelSmoothing)',
    (
      logits: Tensor,
      target: Tensor,
      weight: Tensor | null = null,
      options: Omit<CrossEntropyOptions, 'weight'> = {},
    ): Tensor => {
      const { ignoreIndex = -100, reduction = 'mean', labelSmoothing = 0 } = options;
      requireTensor(logits, 'crossEntropy');
      requireTensor(target, 'crossEntropy', 'target');
      checkReduction('crossEntropy', reduction);
      checkNumber('crossEntropy', 'ignoreIndex', ignoreIndex, { whole: true });
      checkProbability('crossEntropy', 'labelSmoothing', labelSmoothing);
      const { target: classes, weight: factors } = parallelOperands('crossEntropy', logits, {
        target,
        weight,
      });
      if (target.dtype.isFloatingPoint)
        return probabilityCrossEntropy(logits, target, { weight, reduction, labelSmoothing });
      const { rows: inputRows, labels, shape } = toRows('crossEntropy', logits, classes, factors);
      // The ops take logits of any precision and give losses in float32.
      const dtype = autocastDtype('float32 on cuda', [logits]) ?? logits.dtype;
      const classWeight =
        factors === null ? wrapNumber(0, dtype, logits.device) : factors.to(dtype).contiguous();
      if (reduction !== 'none' && keepsGradient(logits, factors)) {
        const scale =
          reduction === 'sum'
            ? wrapNumber(1, dtype, logits.device)
            : countOf(labels, factors, ignoreIndex).to(lossDtype(dtype)).reciprocal();
        const operands = [inputRows, labels, classWeight, scale];
        const params = { ignoreIndex, labelSmoothing, givesAway: true };
        const rows = dispatchOne(crossEntropyWithGradient, operands, params);
        return rows.sum().to(dtype);
      }
      // The fused op has a gradient of the logits only, so a weight that requires one takes the
      // separate ops.
      const run = weight?.requiresGrad === true ? decomposed<CrossEntropy> : dispatch;
      const rows = run(crossEntropyOp, [inputRows, labels, classWeight], {
        ignoreIndex,
        labelSmoothing,
      })[0] as Tensor;
      return reduceRows(rows, labels, shape, factors, ignoreIndex, reduction).to(dtype);
    },
  ),
);

/**
 * Whether the forward pass writes the gradient. Not in float16, where gradients underflow before a
 * scaler multiplies them; not for sharded logits, whose gradient needs no communication.
 */
function keepsGradient(logits: Tensor, weight: Tensor | null): boolean {
  return (
    gradState.recording &&
    logits.requiresGrad &&
    logits.sharding === null &&
    logits.dtype !== float16 &&
    weight?.requiresGrad !== true
  );
}

/** Classes last and rows merged: `[N, C, d]` becomes `[N d, C]`. */
function toRows(
  op: string,
  input: Tensor,
  target: Tensor,
  weight: Tensor | null,
): { rows: Tensor; labels: Tensor; shape: readonly number[] } {
  if (target.dtype !== int64)
    throw new DtypeError(
      `${op}: expected int64 class indices, got ${target.dtype.name}. Convert with .long().`,
      { op, dtype: target.dtype.name },
    );
  requireFloating(input, op);
  const classDim = input.sizes.length === 1 ? 0 : 1;
  const expected = input.sizes.filter((_, i) => i !== classDim);
  if (
    input.sizes.length === 0 ||
    target.sizes.length !== expected.length ||
    expected.some((s, i) => s !== target.sizes[i])
  ) {
    throw new ShapeError(
      `${op}: an input of shape ${formatShape(input.sizes)} needs a target of shape ` +
        `${formatShape(expected)}, got ${formatShape(target.sizes)}`,
      {
        op,
        shapes: [input.sizes, target.sizes],
      },
    );
  }
  const classes = input.sizes[classDim] as number;
  checkClassWeight(op, weight, classes);
  const rows = input.sizes.length <= 2 ? input : input.movedim(1, -1);
  const numRows = target.numel();
  return {
    rows: reshapeIfNeeded(rows, [numRows, classes]).contiguous(),
    labels: reshapeIfNeeded(target, [numRows]).contiguous(),
    shape: target.sizes,
  };
}

/** @throws ArgumentError, ShapeError unless it is null or has a factor for each class */
function checkClassWeight(op: string, weight: Tensor | null, classes: number): void {
  if (weight === null) return;
  requireTensor(weight, op, 'weight');
  if (weight.sizes.length !== 1 || weight.sizes[0] !== classes)
    throw new ShapeError(
      `${op}: expected a weight for each of ${classes} classes, got shape ` +
        `${formatShape(weight.sizes)}`,
      { op, shape: weight.sizes },
    );
}

function reduceRows(
  rows: Tensor,
  labels: Tensor,
  shape: readonly number[],
  weight: Tensor | null,
  ignoreIndex: number,
  reduction: LossReduction,
): Tensor {
  if (reduction === 'none') return reshapeIfNeeded(rows, shape);
  if (reduction === 'sum') return rows.sum();
  return rows.sum().div(countOf(labels, weight?.to(rows.dtype) ?? null, ignoreIndex));
}

/** The targets that count, each by the factor of its class if there are factors. */
function countOf(labels: Tensor, weight: Tensor | null, ignoreIndex: number): Tensor {
  const counted = labels.ne(ignoreIndex);
  if (weight === null) return counted.sum();
  return where(counted, weight.indexSelect(0, where(counted, labels, 0)), 0).sum();
}

function probabilityCrossEntropy(
  logits: Tensor,
  target: Tensor,
  { weight = null, reduction = 'mean', labelSmoothing = 0 }: CrossEntropyOptions,
): Tensor {
  const [input] = autocastOperands('float32 on cuda', [logits] as const);
  if (!sameShape(input.sizes, target.sizes)) {
    throw new ShapeError(
      'crossEntropy: class probabilities must have the shape of the input, ' +
        `${formatShape(input.sizes)}, got ${formatShape(target.sizes)}. Class indices are int64: ` +
        'convert them with .long().',
      { op: 'crossEntropy', shapes: [input.sizes, target.sizes] },
    );
  }
  if (input.sizes.length === 0)
    throw new ShapeError(
      'crossEntropy: expected logits of at least one dim, got a tensor without dims',
      { op: 'crossEntropy' },
    );
  const classDim = input.sizes.length === 1 ? 0 : 1;
  const classes = input.sizes[classDim] as number;
  checkClassWeight('crossEntropy', weight, classes);
  const smooth =
    labelSmoothing === 0 ? target : target.mul(1 - labelSmoothing).add(labelSmoothing / classes);
  const shaped =
    weight === null
      ? null
      : weight.reshape(input.sizes.map((_, i) => (i === classDim ? classes : 1)));
  const weighted = shaped === null ? smooth : smooth.mul(shaped);
  const losses = input.logSoftmax(classDim).mul(weighted).sum(classDim).neg();
  if (reduction === 'none') return losses;
  return reduction === 'sum' ? losses.sum() : losses.mean();
}

/** Options of {@link nllLoss}. */
export type NllLossOptions = Omit<CrossEntropyOptions, 'labelSmoothing'>;

/**
 * Negative log likelihood of log probabilities and class indices: minus the input at the target.
 * Shapes: as {@link crossEntropy} with indices. Dtypes: input floating, kept; target int64.
 * Gradient: input, and a weight that requires it.
 *
 * @throws ShapeError, DtypeError, IndexError, ArgumentError as {@link crossEntropy}
 * @see PyTorch `torch.nn.functional.nll_loss`
 */
export const nllLoss = underName(
  'nllLoss',
  defineFunction(
    'nllLoss(input, /, target, weight, *, ignoreIndex, reduction)',
    (
      input: Tensor,
      target: Tensor,
      weight: Tensor | null = null,
      { ignoreIndex = -100, reduction = 'mean' }: Omit<NllLossOptions, 'weight'> = {},
    ): Tensor => {
      requireTensor(input, 'nllLoss');
      requireTensor(target, 'nllLoss', 'target');
      checkReduction('nllLoss', reduction);
      checkNumber('nllLoss', 'ignoreIndex', ignoreIndex, { whole: true });
      const [logp] = autocastOperands('float32 on cuda', [input] as const);
      const { rows, labels, shape } = toRows('nllLoss', logp, target, weight);
      const counted = labels.ne(ignoreIndex);
      const safe = where(counted, labels, 0);
      const picked = rows.gather(1, safe.unsqueeze(1)).squeeze(1).neg();
      const weighted =
        weight === null ? picked : picked.mul(weight.to(rows.dtype).indexSelect(0, safe));
      return reduceRows(where(counted, weighted, 0), labels, shape, weight, ignoreIndex, reduction);
    },
  ),
);

defineComposite('crossEntropy', crossEntropy, {
  samples: () => [[sampleTensor([3, 4]), sampleTensor([3], { dtype: int64, low: 0, high: 4 })]],
});
defineComposite('nllLoss', nllLoss, {
  samples: () => [[sampleTensor([3, 4]), sampleTensor([3], { dtype: int64, low: 0, high: 4 })]],
});
