/** The norm of gradients of which each rank holds a shard. */
import { allReduce, type ProcessGroup } from '../../distributed/index.js';
import { float32, nn, noGrad, promoteTypes, type Tensor, tensor } from '../../index.js';

/** Gradients on this rank, and the groups whose ranks hold the others. All ranks have equal groups. */
export interface GradientPart {
  readonly grads: readonly Tensor[];
  readonly groups: readonly ProcessGroup[];
}

/**
 * Scales gradients in place so that the norm of all parts, on all ranks, is at most `maxNorm`.
 * Returns the norm before.
 */
export function clipGradients(
  parts: readonly GradientPart[],
  maxNorm: number,
  normType: number,
): Tensor {
  return noGrad(() => {
    const isMax = normType === Number.POSITIVE_INFINITY;
    const powers = joined(parts).map(({ grads, groups }) => {
      const power = powerOf(grads, normType);
      for (const group of groups) allReduce(power, { op: isMax ? 'max' : 'sum', group });
      return power;
    });
    const all = powers.reduce((sum, power) => (isMax ? sum.maximum(power) : sum.add(power)));
    const total = isMax ? all : all.pow(1 / normType);
    const factor = total.add(1e-6).reciprocal().mul(maxNorm).clamp({ max: 1 });
    for (const grad of parts.flatMap(({ grads }) => grads))
      grad.mul_(factor.to({ dtype: grad.dtype, device: grad.device }));
    return total;
  });
}

/** One part for all that are on the same groups: they share collectives. */
function joined(parts: readonly GradientPart[]): GradientPart[] {
  const byGroups = new Map<string, GradientPart>();
  for (const { grads, groups } of parts) {
    const key = groups.map(({ name }) => name).join();
    const known = byGroups.get(key)?.grads ?? [];
    byGroups.set(key, { grads: [...known, ...grads], groups });
  }
  return [...byGroups.values()];
}

/** The sum of powers, or the maximum, of the elements on this rank. */
function powerOf(grads: readonly Tensor[], normType: number): Tensor {
  if (grads.length === 0) return tensor(0);
  const norm = nn.utils.getTotalNorm(grads, normType);
  const wide = norm.to(promoteTypes(norm.dtype, float32));
  return normType === Number.POSITIVE_INFINITY ? wide.clone() : wide.pow(normType);
}
