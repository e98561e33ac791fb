/**
 * The words that sharding rules are written in: a way to run an op is one place for each operand.
 */
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
import type { LocalRun, Strategy } from '../../core/sharding-rule.js';
import type { Tensor } from '../../core/tensor.js';

/** Where an operand is: cut along a dim, in copies (null), or in terms of a reduction. @internal */
export type PlacementShorthand = number | null | ReduceOpName;

function placementOf(at: PlacementShorthand): Placement {
  return at === null ? Replicate() : typeof at === 'number' ? Shard(at) : Partial(at);
}

/** One strategy. @internal */
export function strategy<P>(
  inputs: readonly PlacementShorthand[],
  outputs: readonly PlacementShorthand[],
  run?: LocalRun<P>,
): Strategy<P> {
  const placements = { inputs: inputs.map(placementOf), outputs: outputs.map(placementOf) };
  return run === undefined ? placements : { ...placements, run };
}

/** A number in the place of a tensor, also of one that is absent. @internal */
export const isNumber = (t: Tensor): boolean => t.storage === null;

/** All dims but some. @internal */
export function otherDims(ndim: number, but: readonly number[]): number[] {
  return Array.from({ length: ndim }, (_, d) => d).filter((d) => !but.includes(d));
}

/**
 * Where an operand is cut when the result is cut along `dim` of a shape that it broadcasts to:
 * nowhere if it is stretched there. @internal
 */
export function broadcastPlacement(t: Tensor, dim: number, shape: Shape): PlacementShorthand {
  const at = dim - (shape.length - t.shape.length);
  return !isNumber(t) && at >= 0 && t.shape[at] === shape[dim] ? at : null;
}

/**
 * For each reduction: the inputs `of` in its terms, the others in copies; all of `outputs` in its
 * terms. @internal
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

/** What only moves or chooses elements does so with the terms of any reduction. @internal */
export const anyReduction = reduceOpNames;

/**
 * The reductions that a linear op may leave to be done after it. None where the terms lose digits
 * that their sum would have kept, or where integers wrap around in another width; a mean of
 * integers is no integer.
 *
 * @internal
 */
export function linearReductions(from: DType, to: DType): readonly ReduceOpName[] {
  if (from.isFloatingPoint && to.isFloatingPoint && promoteTypes(from, to) === to)
    return ['sum', 'avg'];
  return from === to && from !== bool ? ['sum'] : [];
}
