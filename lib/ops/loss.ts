/** Losses: crossEntropy (fused), nllLoss, mseLoss, l1Loss, binaryCrossEntropyWithLogits. */

import { autocastOperands } from '../core/autocast.js';
import { decomposed, reduced } from '../core/decompose.js';
import { dispatch, dispatchOne } from '../core/dispatch.js';
import { type DType, float16, float32, float64, int64 } from '../core/dtype.js';
import { DtypeError, ShapeError } from '../core/errors.js';
import { gradState } from '../core/modes.js';
import { defineOp, type Op, type OutputMeta } from '../core/op.js';
import { type ParamsOf, param } from '../core/op-params.js';
import { checkProbability } from '../core/options.js';
import { broadcastShapes, formatShape, sameShape } from '../core/shape.js';
import { defineFunction, underName } from '../core/signature.js';
import { type Tensor, wrapNumber } from '../core/tensor.js';
import { softplus } from './activation.js';
import { oneHot } from './indexing.js';
import { stack } from './join.js';
import {
  checkPair,
  checkReduction,
  type LossOptions,
  type LossReduction,
  reduceElements,
  requireSameShape,
} from './loss-checks.js';
import { requireFloating, requireNumbers, requirePair, requireTensor } from './operand.js';
import { parallelOperands } from './parallel-loss.js';
import { reshapeIfNeeded } from './reshape-if-needed.js';
import { sampleTensor } from './samples.js';
import { scaleRows } from './scale-rows.js';
import {
  crossEntropyBackwardRule,
  crossEntropyRule,
  crossEntropyWithGradientRule,
} from './sharding/cross-entropy.js';
import { where } from './where.js';

const crossEntropyParams = { ignoreIndex: param.kernel(), labelSmoothing: param.kernel() };
type CrossEntropy = ParamsOf<typeof crossEntropyParams>;

const crossEntropyBackward: Op<CrossEntropy> = defineOp({
  name: 'crossEntropyBackward',
  doc: 'Gradient of crossEntropy for the logits.',
  inputs: ['g', 'logits', 'lse', 'target', 'weight?'],
  outputs: ['glogits'],
  operands:
    '(grad: numel(r), logits: [r, c], lse: numel(r), target: numel(r), weight?: numel(c))' +
    ' -> (gradLogits: [r, c])',
  params: crossEntropyParams,
  sharding: crossEntropyBackwardRule,
  meta: ([, { shape, dtype, device }]) => [{ shape, strides: null, dtype, device }],
  vjp: 'not-differentiable',
  decompose: ([g, x, , target, weight], { ignoreIndex, labelSmoothing }) => {
    const classes = x.shape[1] as number;
    const counted = target.ne(ignoreIndex);
    const labels = oneHot(where(counted, target, 0), classes).to(x.dtype);
    const weights = weight.storage === null ? x.newOnes([classes]) : weight;
    const smooth = labels
      .mul(1 - labelSmoothing)
      .add(labelSmoothing / classes)
      .mul(weights);
    const p = x.softmax(1);
    const rows = p.mul(smooth.sum(1, { keepdim: true })).sub(smooth);
    return [where(counted.unsqueeze(1), rows.mul(g.unsqueeze(1)).to(x.dtype), 0)];
  },
  samples: () =>
    crossEntropyOp.samples().map(({ inputs: [logits, target, weight], params }) => {
      const outputs = dispatch(crossEntropyOp, [logits, target, weight], params);
      const [losses, lse] = outputs as [Tensor, Tensor];
      const g = sampleTensor(losses.shape, { seed: 9 });
      return { inputs: [g, logits, lse, target, weight] as const, params };
    }),
});

/** Losses, and the logs of the sums. */
function perRow({ shape, dtype, device }: Tensor): OutputMeta {
  return { shape: [shape[0] as number], strides: null, dtype: lossDtype(dtype), device };
}

/** Logits, targets and no weight. */
function lossSample(shape: readonly [number, number]) {
  const logits = sampleTensor(shape);
  const target = sampleTensor([shape[0]], { dtype: int64, low: 0, high: shape[1] });
  return [logits, target, wrapNumber(0, logits.dtype, logits.device)] as const;
}

const lossDtype = (logits: DType): DType => (logits === float64 ? float64 : float32);

/** One loss for each row; reduction is composed below. */
const crossEntropyOp: Op<CrossEntropy, readonly [Tensor, Tensor, Tensor]> = defineOp({
  name: 'crossEntropyRows',
  autocast: 'float32 on cuda',
  differentiable: [0],
  doc: 'The negative log probability of the target in each row of logits, and the log of the sum of exponentials.',
  kernel: 'cross_entropy',
  inputs: ['logits', 'target', 'weight?'],
  outputs: ['losses', 'lse'],
  operands:
    '(logits: float [r, c], target: numel(r), weight?: numel(c)) -> (losses: numel(r), ' +
    'lse: numel(r))',
  params: crossEntropyParams,
  sharding: crossEntropyRule,
  meta: ([logits]) => [perRow(logits), perRow(logits)],
  saves: { inputs: [0, 1, 2], outputs: [1] },
  vjp: (ctx, g) => [
    dispatchOne(
      crossEntropyBackward,
      [g, ctx.input(0), ctx.output(1), ctx.input(1), ctx.input(2)],
      ctx.params,
    ),
    null,
    null,
  ],
  decompose: ([logits, target, weight], { ignoreIndex, labelSmoothing }) => {
    const x = logits.dtype === float64 ? logits : logits.to(float32);
    const classes = x.shape[1] as number;
    const weights = weight.storage === null ? null : weight;
    const counted = target.ne(ignoreIndex);
    const labels = where(counted, target, 0);
    const largest = reduced(x.detach().amax(1, { keepdim: true }));
    const z = x.sub(largest);
    // Ranks that share the classes have terms of these sums: they are reduced together.
    const sums = [z.exp().sum(1), z.gather(1, labels.unsqueeze(1)).squeeze(1)];
    if (labelSmoothing > 0) sums.push((weights === null ? z : z.mul(weights)).sum(1));
    const [total, own, all] = reduced(stack(sums)).unbind(0) as [
      Tensor,
      Tensor,
      Tensor | undefined,
    ];
    const lse = total.log();
    const picked =
      weights === null ? lse.sub(own) : lse.sub(own).mul(weights.indexSelect(0, labels));
    const spread =
      all === undefined
        ? null
        : (weights === null ? lse.mul(classes) : lse.mul(weights.sum()))
            .sub(all)
            .mul(labelSmoothing / classes);
    const rows = spread === null ? picked : picked.mul(1 - labelSmoothing).add(spread);
    return [where(counted, rows, 0), lse.add(largest.squeeze(1))];
  },
  samples: () => [
    {
      inputs: lossSample([4, 5]),
      params: { ignoreIndex: -100, labelSmoothing: 0.1 },
    },
    {
      inputs: lossSample([5, 3]),
      params: { ignoreIndex: 1, labelSmoothing: 0 },
    },
  ],
});

const withGradientParams = {
  ...crossEntropyParams,
  /** The caller reads the losses alone: backward may overwrite the gradient and pass it on. */
  givesAway: param.value<boolean>(),
};
type LossWithGradient = ParamsOf<typeof withGradientParams>;

/**
 * What is trained with: losses times a number for all, and at once what the gradient of the logits
 * is where 1 comes in for each row, as for a loss that is not worked on further. Then backward has
 * only to see that it is 1.
 */
const crossEntropyWithGradient: Op<LossWithGradient> = defineOp({
  name: 'crossEntropyWithGradient',
  autocast: 'float32 on cuda',
  differentiable: [0],
  doc: 'crossEntropyRows times a scale, a number or of one element, the log of the sum of exponentials, and the gradient of the sum of the first.',
  kernel: 'cross_entropy',
  inputs: ['logits', 'target', 'weight?', 'scale?'],
  outputs: ['losses', 'lse', 'glogits'],
  operands:
    '(logits: float T[r, c], target: numel(r), weight?: numel(c), scale?: acc(T) numel(1))' +
    ' -> (losses: numel(r), lse: numel(r), gradLogits: dense T[r, c])',
  params: withGradientParams,
  sharding: crossEntropyWithGradientRule<LossWithGradient>(),
  meta: ([logits]) => {
    const { shape, dtype, device } = logits;
    return [perRow(logits), perRow(logits), { shape, strides: null, dtype, device }];
  },
  saves: { inputs: [0, 1, 2, 3], outputs: [1, 2] },
  vjp: (ctx, g) => {
    if (ctx.createsGraph()) {
      const scaled = g.mul(ctx.input(3));
      return [
        dispatchOne(
          crossEntropyBackward,
          [scaled, ctx.input(0), ctx.output(1), ctx.input(1), ctx.input(2)],
          ctx.params,
        ),
        null,
        null,
        null,
      ];
    }
    const own = ctx.params.givesAway ? ctx.takeOutput(2) : null;
    return [dispatchOne(scaleRows, [own ?? ctx.output(2), g], {}, own), null, null, null];
  },
  decompose: ([x, t, w, s], params) => {
    const [losses, lse] = decomposed(crossEntropyOp, [x, t, w], params) as [Tensor, Tensor];
    const each = lse
      .detach()
      .newOnes([t.shape[0] as number])
      .mul(s);
    const [gradient] = decomposed(
      crossEntropyBackward,
      [each, x.detach(), lse.detach(), t, w],
      params,
    ) as [Tensor];
    return [losses.mul(s), lse, gradient];
  },
  samples: () =>
    crossEntropyOp.samples().map(({ inputs, params }) => ({
      inputs: [...inputs, wrapNumber(0.25, inputs[0].dtype, inputs[0].device)] as const,
      params: { ...params, givesAway: false },
    })),
});

/** Options of {@link crossEntropy}. */
export interface CrossEntropyOptions {
  /**
   * A factor for each class, `[C]`; none by default. The mean is divided by the factors of the
   * targets that count.
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
 * dtype; IndexError for a target that is no class, possibly not before values are read;
 * ArgumentError for an unknown reduction, smoothing outside [0, 1], or what is no tensor
 * @see PyTorch `torch.nn.functional.cross_entropy`; Szegedy et al., arXiv:1512.00567 for label
 * smoothing
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
      const [input] = autocastOperands('float32 on cuda', [logits] as const);
      requireTensor(target, 'crossEntropy', 'target');
      checkReduction('crossEntropy', reduction);
      checkProbability('crossEntropy', 'labelSmoothing', labelSmoothing);
      const { target: classes, weight: factors } = parallelOperands('crossEntropy', input, {
        target,
        weight,
      });
      if (target.dtype.isFloatingPoint)
        return probabilityCrossEntropy(input, target, { weight, reduction, labelSmoothing });
      const { rows: inputRows, labels, shape } = toRows('crossEntropy', input, classes, factors);
      const classWeight =
        factors === null
          ? wrapNumber(0, input.dtype, input.device)
          : factors.to(input.dtype).contiguous();
      if (reduction !== 'none' && keepsGradient(input, factors)) {
        const scale =
          reduction === 'sum'
            ? wrapNumber(1, input.dtype, input.device)
            : countOf(labels, factors, ignoreIndex).to(lossDtype(input.dtype)).reciprocal();
        const operands = [inputRows, labels, classWeight, scale];
        const params = { ignoreIndex, labelSmoothing, givesAway: true };
        const rows = dispatchOne(crossEntropyWithGradient, operands, params);
        return rows.sum().to(input.dtype);
      }
      // The fused gradient is of the logits only: a weight that is learned gets its own by the parts.
      const run = weight?.requiresGrad === true ? decomposed<CrossEntropy> : dispatch;
      const rows = run(crossEntropyOp, [inputRows, labels, classWeight], {
        ignoreIndex,
        labelSmoothing,
      })[0] as Tensor;
      return reduceRows(rows, labels, shape, factors, ignoreIndex, reduction).to(input.dtype);
    },
  ),
);

/**
 * Whether the forward pass writes the gradient. Not in float16, where a gradient that a scaler has
 * not yet made larger is lost; not for logits that ranks share, which have a gradient without
 * communication.
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
  const classDim = input.shape.length === 1 ? 0 : 1;
  const expected = input.shape.filter((_, i) => i !== classDim);
  if (
    input.shape.length === 0 ||
    target.shape.length !== expected.length ||
    expected.some((s, i) => s !== target.shape[i])
  ) {
    throw new ShapeError(
      `${op}: an input of shape ${formatShape(input.shape)} needs a target of shape ${formatShape(expected)}, got ${formatShape(target.shape)}`,
      {
        op,
        shapes: [input.shape, target.shape],
      },
    );
  }
  const classes = input.shape[classDim] as number;
  checkClassWeight(op, weight, classes);
  const rows = input.shape.length <= 2 ? input : input.movedim(1, -1);
  const numRows = target.numel();
  return {
    rows: reshapeIfNeeded(rows, [numRows, classes]).contiguous(),
    labels: reshapeIfNeeded(target, [numRows]).contiguous(),
    shape: target.shape,
  };
}

/** @throws ArgumentError, ShapeError unless there is none or a factor for each class */
function checkClassWeight(op: string, weight: Tensor | null, classes: number): void {
  if (weight === null) return;
  requireTensor(weight, op, 'weight');
  if (weight.shape.length !== 1 || weight.shape[0] !== classes)
    throw new ShapeError(
      `${op}: expected a weight for each of ${classes} classes, got shape ${formatShape(weight.shape)}`,
      { op, shape: weight.shape },
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
  input: Tensor,
  target: Tensor,
  { weight = null, reduction = 'mean', labelSmoothing = 0 }: CrossEntropyOptions,
): Tensor {
  if (!sameShape(input.shape, target.shape)) {
    throw new ShapeError(
      `crossEntropy: class probabilities must have the shape of the input, ${formatShape(input.shape)}, got ${formatShape(target.shape)}. Class indices are int64: convert them with .long().`,
      { op: 'crossEntropy', shapes: [input.shape, target.shape] },
    );
  }
  if (input.shape.length === 0)
    throw new ShapeError(
      'crossEntropy: expected logits of at least one dim, got a tensor without dims',
      { op: 'crossEntropy' },
    );
  const classDim = input.shape.length === 1 ? 0 : 1;
  const classes = input.shape[classDim] as number;
  checkClassWeight('crossEntropy', weight, classes);
  const smooth =
    labelSmoothing === 0 ? target : target.mul(1 - labelSmoothing).add(labelSmoothing / classes);
  const shaped =
    weight === null
      ? null
      : weight.reshape(input.shape.map((_, i) => (i === classDim ? classes : 1)));
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
