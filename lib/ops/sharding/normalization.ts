/**
 * Sharding of ops that work on rows: normalisation and cross entropy. The rows are shared, what
 * belongs to columns is not.
 */
import type { Shape } from '../../core/shape.js';
import type { LocalRun, ShardingRule } from '../../core/sharding-rule.js';
import type { Tensor } from '../../core/tensor.js';
import {
  isNumber,
  linearReductions,
  type PlacementShorthand,
  partialStrategies,
  strategy,
} from './strategies.js';

/** How many dims stand before those that together have `width` elements. @internal */
export function outerDims(shape: Shape, width: number): number {
  let at = shape.length - 1;
  for (let n = shape[at] ?? 1; at > 0 && n !== width; ) n *= shape[--at] as number;
  return Math.max(at, 0);
}

/** One place for each operand, the others in copies. */
function placementsAt(
  count: number,
  at: readonly number[],
  placement: PlacementShorthand,
): PlacementShorthand[] {
  return Array.from({ length: count }, (_, i) => (at.includes(i) ? placement : null));
}

interface NormParams {
  width: number;
}

/**
 * Normalisation: input 0, or all of `rows`, has the rows, the others belong to columns. All outputs
 * go by rows. @internal
 */
export function normalizationRule<P extends NormParams>(
  outputs: number,
  rows: readonly number[] = [0],
): ShardingRule<P> {
  return {
    strategies: (inputs, { width }) => {
      const outer = width === 0 ? 0 : outerDims((inputs[0] as Tensor).shape, width);
      return Array.from({ length: outer }, (_, dim) =>
        strategy(
          placementsAt(inputs.length, rows, dim),
          Array<PlacementShorthand>(outputs).fill(dim),
        ),
      );
    },
    decomposes: true,
    reducedFirst: rows.length === 1 ? rows : [], // two are added first
  };
}

/**
 * Its gradients: inputs but the last one, the weight, go by rows; output 0 too, the others are sums
 * over rows. Linear in the first input, or in those of `linear` together; what is absent is a
 * number.
 *
 * @internal
 */
export function normalizationBackwardRule<P extends NormParams>(
  outputs: number,
  linear: readonly number[] = [0],
): ShardingRule<P> {
  const sums = Array<PlacementShorthand>(outputs - 1).fill('sum');
  return {
    strategies: (inputs, { width }) => {
      const { shape, dtype } = inputs[1] as Tensor;
      const present = (i: number): boolean => !isNumber(inputs[i] as Tensor);
      const byRows = inputs
        .map((_, i) => i)
        .slice(0, -1)
        .filter(present);
      const outer = width === 0 ? 0 : outerDims(shape, width);
      const sharded = Array.from({ length: outer }, (_, dim) =>
        strategy<P>(placementsAt(inputs.length, byRows, dim), [dim, ...sums]),
      );
      return [
        ...sharded,
        ...partialStrategies<P>(
          inputs.length,
          linear.filter(present),
          outputs,
          linearReductions(dtype, dtype),
        ),
      ];
    },
    decomposes: true,
    reducedFirst: [1],
  };
}

interface CrossEntropy {
  ignoreIndex: number;
  labelSmoothing: number;
}

/**
 * Cross entropy of logits [rows, classes]; with the classes cut it decomposes into a softmax that
 * communicates. @internal
 */
export const crossEntropyRule: ShardingRule<CrossEntropy> = {
  strategies: () => [strategy([0, 0, null], [0, 0])],
  decomposes: true,
  reducedFirst: [0, 1, 2],
};

/** With a scale behind the weight, and the gradient of the logits as a third output. @internal */
export function crossEntropyWithGradientRule<P>(): ShardingRule<P> {
  return {
    strategies: () => [strategy([0, 0, null, null], [0, 0, 0])],
    decomposes: true,
    reducedFirst: [0, 1, 2],
  };
}

/** Rows times a number for each: linear in the rows. @internal */
export const scaleRowsRule: ShardingRule<object> = {
  strategies: ([x]) => {
    const { shape, dtype } = x as Tensor;
    const sharded = shape.map((_, dim) => strategy(dim === 0 ? [0, 0] : [dim, null], [dim]));
    return [...sharded, ...partialStrategies<object>(2, [0], 1, linearReductions(dtype, dtype))];
  },
};

/**
 * The gradient needs no communication with the classes cut either: the sum over all of them is
 * known. Linear in the gradient. @internal
 */
export const crossEntropyBackwardRule: ShardingRule<CrossEntropy> = {
  strategies: ([, logits]) => {
    const { dtype } = logits as Tensor;
    return [
      strategy([0, 0, 0, 0, null], [0]),
      strategy([null, 1, null, null, null], [1], gradientOfClasses),
      ...partialStrategies<CrossEntropy>(5, [0], 1, linearReductions(dtype, dtype)),
    ];
  },
};

/** (softmax * sum of the labels - labels) * g for the classes that the rank has. */
const gradientOfClasses: LocalRun<CrossEntropy> = (
  [g, logits, lse, target, weight],
  { ignoreIndex, labelSmoothing },
  { inputs: [, shard] },
) => {
  const [x, column] = [logits as Tensor, (lse as Tensor).unsqueeze(1)];
  const [start, all, here] = [
    shard?.offsets[1] ?? 0,
    shard?.globalShape[1] ?? 0,
    x.shape[1] as number,
  ];
  const counted = (target as Tensor).ne(ignoreIndex);
  const label = (target as Tensor).maskedFill(counted.logicalNot(), 0);
  const weights = isNumber(weight as Tensor)
    ? column.newOnes([all])
    : (weight as Tensor).to(column.dtype);
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
  return [
    rows
      .mul((g as Tensor).unsqueeze(1))
      .maskedFill(counted.logicalNot().unsqueeze(1), 0)
      .to(x.dtype),
  ];
};
