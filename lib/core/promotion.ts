/**
 * Result dtype of several operands: PyTorch's rules for dims, zero-dim tensors and plain numbers.
 */
import { bool, type DType, getDefaultDtype, int64, promoteTypes } from './dtype.js';
import type { Tensor } from './tensor.js';

/**
 * The dtype of a plain number as an operand: int64 for integers, the default floating dtype for
 * others.
 */
export function numberDtype(value: number | boolean): DType {
  if (typeof value === 'boolean') return bool;
  return Number.isInteger(value) && Math.abs(value) < 2 ** 63 ? int64 : getDefaultDtype();
}

/**
 * The dtype that the operands promote to, as `torch.result_type`: tensors with dims decide;
 * zero-dim tensors and plain numbers only matter when they are of a higher category (bool < integer
 * < floating).
 */
export function resultType(inputs: readonly Tensor[]): DType {
  const first = inputs[0] as Tensor;
  let same = first.storage !== null;
  for (let i = 1; i < inputs.length && same; i++) {
    const t = inputs[i] as Tensor;
    if (t.dtype !== first.dtype || t.storage === null) same = false;
  }
  if (same) return first.dtype;
  let withDims: DType | null = null;
  let zeroDim: DType | null = null;
  let number: DType | null = null;
  for (const t of inputs) {
    if (t.storage === null) number = number === null ? t.dtype : promoteTypes(number, t.dtype);
    else if (t.sizes.length === 0)
      zeroDim = zeroDim === null ? t.dtype : promoteTypes(zeroDim, t.dtype);
    else withDims = withDims === null ? t.dtype : promoteTypes(withDims, t.dtype);
  }
  return combine(withDims, combine(zeroDim, number)) as DType;
}

function combine(higher: DType | null, lower: DType | null): DType | null {
  if (higher === null) return lower;
  if (lower === null || higher.category >= lower.category) return higher;
  return promoteTypes(higher, lower);
}
