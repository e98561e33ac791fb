/**
 * Sharding of ops whose operands all have the same dims, some of which they mix: along each of the
 * others.
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

/** Every operand cut along the same dim. @internal */
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
  /** Number of results; 1 by default. */
  outputs?: number;
  /** The input in which it is linear, in int64 if it is of integers; none by default. */
  linear?: number;
  decomposes?: boolean;
  /** See {@link ShardingRule}. */
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
      const { shape, dtype } = inputs[0] as Tensor;
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
