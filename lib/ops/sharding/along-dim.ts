/**
 * Sharding of ops whose operands all have the same dims: along each dim that the op does not mix.
 */
import { int64 } from '../../core/dtype.js';
import type { ShardingRule, Strategy } from '../../core/sharding-rule.js';
import type { Tensor } from '../../core/tensor.js';
import {
  linearReductions,
  otherDims,
  type PlacementShorthand,
  partialStrategies,
  strategy,
} from './strategies.js';

/** Every operand is sharded along the same dim. @internal */
export function sameDimStrategies<P>(
  ndim: number,
  mixed: readonly number[],
  inputs: number,
  outputs: number,
): Strategy<P>[] {
  return otherDims(ndim, mixed).map((dim) =>
    strategy(
      Array<PlacementShorthand>(inputs).fill(dim),
      Array<PlacementShorthand>(outputs).fill(dim),
    ),
  );
}

interface Dimwise {
  /** The number of outputs; 1 by default. */
  outputs?: number;
  /** The input in which the op is linear; none by default. Integers are added in int64. */
  linear?: number;
  decomposes?: boolean;
  /** See {@link ShardingRule.reducedFirst}. */
  reducedFirst?: readonly number[];
}

/** The rule of an op that works along `dim`. @internal */
export function alongDimRule<P extends { dim: number }>({
  outputs = 1,
  linear,
  decomposes = false,
  reducedFirst = [],
}: Dimwise = {}): ShardingRule<P> {
  return {
    strategies: (inputs, { dim }) => {
      const { sizes: shape, dtype } = inputs[0] as Tensor;
      const reductions =
        linear === undefined
          ? []
          : partialStrategies<P>(
              inputs.length,
              [linear],
              outputs,
              linearReductions(dtype, dtype.isFloatingPoint ? dtype : int64),
            );
      return [...sameDimStrategies<P>(shape.length, [dim], inputs.length, outputs), ...reductions];
    },
    decomposes,
    reducedFirst,
  };
}
