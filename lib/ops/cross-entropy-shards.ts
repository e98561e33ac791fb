/**
 * Cross entropy of logits that are sharded along their classes. Each rank reads its logits once and
 * gives two numbers for each row; the ranks exchange these.
 *
 * With the labels l of all classes, `mass` their sum and `score` the sum of l x, the loss of a row
 * is mass * lse - score. Ranks add their scores. They bring their lse to the largest one first. All
 * of these are float64, because the difference is small where logits are large.
 */

import { reduced } from '../core/decompose.js';
import { dispatch } from '../core/dispatch.js';
import { float32, float64, int64 } from '../core/dtype.js';
import { defineOp, type Op } from '../core/op.js';
import { type ParamsOf, param } from '../core/op-params.js';
import { type Tensor, wrapNumber } from '../core/tensor.js';
import { stack } from './join.js';
import { sampleTensor } from './samples.js';
import { crossEntropyStatisticsRule } from './sharding/cross-entropy.js';
import { where } from './where.js';

/** The parameters of kernels that take the logits of some classes. @internal */
export const shardParams = {
  ignoreIndex: param.kernel(),
  labelSmoothing: param.kernel(),
  /** The class of the first column of the logits. */
  firstClass: param.kernel(),
  /** The number of all classes. */
  classes: param.kernel(),
};
/** @internal */
export type ShardOfClasses = ParamsOf<typeof shardParams>;

/**
 * The labels of the classes from `firstClass` on, one for each column of `x`, and the sum of the
 * labels of all classes in each row. Labels of rows that do not count are those of another class.
 *
 * @internal
 */
export function labelsOf(
  x: Tensor,
  target: Tensor,
  weight: Tensor,
  { ignoreIndex, labelSmoothing, firstClass, classes }: ShardOfClasses,
): { labels: Tensor; mass: Tensor; counted: Tensor } {
  const columns = x.sizes[1] as number;
  const counted = target.ne(ignoreIndex);
  const label = where(counted, target, 0);
  const weights = weight.storage === null ? x.newOnes([classes]) : weight.to(x.dtype);
  const spread = labelSmoothing / classes;
  const column = label
    .newOnes([columns])
    .cumsum(0)
    .add(firstClass - 1);
  const labels = label
    .unsqueeze(1)
    .eq(column)
    .to(x.dtype)
    .mul(1 - labelSmoothing)
    .add(spread)
    .mul(weights.narrow(0, firstClass, columns));
  return { labels, mass: massOf(label, weights, labelSmoothing), counted };
}

/** The sum of the labels of all classes in each row. */
function massOf(label: Tensor, weights: Tensor, labelSmoothing: number): Tensor {
  const own = weights.indexSelect(0, label);
  if (labelSmoothing === 0) return own;
  return own.mul(1 - labelSmoothing).add(weights.mean().mul(labelSmoothing));
}

const statisticsParams = {
  ...shardParams,
  /** The number of shards along the classes, and of columns of `lse`; the kernel gives one. */
  shards: param.value<number>(),
};
type Statistics = ParamsOf<typeof statisticsParams>;

const crossEntropyStatistics: Op<Statistics, readonly [Tensor, Tensor, Tensor]> = defineOp({
  name: 'crossEntropyStatistics',
  calledBy: 'crossEntropy',
  doc:
    'What a shard of the classes adds to crossEntropy: for each row the log of the sum of ' +
    'exponentials, and the sum of the logits times their labels.',
  inputs: ['logits', 'target', 'weight?'],
  outputs: ['lse', 'score'],
  operands:
    '(logits: float T[r, c], target: indices int64 numel(r), weight?: float numel(classes)) -> ' +
    '(lse: dense float64 [r, 1], score: dense float64 numel(r)) ' +
    'where inside(firstClass, c, classes)',
  params: statisticsParams,
  sharding: crossEntropyStatisticsRule<Statistics>(() => crossEntropyStatistics),
  meta: ([{ sizes: shape, device }], { shards }) => {
    const rows = shape[0] as number;
    return [
      { shape: [rows, shards], strides: null, dtype: float64, device },
      { shape: [rows], strides: null, dtype: float64, device },
    ];
  },
  vjp: 'not-differentiable',
  decompose: ([x, target, weight], params) => {
    const wide = x.to(float64);
    const { labels, counted } = labelsOf(wide, target, weight, params);
    const score = where(labels.eq(0), 0, wide.mul(labels)).sum(1);
    return [wide.logsumexp(1, { keepdim: true }), where(counted, score, 0)];
  },
  samples: () => {
    const target = sampleTensor([4], { dtype: int64, low: 0, high: 9 });
    const x = sampleTensor([4, 5], { dtype: float64 }); // the results are as precise as it
    const none = wrapNumber(0, x.dtype, x.device);
    const weight = sampleTensor([9], { low: 0.5, seed: 2 });
    const params = { ignoreIndex: -100, labelSmoothing: 0, firstClass: 3, classes: 9, shards: 1 };
    return [
      { inputs: [x, target, none], params },
      { inputs: [x, target, weight], params: { ...params, labelSmoothing: 0.2 } },
    ];
  },
});

/** The parameters of {@link lossesOfShards}. */
interface CrossEntropy {
  ignoreIndex: number;
  labelSmoothing: number;
}

/**
 * The losses and the log of the sum of exponentials of each row, of distributed logits. The ranks
 * reduce the largest lse, then the two sums of each row in one collective. Not differentiable.
 *
 * @internal
 */
export function lossesOfShards(
  [logits, target, weight]: readonly [Tensor, Tensor, Tensor],
  { ignoreIndex, labelSmoothing }: CrossEntropy,
): readonly Tensor[] {
  const classes = logits.sizes[1] as number;
  const shards = logits.sharding?.shardsAlong(1) ?? 1;
  const params = { ignoreIndex, labelSmoothing, firstClass: 0, classes, shards };
  const [logs, scores] = dispatch(crossEntropyStatistics, [logits, target, weight], params);
  const largest = reduced((logs as Tensor).amax(1));
  const sums = (logs as Tensor).sub(largest.unsqueeze(1)).exp().sum(1);
  const [sum, score] = reduced(stack([sums, scores as Tensor])).unbind(0) as [Tensor, Tensor];
  const lse = largest.add(sum.log());
  const counted = target.ne(ignoreIndex);
  const inner = logits.dtype === float64 ? float64 : float32;
  // The kernel reads weights in its own dtype.
  const total =
    weight.storage === null
      ? lse
      : lse.mul(massOf(where(counted, target, 0), weight.to(inner).to(float64), labelSmoothing));
  return [where(counted, total.sub(score), 0).to(inner), lse.to(inner)];
}
