/** The norm of all gradients, of which some may be distributed. */
import type { Tensor } from '../core/tensor.js';
import { cat, stack } from '../ops/join.js';
import { foreachNorm } from '../ops/optimizer-steps.js';

/** The norm of one or more tensors, as a plain tensor that is equal on every rank. @internal */
export function normOfAll(tensors: readonly Tensor[], p: number): Tensor {
  const plain = tensors.filter((t) => t.sharding === null);
  const norms =
    plain.length === 0
      ? []
      : [p === 2 ? cat(foreachNorm(plain)) : stack(plain.map((t) => t.norm(p)))];
  const powers = reducedPowers(
    tensors.filter((t) => t.sharding !== null),
    p,
  );
  if (powers.length > 0) norms.push(rooted(cat(powers), p));
  return cat(norms).norm(p);
}

/**
 * Sums of powers of distributed tensors, before the root is taken: roots of shards cannot be added.
 * Tensors with equal mesh and placements share one all-reduce.
 */
function reducedPowers(tensors: readonly Tensor[], p: number): Tensor[] {
  const bySpec = new Map<number, Tensor[]>();
  for (const t of tensors) {
    const power = powerOf(t, p);
    const id = power.sharding?.spec.id ?? 0;
    bySpec.set(id, [...(bySpec.get(id) ?? []), power]);
  }
  return [...bySpec.values()].map((powers) => {
    const sum = summed(stack(powers), p);
    return sum.sharding === null ? sum : sum.sharding.full('getTotalNorm');
  });
}

function powerOf(t: Tensor, p: number): Tensor {
  if (p === Number.POSITIVE_INFINITY) return t.abs().amax();
  if (p === Number.NEGATIVE_INFINITY) return t.abs().amin();
  if (p === 0) return t.ne(0).to(t.dtype).sum();
  return p === 2 ? t.square().sum() : t.abs().pow(p).sum();
}

function summed(powers: Tensor, p: number): Tensor {
  if (p === 0) return powers; // the norm of these counts, taken last, adds up those above 0
  return Number.isFinite(p)
    ? powers.sum(0, { keepdim: true })
    : p > 0
      ? powers.amax(0, { keepdim: true })
      : powers.amin(0, { keepdim: true });
}

function rooted(powers: Tensor, p: number): Tensor {
  return !Number.isFinite(p) || p === 0 ? powers : p === 2 ? powers.sqrt() : powers.pow(1 / p);
}
