/** Running an op as its decomposition. */
import { float32 } from './dtype.js';
import { ShardwiseError } from './errors.js';
import type { Op, OutputMeta } from './op.js';
import type { Tensor } from './tensor.js';

/**
 * What an op computes, by its decomposition, which gets inputs reduced that its sharding rule wants
 * so.
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

const isNarrow = (t: Tensor): boolean =>
  t.storage !== null && t.dtype.isFloatingPoint && t.dtype.itemsize === 2;

/**
 * The decomposition that takes 16-bit floats to float32 first, in which the kernels compute:
 * squares and sums leave their range. Its results are rounded once. @internal
 */
export function inFloat32<P>(
  decompose: NonNullable<Op<P>['decompose']>,
  meta: Op<P>['meta'],
): NonNullable<Op<P>['decompose']> {
  return (inputs, params) => {
    if (!inputs.some(isNarrow)) return decompose(inputs, params);
    const metas = meta(inputs, params);
    const wide = inputs.map((t) => (isNarrow(t) ? t.to(float32) : t));
    return decompose(wide, params).map((t, i) => t.to((metas[i] as OutputMeta).dtype));
  };
}

/** The tensor with terms of a reduction reduced: once, for all that read it. @internal */
export function reduced(t: Tensor): Tensor {
  return t.sharding === null ? t : t.sharding.reduced(t);
}
