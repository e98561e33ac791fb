/** What an op may write its result into. */
import { DtypeError, InPlaceError, ShapeError } from '../core/errors.js';
import type { OutputMeta } from '../core/op.js';
import { formatShape, overlapsItself, sameShape } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';

/**
 * Checks that a result can be written into a tensor, by an op in place or with `out`. @throws
 * ShapeError, DtypeError, InPlaceError
 */
export function checkInto(op: string, into: Tensor, meta: OutputMeta): void {
  if (!sameShape(into.sizes, meta.shape)) {
    throw new ShapeError(
      `${op}: the result has shape ${formatShape(meta.shape)} and cannot be written into a ` +
        `tensor of shape ${formatShape(into.sizes)}. Give one of the shape of the result, such ` +
        `as empty([${meta.shape.join(', ')}]), or take the result that is returned without one.`,
      {
        op,
        result: meta.shape,
        into: into.sizes,
      },
    );
  }
  if (meta.dtype.category > into.dtype.category) {
    throw new DtypeError(
      `${op}: a result of dtype ${meta.dtype.name} cannot be written into a tensor of dtype ` +
        `${into.dtype.name}. Give one of ${meta.dtype.name}, or convert the operands first.`,
      { op },
    );
  }
  if (overlapsItself(into.sizes, into.strides)) {
    throw new InPlaceError(
      `${op}: cannot write into a tensor whose elements share memory (as after expand or ` +
        `unfold: shape ${formatShape(into.sizes)}, strides ` +
        `${formatShape(into.strides)}). clone() it first.`,
      { op },
    );
  }
}
