/**
 * The ops of cross entropy: one loss for each row of logits. `crossEntropyWithGradient` also
 * computes the gradient in forward, because training reads the logits anyway; backward then only
 * checks that the incoming gradient is 1.
 */

import { decomposed, reduced } from '../core/decompose.js';
import { dispatch, dispatchOne } from '../core/dispatch.js';
import { type DType, float32, float64, int64 } from '../core/dtype.js';
import { defineOp, type Op, type OutputMeta } from '../core/op.js';
import { type ParamsOf, param } from '../core/op-params.js';
import { type Tensor, wrapNumber } from '../core/tensor.js';
import {
  labelsOf,
  lossesOfShards,
  type ShardOfClasses,
  shardParams,
} from './cross-entropy-shards.js';
import { stack } from './join.js';
import { sampleTensor } from './samples.js';
import {
  crossEntropyBackwardRule,
  crossEntropyRule,
  crossEntropyWithGradientRule,
  scaleRowsRule,
} from './sharding/cross-entropy.js';
import { where } from './where.js';

const crossEntropyParams = { ignoreIndex: param.kernel(), labelSmoothing: param.kernel() };
/** @internal */
export type CrossEntropy = ParamsOf<typeof crossEntropyParams>;

const crossEntropyBackward: Op<ShardOfClasses> = defineOp({
  name: 'crossEntropyBackward',
  calledBy: 'crossEntropy',
  doc: 'Gradient of crossEntropy for the logits of all classes, or of some.',
  inputs: ['g', 'logits', 'lse', 'target', 'weight?'],
  outputs: ['glogits'],
  operands:
    '(grad: numel(r), logits: [r, c], lse: numel(r), target: indices numel(r), ' +
    'weight?: float numel(classes)) -> (gradLogits: [r, c]) where inside(firstClass, c, classes)',
  params: shardParams,
  sharding: crossEntropyBackwardRule<ShardOfClasses>(),
  meta: ([, { sizes: shape, dtype, device }]) => [{ shape, strides: null, dtype, device }],
  vjp: 'not-differentiable',
  decompose: ([g, x, lse, target, weight], params) => {
    const { labels, mass, counted } = labelsOf(x, target, weight, params);
    // Of all classes, so that the second derivative includes that of lse.
    const p = x.sizes[1] === params.classes ? x.softmax(1) : x.sub(lse.unsqueeze(1)).exp();
    const rows = p.mul(mass.unsqueeze(1)).sub(labels);
    return [where(counted.unsqueeze(1), rows.mul(g.unsqueeze(1)).to(x.dtype), 0)];
  },
  samples: () => [...samplesOfAllClasses(), sampleOfSomeClasses()],
});

/** Gradients of the samples of crossEntropyRows. */
function samplesOfAllClasses() {
  return crossEntropyOp.samples().map(({ inputs: [logits, target, weight], params }) => {
    const outputs = dispatch(crossEntropyOp, [logits, target, weight], params);
    const [losses, lse] = outputs as [Tensor, Tensor];
    const g = sampleTensor(losses.sizes, { seed: 9 });
    return {
      inputs: [g, logits, lse, target, weight] as const,
      params: ofAllClasses(params, logits),
    };
  });
}

function sampleOfSomeClasses() {
  const [logits, target] = [
    sampleTensor([4, 5]),
    sampleTensor([4], { dtype: int64, low: 0, high: 9 }),
  ];
  const [g, lse] = [sampleTensor([4], { seed: 9 }), sampleTensor([4], { low: 3, high: 4 })];
  const weight = sampleTensor([9], { low: 0.5, seed: 2 });
  return {
    inputs: [g, logits, lse, target, weight] as const,
    params: { ignoreIndex: -100, labelSmoothing: 0.2, firstClass: 3, classes: 9 },
  };
}

/** The parameters of a call with the logits of all classes. */
function ofAllClasses({ ignoreIndex, labelSmoothing }: CrossEntropy, x: Tensor): ShardOfClasses {
  return { ignoreIndex, labelSmoothing, firstClass: 0, classes: x.sizes[1] as number };
}

/** The metadata of the losses and of the logs of the sums. */
function perRow({ sizes: shape, dtype, device }: Tensor): OutputMeta {
  return { shape: [shape[0] as number], strides: null, dtype: lossDtype(dtype), device };
}

/** Sample logits and targets, without a weight. */
function lossSample(shape: readonly [number, number]) {
  const logits = sampleTensor(shape);
  const target = sampleTensor([shape[0]], { dtype: int64, low: 0, high: shape[1] });
  return [logits, target, wrapNumber(0, logits.dtype, logits.device)] as const;
}

/** @internal */
export const lossDtype = (logits: DType): DType => (logits === float64 ? float64 : float32);

/** One loss for each row; reduction is composed below. @internal */
export const crossEntropyOp: Op<CrossEntropy, readonly [Tensor, Tensor, Tensor]> = defineOp({
  name: 'crossEntropyRows',
  calledBy: 'crossEntropy',
  autocast: 'float32 on cuda',
  widens: true,
  differentiable: [0],
  doc:
    'The negative log probability of the target in each row of logits, and the log of the ' +
    'sum of exponentials.',
  kernel: 'cross_entropy',
  inputs: ['logits', 'target', 'weight?'],
  outputs: ['losses', 'lse'],
  operands:
    '(logits: float [r, c], target: indices numel(r), weight?: numel(c)) -> (losses: numel(r), ' +
    'lse: numel(r))',
  params: crossEntropyParams,
  sharding: { ...crossEntropyRule, decompose: lossesOfShards },
  meta: ([logits]) => [perRow(logits), perRow(logits)],
  saves: { inputs: [0, 1, 2], outputs: [1] },
  vjp: (ctx, g) => [
    dispatchOne(
      crossEntropyBackward,
      [g, ctx.input(0), ctx.output(1), ctx.input(1), ctx.input(2)],
      ofAllClasses(ctx.params, ctx.input(0)),
    ),
    null,
    null,
  ],
  decompose: ([logits, target, weight], { ignoreIndex, labelSmoothing }) => {
    const x = logits.dtype === float64 ? logits : logits.to(float32);
    const classes = x.sizes[1] as number;
    const weights = weight.storage === null ? null : weight;
    const counted = target.ne(ignoreIndex);
    const labels = where(counted, target, 0);
    const largest = reduced(x.detach().amax(1, { keepdim: true }));
    const z = x.sub(largest);
    // If classes are sharded, each rank has partial values of these sums; one collective reduces
    // all.
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

/**
 * Fast path, factors all 1: the gradient of the losses was computed in the forward pass and the
 * incoming gradient is 1, so nothing is touched.
 */
const scaleRows: Op<object> = defineOp({
  name: 'scaleRows',
  doc:
    'Each row times its factor, in the dtype of the rows. In place, rows whose factor is 1 are ' +
    'neither read nor written.',
  sharding: scaleRowsRule,
  inputs: ['rows', 'factors'],
  outputs: ['y'],
  operands: '(factors: float [r]) -> (y: dense float [r, c])',
  updates: 0,
  meta: ([{ sizes: shape, dtype, device }]) => [{ shape, strides: null, dtype, device }],
  vjp: 'not-differentiable',
  decompose: ([rows, factors]) => [rows.mul(factors.unsqueeze(1)).to(rows.dtype)],
  samples: () => [{ inputs: [sampleTensor([4, 5]), sampleTensor([4], { seed: 2 })], params: {} }],
});

const withGradientParams = {
  ...crossEntropyParams,
  /**
   * Whether the caller reads only the losses, so that backward may overwrite the gradient and
   * return it.
   */
  givesAway: param.value<boolean>(),
};
type LossWithGradient = ParamsOf<typeof withGradientParams>;

/**
 * The op of training: the losses, scaled by one number, and the gradient of the logits for an
 * incoming gradient of 1 per row. If the loss is not processed further, backward only checks that
 * the incoming gradient is 1.
 *
 * @internal
 */
export const crossEntropyWithGradient: Op<LossWithGradient> = defineOp({
  name: 'crossEntropyWithGradient',
  calledBy: 'crossEntropy',
  autocast: 'float32 on cuda',
  widens: true,
  differentiable: [0],
  doc:
    'crossEntropyRows times a scale, a number or of one element, the log of the sum of ' +
    'exponentials, and the gradient of the sum of the first.',
  kernel: 'cross_entropy',
  inputs: ['logits', 'target', 'weight?', 'scale?'],
  outputs: ['losses', 'lse', 'glogits'],
  operands:
    '(logits: float T[r, c], target: indices numel(r), weight?: numel(c), ' +
    'scale?: acc(T) numel(1)) -> (losses: numel(r), lse: numel(r), gradLogits: dense T[r, c])',
  params: withGradientParams,
  sharding: crossEntropyWithGradientRule<LossWithGradient>(),
  meta: ([logits]) => {
    const { sizes: shape, dtype, device } = logits;
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
          ofAllClasses(ctx.params, ctx.input(0)),
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
      .newOnes([t.sizes[0] as number])
      .mul(s);
    const [gradient] = decomposed(
      crossEntropyBackward,
      [each, x.detach(), lse.detach(), t, w],
      ofAllClasses(params, x),
    ) as [Tensor];
    return [losses.mul(s), lse, gradient];
  },
  samples: () =>
    crossEntropyOp.samples().map(({ inputs, params }) => ({
      inputs: [...inputs, wrapNumber(0.25, inputs[0].dtype, inputs[0].device)] as const,
      params: { ...params, givesAway: false },
    })),
});
