/** Runs an op as its decomposition. */
import { float32, isLowPrecision } from './dtype.js';
import { ShardwiseError } from './errors.js';
import type { Op, OutputMeta } from './op.js';
import type { Tensor } from './tensor.js';

/**
 * Computes an op by its decomposition. Partial inputs that its sharding rule lists in
 * `reducedFirst` are reduced before.
 *
 * @throws ShardwiseError for an op without a decomposition
 * @internal
 */
export function decomposed<P>(
  op: Op<P>,
  inputs: readonly Tensor[],
  params: P,
  decompose: Op<P>['decompose'] = op.decompose,
): readonly Tensor[] {
  if (decompose === null) throw new ShardwiseError('ERR_OP', `${op.name} has no decomposition`);
  const first = op.sharding?.reducedFirst ?? [];
  const given = inputs.map((t, i) => (first.includes(i) ? reduced(t) : t));
  return decompose(given, params);
}

const isNarrow = (t: Tensor): boolean => t.storage !== null && isLowPrecision(t.dtype);

/**
 * A decomposition that converts 16-bit floats to float32 first, as kernels do, because squares and
 * sums overflow in 16 bits. The results are rounded once. @internal
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

/**
 * The tensor with its Partial placements reduced, so that ops that read it several times reduce
 * once. @internal
 */
export function reduced(t: Tensor): Tensor {
  return t.sharding === null ? t : t.sharding.reduced(t);
}
