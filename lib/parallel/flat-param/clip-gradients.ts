/** The norm of gradients of which each rank holds a shard. */
import { allReduce, type ProcessGroup } from '../../distributed/index.js';
import { type Device, type DType, nn, noGrad, type Tensor, tensor } from '../../index.js';

/**
 * Gradients on this rank, and the groups whose ranks hold the others. All ranks have equal groups.
 */
export interface GradientPart {
  readonly grads: readonly Tensor[];
  readonly groups: readonly ProcessGroup[];
  /** The dtype of the norm, and the device of the groups. */
  readonly dtype: DType;
  readonly device: Device;
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
    const powers = joined(parts).map((part) => {
      const power = powerOf(part, normType);
      for (const group of part.groups) allReduce(power, { op: isMax ? 'max' : 'sum', group });
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
  for (const part of parts) {
    const key = [part.dtype.name, part.device, ...part.groups.map(({ name }) => name)].join();
    const known = byGroups.get(key)?.grads ?? [];
    byGroups.set(key, { ...part, grads: [...known, ...part.grads] });
  }
  return [...byGroups.values()];
}

/** The sum of powers, or the maximum, of the elements on this rank. */
function powerOf({ grads, dtype, device }: GradientPart, normType: number): Tensor {
  if (grads.length === 0) return tensor(0, { dtype, device });
  const norm = nn.utils.getTotalNorm(grads, normType).to({ dtype, device });
  return normType === Number.POSITIVE_INFINITY ? norm.clone() : norm.pow(normType);
}
