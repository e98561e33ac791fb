/**
 * Sharding of reductions: along a kept dim, or along a reduced dim, which leaves partial values of
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

/** Sharded along a kept dim, which moves forward where reduced dims before it are removed. */
function keptStrategies<P extends Reduction>(
  input: Tensor,
  { dims, keepdim }: P,
  outputs = 1,
): Strategy<P>[] {
  return otherDims(input.sizes.length, dims).map((dim, i) =>
    strategy([dim], Array<number>(outputs).fill(keepdim ? dim : i)),
  );
}

function reducedStrategies<P extends Reduction>(
  { dims }: P,
  reduction: ReduceOpName,
  run?: Strategy<P>['run'],
): Strategy<P>[] {
  return dims.map((dim) => strategy([dim], [reduction], run));
}

/** For reductions that do not combine over shards; the decomposition may do so. @internal */
export function keptDimsRule<P extends Reduction>(
  outputs: number,
  decomposes: boolean,
): ShardingRule<P, readonly [Tensor]> {
  return {
    strategies: ([x], params) => keptStrategies(x, params, outputs),
    decomposes,
    reducedFirst: [0],
  };
}

/** Sums; the result dtype may be wider. @internal */
export function sumRule<P extends Reduction>(
  dtypeOf: (t: DType) => DType,
): ShardingRule<P, readonly [Tensor]> {
  return {
    strategies: ([input], params) => {
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
 * Products. Partial products are not an input, because one rank may overflow where the whole
 * product does not. @internal
 */
export const prodRule: ShardingRule<Reduction, readonly [Tensor]> = {
  strategies: ([x], params) => [
    ...keptStrategies(x, params),
    ...reducedStrategies(params, 'product'),
  ],
};

function countOf(shape: Shape, dims: readonly number[]): number {
  return dims.reduce((n, d) => n * (shape[d] as number), 1);
}

/**
 * The mean over equal shards is the mean of their means. It only calls the op, but is a run of its
 * own so that it does not combine with {@link shareOfMean}, which would divide twice.
 */
const meanOfShard: LocalRun<Reduction, readonly [Tensor]> = ([x], { dims, keepdim }) => [
  x.mean(dims, { keepdim }),
];

/**
 * The mean over unequal shards, each weighted by its number of elements. It scales the local mean,
 * because a sum may overflow in 16 bits.
 */
const shareOfMean: LocalRun<Reduction, readonly [Tensor]> = (
  [input],
  { dims, keepdim },
  { inputs: [shard], outputs: [result] },
) => {
  const [here, all] = [countOf(input.sizes, dims), countOf(shard?.globalShape ?? [], dims)];
  if (here === 0 && all > 0) return [input.newZeros(result?.shape ?? [])];
  return [input.mean(dims, { keepdim }).mul(here / all)];
};

/** Means. @internal */
export const meanRule: ShardingRule<Reduction, readonly [Tensor]> = {
  strategies: ([input], params, mesh) => {
    const reduced = params.dims.map((dim) =>
      mesh.divides(0, dim, input.sizes[dim] as number)
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

/** Extremes. An empty shard gives the identity of the reduction. @internal */
export function extremeRule(name: 'amax' | 'amin'): ShardingRule<Reduction, readonly [Tensor]> {
  const reduction = name === 'amax' ? 'max' : 'min';
  const run: LocalRun<Reduction, readonly [Tensor]> = (
    [input],
    { dims, keepdim },
    { outputs: [result] },
  ) => {
    if (countOf(input.sizes, dims) > 0) return [input[name](dims, { keepdim })];
    if (input.dtype === bool) return [input[name === 'amax' ? 'any' : 'all'](dims, { keepdim })];
    return [
      input
        .newZeros(result?.shape ?? [])
        .fill_(boundOf(input.dtype, name === 'amax' ? 'below' : 'above')),
    ];
  };
  return {
    strategies: ([x], params) => [
      ...keptStrategies(x, params),
      ...reducedStrategies(params, reduction, run),
      ...partialStrategies<Reduction>(1, [0], 1, [reduction]),
    ],
  };
}

/** `any` and `all`: the maximum, or the minimum, of the local results. @internal */
export function logicRule(reduction: 'max' | 'min'): ShardingRule<Reduction, readonly [Tensor]> {
  return {
    strategies: ([input], params) => {
      // For signed numbers, neither extreme says whether an element differs from 0.
      const kept: ReduceOpName[] = input.dtype === uint8 || input.dtype === bool ? [reduction] : [];
      return [
        ...keptStrategies(input, params),
        ...reducedStrategies(params, reduction),
        ...partialStrategies<Reduction>(1, [0], 1, kept),
      ];
    },
  };
}

/** Norms of order 0, 1 and infinity combine over shards; the others decompose. @internal */
export function normRule<P extends Reduction & { order: number }>(): ShardingRule<
  P,
  readonly [Tensor]
> {
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
        ...keptStrategies(x, params),
        ...(reduction === undefined ? [] : reducedStrategies(params, reduction)),
      ];
    },
    decomposes: true,
  };
}
