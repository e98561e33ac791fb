/** Limits of element types. */
import {
  bfloat16,
  bool,
  type DType,
  type DTypeLike,
  dtypeOf,
  float16,
  float32,
  float64,
} from './dtype.js';
import { DtypeError } from './errors.js';

/** Limits of a floating point type. */
export interface FloatInfo {
  /** The dtype that the limits belong to. */
  readonly dtype: DType;
  /** Bits of an element. */
  readonly bits: number;
  /** The distance from 1 to the next larger number. */
  readonly eps: number;
  /** The largest finite number. */
  readonly max: number;
  /** The lowest finite number. */
  readonly min: number;
  /** The smallest positive number with full precision. */
  readonly tiny: number;
}

/** Limits of an integer type. The limits of int64 do not fit a number and are bigints. */
export interface IntInfo<N extends number | bigint = number | bigint> {
  /** The dtype that the limits belong to. */
  readonly dtype: DType;
  /** Bits of an element. */
  readonly bits: number;
  /** The largest number. */
  readonly max: N;
  /** The lowest number. */
  readonly min: N;
}

/** Bits of the fraction and the largest exponent. */
const formats = new Map([
  [float16, { fraction: 10, exponent: 15 }],
  [bfloat16, { fraction: 7, exponent: 127 }],
  [float32, { fraction: 23, exponent: 127 }],
  [float64, { fraction: 52, exponent: 1023 }],
]);

/**
 * Limits of a floating point type. @throws DtypeError for another type @see PyTorch `torch.finfo`
 */
export function finfo(given: DTypeLike): FloatInfo {
  const dtype = dtypeOf(given, 'finfo');
  const format = formats.get(dtype);
  if (format === undefined)
    throw new DtypeError(`finfo: expected a floating point dtype, got ${dtype.name}; use iinfo`, {
      dtype: dtype.name,
    });
  const eps = 2 ** -format.fraction;
  const max = 2 ** format.exponent * (2 - eps);
  return { dtype, bits: dtype.itemsize * 8, eps, max, min: -max, tiny: 2 ** (1 - format.exponent) };
}

/** Limits of an integer type. @throws DtypeError for another type @see PyTorch `torch.iinfo` */
export function iinfo(given: DTypeLike): IntInfo {
  const dtype = dtypeOf(given, 'iinfo');
  if (dtype.isFloatingPoint || dtype === bool)
    throw new DtypeError(`iinfo: expected an integer dtype, got ${dtype.name}`, {
      dtype: dtype.name,
    });
  const bits = dtype.itemsize * 8;
  const unsigned = dtype.name.startsWith('u');
  if (bits === 64) return { dtype, bits, max: 2n ** 63n - 1n, min: -(2n ** 63n) };
  return unsigned
    ? { dtype, bits, max: 2 ** bits - 1, min: 0 }
    : { dtype, bits, max: 2 ** (bits - 1) - 1, min: -(2 ** (bits - 1)) };
}

/**
 * The lower and upper bound of elements: infinite for floating types, 0 and 1 for bool. @internal
 */
export function boundOf(dtype: DType, side: 'below' | 'above'): number | bigint {
  if (dtype.isFloatingPoint)
    return side === 'below' ? Number.NEGATIVE_INFINITY : Number.POSITIVE_INFINITY;
  if (dtype === bool) return side === 'below' ? 0 : 1;
  const { min, max } = iinfo(dtype);
  return side === 'below' ? min : max;
}
