/**
 * The operands of cross entropy over sharded classes. cross-entropy-shards.ts computes it: for each
 * row, the ranks exchange only the largest log of their sums and two sums.
 */

import { ShardingError } from '../core/errors.js';
import { lossMode } from '../core/modes.js';
import { formatShape } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';

/** Operands of cross entropy beside the logits. @internal */
export interface LossOperands {
  readonly target: Tensor;
  readonly weight: Tensor | null;
}

/**
 * Prepares the operands while `lossParallel` is on: plain ones beside distributed logits count as
 * replicated.
 *
 * @throws ShardingError if the loss would have to gather the logits
 * @internal
 */
export function parallelOperands(
  op: string,
  logits: Tensor,
  { target, weight }: LossOperands,
): LossOperands {
  const { sharding } = logits;
  if (!lossMode.parallel || sharding === null) return { target, weight };
  const classDim = logits.sizes.length === 1 ? 0 : 1;
  if (!sharding.spec.placements.some((placement) => placement.isShard(classDim))) {
    throw new ShardingError(
      `${op}: lossParallel is on, but the logits are not sharded along their classes (dim ` +
        `${classDim}): ${sharding.spec}. Bring them to Shard(${classDim}): give the last layer ` +
        'ColwiseParallel({ useLocalOutput: false }), or leave lossParallel out.',
      { op },
    );
  }
  if (target.dtype.isFloatingPoint) {
    throw new ShardingError(
      `${op}: lossParallel takes class indices, got class probabilities ` +
        `(${target.dtype.name}${formatShape(target.sizes)}). Leave lossParallel out to have them ` +
        'computed by other ops.',
      { op },
    );
  }
  if (
    weight !== null &&
    (weight.requiresGrad ||
      weight.sharding?.spec.placements.some((placement) => !placement.isReplicate()))
  ) {
    throw new ShardingError(
      `${op}: lossParallel takes a weight that is replicated and requires no gradient, got ` +
        `${weight.sharding?.spec ?? 'one that requires a gradient'}. Use weight.detach(), ` +
        'or redistribute it.',
      { op },
    );
  }
  const alike = (t: Tensor): Tensor => (t.sharding === null ? sharding.replicated(t.detach()) : t);
  return { target: alike(target), weight: weight === null ? null : alike(weight) };
}
