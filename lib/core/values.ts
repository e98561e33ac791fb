/**
 * Typed arrays for each dtype, and conversions of the half precision formats that JavaScript has no
 * arrays for.
 */
import {
  bfloat16,
  bool,
  type DType,
  float16,
  float64,
  int8,
  int16,
  int32,
  int64,
  uint8,
} from './dtype.js';
import { ArgumentError } from './errors.js';

/** The results of `toTypedArray` and `read`. float16 and bfloat16 are widened to float32. */
export type TypedArray =
  | Float32Array
  | Float64Array
  | BigInt64Array
  | Int32Array
  | Int16Array
  | Int8Array
  | Uint8Array;

/** The array that holds the raw bytes of `n` elements: 16-bit floats as Uint16Array. */
export function rawArray(dtype: DType, n: number): TypedArray | Uint16Array {
  switch (dtype) {
    case float64:
      return new Float64Array(n);
    case float16:
    case bfloat16:
      return new Uint16Array(n);
    case int64:
      return new BigInt64Array(n);
    case int32:
      return new Int32Array(n);
    case int16:
      return new Int16Array(n);
    case int8:
      return new Int8Array(n);
    case uint8:
    case bool:
      return new Uint8Array(n);
    default:
      return new Float32Array(n);
  }
}

const scratch = new Float32Array(1);
const scratchBits = new Uint32Array(scratch.buffer);

/** The raw bits of a 16-bit float array as float32 values. */
export function widen(raw: Uint16Array, dtype: DType): Float32Array {
  const out = new Float32Array(raw.length);
  const bits = new Uint32Array(out.buffer);
  if (dtype === bfloat16) {
    for (let i = 0; i < raw.length; i++) bits[i] = (raw[i] as number) << 16;
  } else {
    for (let i = 0; i < raw.length; i++) out[i] = halfToNumber(raw[i] as number);
  }
  return out;
}

function halfToNumber(h: number): number {
  const sign = h & 0x8000 ? -1 : 1;
  const exponent = (h >> 10) & 0x1f;
  const fraction = h & 0x3ff;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? Number.NaN : sign * Number.POSITIVE_INFINITY;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

/** Bits of the nearest bfloat16, ties to even. */
export function toBfloat16Bits(value: number): number {
  scratch[0] = value;
  const bits = scratchBits[0] as number;
  if (value !== value) return 0x7fc0;
  return ((bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16) & 0xffff;
}

/** Bits of the nearest float16, ties to even. */
export function toFloat16Bits(value: number): number {
  if (value !== value) return 0x7e00;
  const sign = value < 0 || Object.is(value, -0) ? 0x8000 : 0;
  const magnitude = Math.abs(value);
  if (magnitude >= 65520) return sign | 0x7c00;
  if (magnitude < 2 ** -14) return sign | roundHalfEven(magnitude * 2 ** 24);
  const exponent = Math.floor(Math.log2(magnitude));
  const scaled = roundHalfEven((magnitude / 2 ** exponent) * 1024);
  return sign | (((exponent + 15) << 10) + (scaled - 1024));
}

function roundHalfEven(x: number): number {
  const down = Math.floor(x);
  const rest = x - down;
  return rest > 0.5 || (rest === 0.5 && down % 2 === 1) ? down + 1 : down;
}

/**
 * Converts a number to an element of an integer dtype; truncates fractions.
 *
 * @throws ArgumentError for NaN, infinities and numbers out of the range of the dtype.
 */
export function toInteger(value: number | bigint | boolean, dtype: DType, op: string): bigint {
  const number = typeof value === 'bigint' ? value : Math.trunc(Number(value));
  const bits = dtype.itemsize * 8;
  const whole = typeof number === 'bigint' || Number.isFinite(number) ? BigInt(number) : null;
  const fits =
    whole !== null &&
    (dtype === uint8
      ? BigInt.asUintN(bits, whole) === whole
      : BigInt.asIntN(bits, whole) === whole);
  if (!fits)
    throw new ArgumentError(`${op}: ${String(value)} cannot be an element of ${dtype.name}`, {
      op,
      value,
      dtype: dtype.name,
    });
  return whole;
}

/** Whether {@link toInteger} converts numbers to this dtype. */
export function holdsIntegers(dtype: DType): boolean {
  return !dtype.isFloatingPoint && dtype !== bool;
}

/**
 * Converts numbers to the raw array of a dtype; bool is "not 0". @throws ArgumentError for numbers
 * out of the range of an integer dtype
 */
export function encodeValues(
  values: ArrayLike<number | bigint | boolean>,
  dtype: DType,
  op = 'tensor',
): TypedArray | Uint16Array {
  const n = values.length;
  const out = rawArray(dtype, n);
  if (dtype === int64) {
    for (let i = 0; i < n; i++)
      (out as BigInt64Array)[i] = toInteger(values[i] as number | bigint | boolean, dtype, op);
    return out;
  }
  if (holdsIntegers(dtype)) {
    for (let i = 0; i < n; i++)
      (out as Int32Array)[i] = Number(toInteger(values[i] as number | bigint | boolean, dtype, op));
    return out;
  }
  const plain = out as Float32Array;
  const convert =
    dtype === bfloat16
      ? toBfloat16Bits
      : dtype === float16
        ? toFloat16Bits
        : dtype === bool
          ? (v: number) => Number(v !== 0)
          : null;
  for (let i = 0; i < n; i++) {
    const value = Number(values[i]);
    plain[i] = convert === null ? value : convert(value);
  }
  return out;
}

/** The dtype of the elements of a typed array. */
export function dtypeOfArray(array: ArrayBufferView): DType | null {
  if (array instanceof Float32Array) return null; // float32, the caller's default
  if (array instanceof Float64Array) return float64;
  if (array instanceof BigInt64Array) return int64;
  if (array instanceof Int32Array) return int32;
  if (array instanceof Int16Array) return int16;
  if (array instanceof Int8Array) return int8;
  if (array instanceof Uint8Array) return uint8;
  return null;
}
