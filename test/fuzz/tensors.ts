/**
 * Random tensors for fuzzing: small, empty, strided, disposed, of every dtype and with extreme
 * values.
 */
import {
  arange,
  bfloat16,
  bool,
  type DType,
  float16,
  float32,
  float64,
  full,
  int8,
  int16,
  int32,
  int64,
  ones,
  type Tensor,
  tensor,
  uint8,
} from '../../lib/index.js';
import type { Rng } from './rng.js';

export const dtypes: readonly DType[] = [
  float32,
  float64,
  float16,
  bfloat16,
  int64,
  int32,
  int16,
  int8,
  uint8,
  bool,
];

/** Numbers that break arithmetic: limits, halves, NaN. */
export const awkwardNumbers: readonly number[] = [
  0,
  -0,
  1,
  -1,
  0.5,
  2,
  -3,
  1e30,
  -1e-30,
  2 ** 31,
  2 ** 53,
  -(2 ** 63),
  2 ** 63,
  Number.NaN,
  Number.POSITIVE_INFINITY,
  Number.NEGATIVE_INFINITY,
];

/** Dims and lengths, including wrong ones. */
export function anyInteger(rng: Rng): number {
  if (rng.chance(0.85)) return rng.int(-3, 5);
  return rng.pick([
    -(2 ** 31),
    2 ** 31,
    2 ** 40,
    2 ** 53,
    -(2 ** 53),
    17,
    1.5,
    Number.NaN,
    Number.POSITIVE_INFINITY,
  ]);
}

export function anyNumber(rng: Rng): number {
  return rng.chance(0.6) ? rng.int(-4, 4) : rng.pick(awkwardNumbers);
}

/**
 * A valid shape, often with sizes of 0 and 1, sometimes large enough to run on the stream's thread.
 */
export function anyShape(rng: Rng): number[] {
  if (rng.chance(0.04)) return [rng.int(100, 400), rng.int(60, 200)];
  if (rng.chance(0.02)) return rng.list(rng.int(5, 16), () => rng.pick([1, 1, 2]));
  return rng.list(rng.int(0, 4), () => rng.pick([0, 1, 1, 2, 3, 4, 5, 7]));
}

/** Values that a user may pass for sizes. */
export function anySizes(rng: Rng): number[] {
  return rng.chance(0.7)
    ? anyShape(rng)
    : rng.list(rng.int(0, 4), () => (rng.chance(0.5) ? -1 : anyInteger(rng)));
}

function filled(rng: Rng, shape: number[], dtype: DType): Tensor {
  const n = shape.reduce((a, b) => a * b, 1);
  if (n > 400 || rng.chance(0.2)) return full(shape, rng.int(-2, 3)).to(dtype);
  if (rng.chance(0.2)) return arange(n).reshape(shape).to(dtype);
  const least = dtype === uint8 ? 0 : -3; // tensor() refuses what the dtype does not hold
  const value = (): number =>
    dtype.isFloatingPoint && rng.chance(0.15) ? rng.pick(awkwardNumbers) : rng.int(least, 5);
  const data = rng.list(n, value);
  if (n === 0) return ones(shape).to(dtype);
  return tensor(data, { dtype }).reshape(shape);
}

/** A strided view inside the storage. */
export function anyView(rng: Rng, t: Tensor): Tensor {
  const ndim = t.ndim;
  const dim = ndim > 0 ? rng.int(0, ndim - 1) : 0;
  const size = ndim > 0 ? (t.shape[dim] as number) : 1;
  switch (rng.int(0, 7)) {
    case 0:
      return ndim > 1 ? t.transpose(dim, rng.int(0, ndim - 1)) : t;
    case 1:
      return size > 0 && ndim > 0 ? t.narrow(dim, rng.int(0, size - 1), rng.int(0, 1)) : t;
    case 2:
      return size > 0 && ndim > 0 ? t.select(dim, rng.int(0, size - 1)) : t;
    case 3:
      return ndim < 5 ? t.unsqueeze(0).expand([rng.int(0, 4), ...t.shape]) : t;
    case 4:
      return ndim > 0 ? t.slice(dim, 0, null, rng.int(1, 3)) : t;
    case 5:
      return ndim > 0 && size > 1 ? t.unfold(dim, 2, 1) : t;
    case 6:
      return t.untypedStorage().nbytes / t.dtype.itemsize >= 9
        ? t.asStrided([3, 2], [rng.int(0, 2), rng.int(0, 2)], rng.int(0, 2))
        : t;
    default:
      return ndim > 1 ? t.diagonal() : t;
  }
}

/** A tensor of the given shape, or of any. */
export function anyTensor(
  rng: Rng,
  shape: number[] = anyShape(rng),
  dtype: DType = rng.chance(0.5) ? float32 : rng.pick(dtypes),
): Tensor {
  const t = filled(rng, shape, dtype);
  if (rng.chance(0.3)) return anyView(rng, t);
  if (t.ndim > 1 && rng.chance(0.2)) return t.transpose(0, -1).contiguous().transpose(0, -1);
  return t;
}

/** Indices that are valid, slightly wrong or absurd. */
export function anyIndex(rng: Rng, shape: number[] = anyShape(rng)): Tensor {
  const n = shape.reduce((a, b) => a * b, 1);
  const wrong = rng.chance(0.3);
  const value = (): number =>
    wrong && rng.chance(0.3) ? rng.pick([-1, -5, 99, 2 ** 40, -(2 ** 62)]) : rng.int(0, 2);
  const made =
    n === 0
      ? ones(shape).long()
      : tensor(n > 400 ? rng.list(n, () => 0) : rng.list(n, value), { dtype: int64 }).reshape(
          shape,
        );
  return rng.chance(0.1) ? anyView(rng, made) : rng.chance(0.1) ? made.to(int32) : made;
}
