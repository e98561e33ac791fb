/** Sharding of concatenation, and of foreach ops on lists of independent tensors. */
import type { ReduceOpName } from '../../core/placement.js';
import type { ShardingRule } from '../../core/sharding-rule.js';
import type { Tensor } from '../../core/tensor.js';
import {
  anyReduction,
  isNumber,
  otherDims,
  type PlacementShorthand,
  partialStrategies,
  strategy,
} from './strategies.js';

interface Cat {
  dim: number;
  sizes: readonly number[];
}

/**
 * Concatenation along a dim: all inputs are sharded along another dim. An empty vector, which
 * concatenates with any shape, is replicated. @internal
 */
export const catRule: ShardingRule<Cat> = {
  strategies: (inputs, { dim }) => {
    const ndim = Math.max(...inputs.map((t) => t.sizes.length));
    const placementsAlong = (at: number): PlacementShorthand[] =>
      inputs.map((t) => (t.sizes.length === ndim ? at : null));
    return [
      ...otherDims(ndim, [dim]).map((at) => strategy(placementsAlong(at), [at])),
      ...partialStrategies<Cat>(inputs.length, [...inputs.keys()], 1, anyReduction),
    ];
  },
};

/**
 * Foreach ops. The inputs are several lists of `count` tensors; element `i` of each list belongs
 * together: a parameter, its gradient and its states. The element of the first list leads.
 *
 * @param reductions the reductions of Partial placements that the op keeps
 * @internal
 */
export function foreachRule<P extends { count: number }>(
  reductions: readonly ReduceOpName[],
): ShardingRule<P> {
  const leaders = (inputs: readonly Tensor[], { count }: P): number[] =>
    inputs.map((t, i) => (isNumber(t) ? i : i % count));
  return { strategies: () => [], follows: { leaders, reductions } };
}

/** Foreach ops that decompose into ops on the single tensors. @internal */
export function decomposedForeachRule<P>(): ShardingRule<P> {
  return { strategies: () => [], decomposes: true };
}
