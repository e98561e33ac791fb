/**
 * Sharding of cross entropy: along the rows, and in backward along the classes too. Forward with
 * sharded classes decomposes into statistics of the shards, which ranks exchange.
 */
import { dispatch } from '../../core/dispatch.js';
import type { Op } from '../../core/op.js';
import type { LocalRun, ShardedCall, ShardingRule, ShardMeta } from '../../core/sharding-rule.js';
import type { Tensor } from '../../core/tensor.js';
import { cat } from '../join.js';
import { linearReductions, partialStrategies, strategy } from './strategies.js';

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
    const { sizes: shape, dtype } = x;
    const sharded = shape.map((_, dim) => strategy(dim === 0 ? [0, 0] : [dim, null], [dim]));
    return [...sharded, ...partialStrategies<object>(2, [0], 1, linearReductions(dtype, dtype))];
  },
};

/** The logits of a call begin at this class. */
interface FirstClass {
  firstClass: number;
}

/** The params of the local call, whose logits, input `logits`, begin at the offset of the shard. */
function fromOffset<P extends FirstClass>(params: P, { inputs }: ShardedCall, logits: number): P {
  const offset = inputs[logits]?.offsets[1] ?? 0;
  return { ...params, firstClass: params.firstClass + offset };
}

/**
 * The statistics of shards of the classes. Each shard has its column of the logs of sums, so
 * classes are sharded only into as many shards as the call has. A rank with more of the classes has
 * its log in its first column, and those of no classes in the others. @internal
 */
export function crossEntropyStatisticsRule<P extends FirstClass & { shards: number }>(
  op: () => Op<P>,
): ShardingRule<P> {
  const local: LocalRun<P> = (inputs, params, call) => {
    const outputs = dispatch(op(), inputs, { ...fromOffset(params, call, 0), shards: 1 });
    const [lse, score] = outputs as [Tensor, Tensor];
    const [rows, columns] = (call.outputs[0] as ShardMeta).shape as [number, number];
    return columns === 1
      ? outputs
      : [cat([lse, lse.newFull([rows, columns - 1], -Infinity)], 1), score];
  };
  return {
    strategies: (_inputs, { shards }, mesh) => [
      strategy([0, 0, null], [0, 0], local),
      ...(mesh.divides(0, 1, shards) ? [strategy<P>([1, null, null], [1, 'sum'], local)] : []),
    ],
    reducedFirst: [0, 1, 2],
  };
}

/**
 * Backward. With sharded classes it needs no communication, because forward saved the sum over all
 * classes. It is linear in the incoming gradient. @internal
 */
export function crossEntropyBackwardRule<P extends FirstClass>(): ShardingRule<P, Backward> {
  return {
    strategies: ([, { dtype }]) => [
      strategy([0, 0, 0, 0, null], [0]),
      strategy([null, 1, null, null, null], [1]),
      ...partialStrategies<P>(5, [0], 1, linearReductions(dtype, dtype)),
    ],
    localParams: (params, call) => fromOffset(params, call, 1),
  };
}
