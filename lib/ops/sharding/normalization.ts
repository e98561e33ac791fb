/** Sharding of LayerNorm and RMSNorm: rows may be sharded, the normalized dims may not. */
import type { Shape } from '../../core/shape.js';
import type { ShardingRule } from '../../core/sharding-rule.js';
import type { Tensor } from '../../core/tensor.js';
import {
  isNumber,
  linearReductions,
  type PlacementShorthand,
  partialStrategies,
  strategy,
} from './strategies.js';

/** The number of dims before the last dims with `width` elements in all. @internal */
export function outerDims(shape: Shape, width: number): number {
  let at = shape.length - 1;
  for (let n = shape[at] ?? 1; at > 0 && n !== width; ) n *= shape[--at] as number;
  return Math.max(at, 0);
}

/** `placement` for the operands `at`, Replicate for the others. */
function placementsAt(
  count: number,
  at: readonly number[],
  placement: PlacementShorthand,
): PlacementShorthand[] {
  return Array.from({ length: count }, (_, i) => (at.includes(i) ? placement : null));
}

interface NormParams {
  width: number;
  low?: unknown;
  alone?: boolean;
}

/**
 * Forward: input 0, or all inputs of `rows`, and all outputs are sharded along the rows, as is the
 * result in 16 bits if it is one more. The other inputs belong to columns and are replicated.
 *
 * @internal
 */
export function normalizationRule<P extends NormParams>(
  outputs: number,
  rows: readonly number[] = [0],
): ShardingRule<P> {
  return {
    strategies: (inputs, { width, low, alone }) => {
      const outer = width === 0 ? 0 : outerDims((inputs[0] as Tensor).sizes, width);
      const count = low === undefined || alone ? outputs : outputs + 1;
      return Array.from({ length: outer }, (_, dim) =>
        strategy(
          placementsAt(inputs.length, rows, dim),
          Array<PlacementShorthand>(count).fill(dim),
        ),
      );
    },
    decomposes: true,
    reducedFirst: rows.length === 1 ? rows : [], // the decomposition adds two inputs first
  };
}

/**
 * Backward: all inputs except the weight, which is the last one, and output 0 are sharded along the
 * rows, as is its 16-bit copy behind all others. The other outputs are sums over rows. The op is
 * linear in the inputs of `linear` together, except for that copy; an absent input is a number.
 *
 * @internal
 */
export function normalizationBackwardRule<P extends NormParams>(
  outputs: number,
  linear: readonly number[] = [0],
): ShardingRule<P> {
  const sums = Array<PlacementShorthand>(outputs - 1).fill('sum');
  return {
    strategies: (inputs, { width, low }) => {
      const { sizes: shape, dtype } = inputs[1] as Tensor;
      const present = (i: number): boolean => !isNumber(inputs[i] as Tensor);
      const byRows = inputs
        .map((_, i) => i)
        .slice(0, -1)
        .filter(present);
      const outer = width === 0 ? 0 : outerDims(shape, width);
      const sharded = Array.from({ length: outer }, (_, dim) =>
        strategy<P>(placementsAt(inputs.length, byRows, dim), [
          dim,
          ...sums,
          ...(low === undefined ? [] : [dim]),
        ]),
      );
      if (low !== undefined) return sharded;
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
