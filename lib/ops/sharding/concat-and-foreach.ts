/** Sharding of ops on lists of tensors. */
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
 * Joining along a dim: all are cut along another one; an empty vector, which joins with anything,
 * has none. @internal
 */
export const catRule: ShardingRule<Cat> = {
  strategies: (inputs, { dim }) => {
    const ndim = Math.max(...inputs.map((t) => t.shape.length));
    const placementsAlong = (at: number): PlacementShorthand[] =>
      inputs.map((t) => (t.shape.length === ndim ? at : null));
    return [
      ...otherDims(ndim, [dim]).map((at) => strategy(placementsAlong(at), [at])),
      ...partialStrategies<Cat>(inputs.length, [...inputs.keys()], 1, anyReduction),
    ];
  },
};

/**
 * Lists one after another, of which the elements at one place belong together: a parameter, its
 * gradient and its states. Each place goes by the first list; `terms` are the reductions in whose
 * terms it may be.
 *
 * @internal
 */
export function foreachRule<P extends { count: number }>(
  reductions: readonly ReduceOpName[],
): ShardingRule<P> {
  const leaders = (inputs: readonly Tensor[], { count }: P): number[] =>
    inputs.map((t, i) => (isNumber(t) ? i : i % count));
  return { strategies: () => [], follows: { leaders, reductions } };
}

/** What decomposes into ops on the single tensors. @internal */
export function decomposedForeachRule<P>(): ShardingRule<P> {
  return { strategies: () => [], decomposes: true };
}
