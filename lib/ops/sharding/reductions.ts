/**
 * Sharding of reductions: along a dim that stays, or along a reduced one, which leaves the terms of
 * the same reduction.
 */
import { bool, type DType, uint8 } from '../../core/dtype.js';
import { boundOf } from '../../core/dtype-info.js';
import type { ReduceOpName } from '../../core/placement.js';
import type { Shape } from '../../core/shape.js';
import type { LocalRun, ShardingRule, Strategy } from '../../core/sharding-rule.js';
import type { Tensor } from '../../core/tensor.js';
import type { Reduction } from '../reduce.js';
import { linearReductions, otherDims, partialStrategies, strategy } from './strategies.js';

/** Along a dim that is not reduced; it moves forward where those before it fall away. */
function keptStrategies<P extends Reduction>(
  input: Tensor,
  { dims, keepdim }: P,
  outputs = 1,
): Strategy<P>[] {
  return otherDims(input.shape.length, dims).map((dim, i) =>
    strategy([dim], Array<number>(outputs).fill(keepdim ? dim : i)),
  );
}

function reducedStrategies<P extends Reduction>(
  { dims }: P,
  reduction: ReduceOpName,
  run?: LocalRun<P>,
): Strategy<P>[] {
  return dims.map((dim) => strategy([dim], [reduction], run));
}

/**
 * For reductions that a rank cannot do in parts; with `decomposes`, their decomposition can.
 * @internal
 */
export function keptDimsRule<P extends Reduction>(
  outputs: number,
  decomposes: boolean,
): ShardingRule<P> {
  return {
    strategies: ([x], params) => keptStrategies(x as Tensor, params, outputs),
    decomposes,
    reducedFirst: [0],
  };
}

/** Sums. The result may be wider. @internal */
export function sumRule<P extends Reduction>(dtypeOf: (t: DType) => DType): ShardingRule<P> {
  return {
    strategies: ([x], params) => {
      const input = x as Tensor;
      const kept = linearReductions(input.dtype, dtypeOf(input.dtype));
      return [
        ...keptStrategies(input, params),
        ...reducedStrategies(params, 'sum'),
        ...partialStrategies<P>(1, [0], 1, kept),
      ];
    },
  };
}

/**
 * Products; not of terms of a product, which may leave the range of numbers on one rank where the
 * whole does not. @internal
 */
export const prodRule: ShardingRule<Reduction> = {
  strategies: ([x], params) => [
    ...keptStrategies(x as Tensor, params),
    ...reducedStrategies(params, 'product'),
  ],
};

function countOf(shape: Shape, dims: readonly number[]): number {
  return dims.reduce((n, d) => n * (shape[d] as number), 1);
}

/**
 * The mean of equal pieces is the mean of their means. A run, though it only calls the op: together
 * with the one below it would divide twice.
 */
const meanOfShard: LocalRun<Reduction> = ([x], { dims, keepdim }) => [
  (x as Tensor).mean(dims, { keepdim }),
];

/**
 * Else a piece counts by its part of the elements. The mean comes first, as a sum may leave the
 * range of 16 bits.
 */
const shareOfMean: LocalRun<Reduction> = (
  [x],
  { dims, keepdim },
  { inputs: [shard], outputs: [result] },
) => {
  const input = x as Tensor;
  const [here, all] = [countOf(input.shape, dims), countOf(shard?.globalShape ?? [], dims)];
  if (here === 0 && all > 0) return [input.newZeros(result?.shape ?? [])];
  return [input.mean(dims, { keepdim }).mul(here / all)];
};

/** @internal */
export const meanRule: ShardingRule<Reduction> = {
  strategies: ([x], params, mesh) => {
    const input = x as Tensor;
    const reduced = params.dims.map((dim) =>
      mesh.divides(0, dim, input.shape[dim] as number)
        ? strategy([dim], ['avg'], meanOfShard)
        : strategy([dim], ['sum'], shareOfMean),
    );
    return [
      ...keptStrategies(input, params),
      ...reduced,
      ...partialStrategies<Reduction>(1, [0], 1, linearReductions(input.dtype, input.dtype)),
    ];
  },
};

/** Extremes. Of an empty piece it is what every element exceeds. @internal */
export function extremeRule(name: 'amax' | 'amin'): ShardingRule<Reduction> {
  const reduction = name === 'amax' ? 'max' : 'min';
  const run: LocalRun<Reduction> = ([x], { dims, keepdim }, { outputs: [result] }) => {
    const input = x as Tensor;
    if (countOf(input.shape, dims) > 0) return [input[name](dims, { keepdim })];
    if (input.dtype === bool) return [input[name === 'amax' ? 'any' : 'all'](dims, { keepdim })];
    return [
      input
        .newZeros(result?.shape ?? [])
        .fill_(boundOf(input.dtype, name === 'amax' ? 'below' : 'above')),
    ];
  };
  return {
    strategies: ([x], params) => [
      ...keptStrategies(x as Tensor, params),
      ...reducedStrategies(params, reduction, run),
      ...partialStrategies<Reduction>(1, [0], 1, [reduction]),
    ],
  };
}

/**
 * Whether some, or all, elements are true: the largest, or the smallest, of the answers. @internal
 */
export function logicRule(reduction: 'max' | 'min'): ShardingRule<Reduction> {
  return {
    strategies: ([x], params) => {
      const input = x as Tensor;
      // Of signed numbers, neither extreme says whether one of them is not 0.
      const kept: ReduceOpName[] = input.dtype === uint8 || input.dtype === bool ? [reduction] : [];
      return [
        ...keptStrategies(input, params),
        ...reducedStrategies(params, reduction),
        ...partialStrategies<Reduction>(1, [0], 1, kept),
      ];
    },
  };
}

/** Norms whose parts add up, or of which the extreme counts; the others decompose. @internal */
export function normRule<P extends Reduction & { order: number }>(): ShardingRule<P> {
  const reductions = new Map<number, ReduceOpName>([
    [0, 'sum'],
    [1, 'sum'],
    [Number.POSITIVE_INFINITY, 'max'],
    [Number.NEGATIVE_INFINITY, 'min'],
  ]);
  return {
    strategies: ([x], params) => {
      const reduction = reductions.get(params.order);
      return [
        ...keptStrategies(x as Tensor, params),
        ...(reduction === undefined ? [] : reducedStrategies(params, reduction)),
      ];
    },
    decomposes: true,
  };
}
