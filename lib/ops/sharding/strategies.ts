/** The vocabulary of sharding rules: a strategy is one placement for each operand. */
import { bool, type DType, promoteTypes } from '../../core/dtype.js';
import {
  Partial,
  type Placement,
  type ReduceOpName,
  Replicate,
  reduceOpNames,
  Shard,
} from '../../core/placement.js';
import type { Shape } from '../../core/shape.js';
import type { Strategy } from '../../core/sharding-rule.js';
import type { Tensor } from '../../core/tensor.js';

/** A number is Shard(dim), null is Replicate(), a name is Partial(reduceOp). @internal */
export type PlacementShorthand = number | null | ReduceOpName;

function placementOf(at: PlacementShorthand): Placement {
  return at === null ? Replicate() : typeof at === 'number' ? Shard(at) : Partial(at);
}

/** A strategy from the placements of inputs and outputs. @internal */
export function strategy<P>(
  inputs: readonly PlacementShorthand[],
  outputs: readonly PlacementShorthand[],
  run?: Strategy<P>['run'],
): Strategy<P> {
  const placements = { inputs: inputs.map(placementOf), outputs: outputs.map(placementOf) };
  return run === undefined ? placements : { ...placements, run };
}

/** Whether an operand is a number; an absent optional tensor is one too. @internal */
export const isNumber = (t: Tensor): boolean => t.storage === null;

/** All dims except some. @internal */
export function otherDims(ndim: number, but: readonly number[]): number[] {
  return Array.from({ length: ndim }, (_, d) => d).filter((d) => !but.includes(d));
}

/**
 * The placement of an operand when the result, of the shape that it broadcasts to, is sharded along
 * `dim`: replicated if it is expanded there. @internal
 */
export function broadcastPlacement(t: Tensor, dim: number, shape: Shape): PlacementShorthand {
  const at = dim - (shape.length - t.sizes.length);
  return !isNumber(t) && at >= 0 && t.sizes[at] === shape[dim] ? at : null;
}

/**
 * One strategy for each reduction: the inputs `of` and all outputs are Partial, the other inputs
 * replicated. @internal
 */
export function partialStrategies<P>(
  count: number,
  of: readonly number[],
  outputs: number,
  reductions: readonly ReduceOpName[],
): Strategy<P>[] {
  return reductions.map((r) =>
    strategy(
      Array.from({ length: count }, (_, i) => (of.includes(i) ? r : null)),
      Array<PlacementShorthand>(outputs).fill(r),
    ),
  );
}

/** An op that only moves or selects elements keeps Partial of any reduction. @internal */
export const anyReduction = reduceOpNames;

/**
 * The reductions that a linear op may run before. None if partial values lose digits that their sum
 * would have kept, or if integers wrap around in another width. Not the mean of integers, which is
 * no integer.
 *
 * @internal
 */
export function linearReductions(from: DType, to: DType): readonly ReduceOpName[] {
  if (from.isFloatingPoint && to.isFloatingPoint && promoteTypes(from, to) === to)
    return ['sum', 'avg'];
  return from === to && from !== bool ? ['sum'] : [];
}
