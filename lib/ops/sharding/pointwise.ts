/**
 * Sharding of pointwise ops: along any dim of the result, and Partial where the op commutes with
 * the reduction.
 */
import type { DType } from '../../core/dtype.js';
import type { PointwiseSpec } from '../../core/op.js';
import type { ReduceOpName } from '../../core/placement.js';
import { broadcastShapes, type Shape } from '../../core/shape.js';
import type { ShardingRule, Strategy } from '../../core/sharding-rule.js';
import type { Tensor } from '../../core/tensor.js';
import {
  anyReduction,
  broadcastPlacement,
  isNumber,
  linearReductions,
  partialStrategies,
  strategy,
} from './strategies.js';

/** The rule that follows from the spec of an op; `dtypeOf` gives the result dtype. @internal */
export function pointwiseRule<P>(
  name: string,
  spec: PointwiseSpec,
  dtypeOf: (inputs: readonly Tensor[]) => DType,
): ShardingRule<P> {
  const linear = (spec.linear ?? []).flat();
  return {
    strategies: (inputs) => [
      ...shardStrategies<P>(name, inputs),
      ...(spec.linear ?? []).flatMap((together) =>
        linearStrategies<P>(inputs, together, dtypeOf(inputs)),
      ),
      ...(spec.extreme === undefined ? [] : extremeStrategies<P>(inputs, spec.extreme)),
    ],
    // for second derivatives, which decompose the op
    reducedFirst: [0, 1, 2].filter((i) => !linear.includes(i)),
  };
}

function shardStrategies<P>(name: string, inputs: readonly Tensor[]): Strategy<P>[] {
  const shape = inputs.reduce<Shape>((s, t) => broadcastShapes(s, t.sizes, name), []);
  return shape.map((_, dim) =>
    strategy(
      inputs.map((t) => broadcastPlacement(t, dim, shape)),
      [dim],
    ),
  );
}

/** Each rank would add a number once, so a number cannot be one of the partial operands. */
function linearStrategies<P>(
  inputs: readonly Tensor[],
  together: readonly number[],
  to: DType,
): Strategy<P>[] {
  const operands = together.map((i) => inputs[i] as Tensor);
  if (operands.some(isNumber)) return [];
  const kept = operands
    .map((t) => linearReductions(t.dtype, to))
    .reduce((a, b) => a.filter((r) => b.includes(r)));
  return partialStrategies(inputs.length, together, 1, kept);
}

/** The maximum of max(a, b) is max(a, b) of the maxima; one side may be replicated. */
function extremeStrategies<P>(inputs: readonly Tensor[], reduction: ReduceOpName): Strategy<P>[] {
  const sides = [[0, 1], [0], [1]].filter((side) =>
    side.every((i) => !isNumber(inputs[i] as Tensor)),
  );
  return sides.flatMap((side) => partialStrategies<P>(inputs.length, side, 1, [reduction]));
}

/** Copies keep Shard, and Partial of any reduction unless the new dtype is narrower. @internal */
export function copyRule<P>(
  dtypeOf: (input: Tensor, params: P) => DType,
): ShardingRule<P, readonly [Tensor]> {
  return {
    strategies: ([input], params) => {
      const to = dtypeOf(input, params);
      return [
        ...shardStrategies<P>('copy', [input]),
        ...partialStrategies<P>(
          1,
          [0],
          1,
          to === input.dtype ? anyReduction : linearReductions(input.dtype, to),
        ),
      ];
    },
  };
}

/**
 * Ops that fill a tensor with one value. The mean, the minimum and the maximum of equal values are
 * that value, and the sum of zeros is zero, so these reductions are kept. @internal
 */
export function fillRule<P extends { value: number | bigint }>(): ShardingRule<
  P,
  readonly [Tensor]
> {
  return {
    strategies: ([x], { value }) => {
      const kept: ReduceOpName[] = x.dtype.isFloatingPoint ? ['avg', 'min', 'max'] : ['min', 'max'];
      return [
        ...shardStrategies<P>('fill', [x]),
        ...partialStrategies<P>(1, [0], 1, Number(value) === 0 ? [...kept, 'sum'] : kept),
      ];
    },
  };
}
