/**
 * Sharding of cross entropy: along the rows, and in backward along the classes too. Forward with
 * sharded classes decomposes into a softmax that communicates.
 */
import type { LocalRun, ShardingRule } from '../../core/sharding-rule.js';
import type { Tensor } from '../../core/tensor.js';
import { isNumber, linearReductions, partialStrategies, strategy } from './strategies.js';

interface CrossEntropy {
  ignoreIndex: number;
  labelSmoothing: number;
}

/** The gradient, the logits, the log of the row sums, the targets and the weight. */
type Backward = readonly [Tensor, Tensor, Tensor, Tensor, Tensor];

/** Forward, of logits [rows, classes]. @internal */
export const crossEntropyRule: ShardingRule<CrossEntropy> = {
  strategies: () => [strategy([0, 0, null], [0, 0])],
  decomposes: true,
  reducedFirst: [0, 1, 2],
};

/** Forward with a scale after the weight; the third output is the gradient. @internal */
export function crossEntropyWithGradientRule<P>(): ShardingRule<P> {
  return {
    strategies: () => [strategy([0, 0, null, null], [0, 0, 0])],
    decomposes: true,
    reducedFirst: [0, 1, 2],
  };
}

/** Multiplies each row by a number; linear in the rows. @internal */
export const scaleRowsRule: ShardingRule<object, readonly [Tensor, Tensor]> = {
  strategies: ([x]) => {
    const { shape, dtype } = x;
    const sharded = shape.map((_, dim) => strategy(dim === 0 ? [0, 0] : [dim, null], [dim]));
    return [...sharded, ...partialStrategies<object>(2, [0], 1, linearReductions(dtype, dtype))];
  },
};

/**
 * Backward. With sharded classes it needs no communication, because forward saved the sum over all
 * classes. It is linear in the incoming gradient. @internal
 */
export const crossEntropyBackwardRule: ShardingRule<CrossEntropy, Backward> = {
  strategies: ([, logits]) => {
    const { dtype } = logits;
    return [
      strategy([0, 0, 0, 0, null], [0]),
      strategy([null, 1, null, null, null], [1], gradientOfClasses),
      ...partialStrategies<CrossEntropy>(5, [0], 1, linearReductions(dtype, dtype)),
    ];
  },
};

/** (softmax * sum of the labels - labels) * g for the classes of the local shard. */
const gradientOfClasses: LocalRun<CrossEntropy, Backward> = (
  [g, x, lse, target, weight],
  { ignoreIndex, labelSmoothing },
  { inputs: [, shard] },
) => {
  const column = lse.unsqueeze(1);
  const [start, all, here] = [
    shard?.offsets[1] ?? 0,
    shard?.globalShape[1] ?? 0,
    x.shape[1] as number,
  ];
  const counted = target.ne(ignoreIndex);
  const label = target.maskedFill(counted.logicalNot(), 0);
  const weights = isNumber(weight) ? column.newOnes([all]) : weight.to(column.dtype);
  const spread = labelSmoothing / all;
  const total = weights
    .indexSelect(0, label)
    .mul(1 - labelSmoothing)
    .add(weights.sum().mul(spread));
  const classes = label
    .newOnes([here])
    .cumsum(0)
    .add(start - 1);
  const smooth = label
    .unsqueeze(1)
    .eq(classes)
    .to(column.dtype)
    .mul(1 - labelSmoothing)
    .add(spread)
    .mul(weights.narrow(0, start, here));
  const rows = x.to(column.dtype).sub(column).exp().mul(total.unsqueeze(1)).sub(smooth);
  return [rows.mul(g.unsqueeze(1)).maskedFill(counted.logicalNot().unsqueeze(1), 0).to(x.dtype)];
};
