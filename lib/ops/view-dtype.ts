/**
 * The bytes of a tensor read as another dtype: the form of `view` that takes a dtype.
 *
 * Gradient: none, as in PyTorch. In-place changes of one are seen in the other.
 */

import { dispatchOne } from '../core/dispatch.js';
import { bool, type DType, type DTypeLike, dtypeOf, int16, int32 } from '../core/dtype.js';
import { DtypeError, ShapeError } from '../core/errors.js';
import type { Op } from '../core/op.js';
import { type ParamsOf, param } from '../core/op-params.js';
import { formatShape } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';
import { defineView } from './define-view.js';
import { sampleTensor } from './samples.js';
import { viewDtypeRule } from './sharding/views.js';

const viewDtypeParams = { dtype: param.value<DType>() };
type ViewDtype = ParamsOf<typeof viewDtypeParams>;

const viewDtypeOp: Op<ViewDtype> = defineView({
  name: 'viewDtype',
  params: viewDtypeParams,
  doc: 'The bytes of the elements as elements of another dtype.',
  sharding: viewDtypeRule<ViewDtype>(lastSize),
  view: (input, { dtype }) => {
    const { sizes: shape, strides, storageOffset: offset } = input;
    const [from, to] = [input.dtype.itemsize, dtype.itemsize];
    if (from === to) return { shape, strides, offset, dtype };
    const last = shape.length - 1;
    requirePacked(input, dtype);
    const scaled = (n: number): number => (n * from) / to;
    return {
      shape: shape.map((n, i) => (i === last ? scaled(n) : n)),
      strides: strides.map((n, i) => (i === last ? 1 : scaled(n))),
      offset: scaled(offset),
      dtype,
    };
  },
  vjp: 'not-differentiable',
  samples: () => [
    { inputs: [sampleTensor([3, 4])], params: { dtype: int32 } },
    { inputs: [sampleTensor([3, 4])], params: { dtype: int16 } },
    { inputs: [sampleTensor([2, 8]).to(int16)], params: { dtype: int32 } },
  ],
  publicCall: ([x], { dtype }) => x.contiguous().view(dtype),
});

/** The size of the last dim as another dtype; not whole where that cannot be. */
function lastSize(input: Tensor, { dtype }: ViewDtype): number {
  return ((input.sizes.at(-1) ?? 1) * input.dtype.itemsize) / dtype.itemsize;
}

/** @throws ShapeError unless elements of another size fit into the last dim and into the strides */
function requirePacked(input: Tensor, dtype: DType): void {
  const { sizes: shape, strides, storageOffset } = input;
  const ratio = dtype.itemsize / input.dtype.itemsize;
  const fail = (what: string): ShapeError =>
    new ShapeError(
      `view: expected ${what} to view ${input.dtype} as ${dtype}, ` +
        'whose elements have another size, ' +
        `got shape ${formatShape(shape)} with strides ${formatShape(strides)} and storage offset ` +
        `${storageOffset}. Use contiguous() first, or to() to convert values.`,
      { op: 'view', shape, strides, storageOffset, dtype: dtype.name },
    );
  if (shape.length === 0) throw fail('at least one dim');
  if (strides.at(-1) !== 1) throw fail('a stride of 1 in the last dim');
  if (ratio < 1) return;
  if ((shape.at(-1) as number) % ratio !== 0) throw fail(`a last dim divisible by ${ratio}`);
  if (storageOffset % ratio !== 0) throw fail(`a storage offset divisible by ${ratio}`);
  if (strides.some((n, i) => i < strides.length - 1 && n % ratio !== 0))
    throw fail(`strides before the last one divisible by ${ratio}`);
}

/** The form of `view` that takes a dtype. @internal */
export function viewDtype(input: Tensor, given: DTypeLike): Tensor {
  const dtype = dtypeOf(given, 'view');
  if (dtype !== bool || input.dtype === bool) return dispatchOne(viewDtypeOp, [input], { dtype });
  throw new DtypeError(
    `view: expected a dtype whose elements may have any bytes, got bool for ${input.dtype}: its ` +
      'bytes are 0 and 1 alone. Use ne(0), or to(bool).',
    { op: 'view', dtype: dtype.name, given: input.dtype.name },
  );
}
