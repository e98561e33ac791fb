/** The norm of many tensors together, of which some may be distributed. */
import type { Tensor } from '../core/tensor.js';
import { cat, stack } from '../ops/join.js';
import { foreachNorm } from '../ops/optimizer-steps.js';

/**
 * The norm of at least one tensor; of distributed ones, as a plain tensor on every rank. @internal
 */
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
 * What distributed tensors add up to before the root is taken, as plain vectors: one, and one
 * reduction among ranks, for all that are held by the same ranks in the same way. Roots cannot be
 * added, and the norm of a part is not the part of a norm.
 */
function reducedPowers(tensors: readonly Tensor[], p: number): Tensor[] {
  const alike = new Map<number, Tensor[]>();
  for (const t of tensors) {
    const power = powerOf(t, p);
    const id = power.sharding?.spec.id ?? 0;
    alike.set(id, [...(alike.get(id) ?? []), power]);
  }
  return [...alike.values()].map((powers) => {
    const sum = collected(stack(powers), p);
    return sum.sharding === null ? sum : sum.sharding.full('getTotalNorm');
  });
}

function powerOf(t: Tensor, p: number): Tensor {
  if (p === Number.POSITIVE_INFINITY) return t.abs().amax();
  if (p === Number.NEGATIVE_INFINITY) return t.abs().amin();
  if (p === 0) return t.ne(0).to(t.dtype).sum();
  return p === 2 ? t.square().sum() : t.abs().pow(p).sum();
}

function collected(powers: Tensor, p: number): Tensor {
  if (p === 0) return powers; // of norms, the 0-norm counts those that are not 0
  return Number.isFinite(p)
    ? powers.sum(0, { keepdim: true })
    : p > 0
      ? powers.amax(0, { keepdim: true })
      : powers.amin(0, { keepdim: true });
}

function rooted(powers: Tensor, p: number): Tensor {
  return !Number.isFinite(p) || p === 0 ? powers : p === 2 ? powers.sqrt() : powers.pow(1 / p);
}
