/** Running an op as its decomposition. */
import { ShardwiseError } from './errors.js';
import type { Op } from './op.js';
import type { Tensor } from './tensor.js';

/**
 * What an op computes, by its decomposition, which gets inputs reduced that its sharding rule wants so.
 *
 * @throws ShardwiseError for an op that has none
 * @internal
 */
export function decomposed<P>(op: Op<P>, inputs: readonly Tensor[], params: P): readonly Tensor[] {
  if (op.decompose === null) throw new ShardwiseError('ERR_OP', `${op.name} has no decomposition`);
  const first = op.sharding?.reducedFirst ?? [];
  const given = inputs.map((t, i) => (first.includes(i) ? reduced(t) : t));
  return op.decompose(given, params);
}

/** The tensor with terms of a reduction reduced: once, for all that read it. @internal */
export function reduced(t: Tensor): Tensor {
  return t.sharding === null ? t : t.sharding.reduced(t);
}
