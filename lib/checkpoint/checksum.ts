/**
 * CRC-32 that begins at zero, which makes it linear: the checksum of a tensor is the XOR of the
 * checksums of its parts, each with zeros in the place of the rest. So readers that share a tensor
 * check it together, and none reads more than its own part.
 */
import { crc32 } from 'node:zlib';

const POLYNOMIAL = 0xedb88320;
const ONES = 0xffffffff;

/** The checksum of what `checksum` is of, followed by `bytes`. */
export function addBytes(checksum: number, bytes: Uint8Array): number {
  return (crc32(bytes, (checksum ^ ONES) >>> 0) ^ ONES) >>> 0;
}

const STEP_BYTES = 2 ** 20;

/** The checksum of bytes, a step at a time, so that it can be computed in time slices. */
export function* checksumOf(bytes: Uint8Array): Generator<void, number> {
  let checksum = 0;
  for (let at = 0; at < bytes.length; at += STEP_BYTES) {
    checksum = addBytes(checksum, bytes.subarray(at, at + STEP_BYTES));
    yield;
  }
  return checksum;
}

/** The checksum of what `checksum` is of, followed by `count` zeros. */
export function addZeros(checksum: number, count: number): number {
  return checksum === 0 || count === 0 ? checksum : multiply(zerosFactor(count), checksum);
}

/** The product of two polynomials modulo that of CRC-32; the highest bit is the constant term. */
function multiply(a: number, b: number): number {
  let [product, shifted] = [0, b];
  for (let bit = 31; bit >= 0; bit--) {
    if ((a >>> bit) & 1) product ^= shifted;
    shifted = shifted & 1 ? (shifted >>> 1) ^ POLYNOMIAL : shifted >>> 1;
  }
  return product >>> 0;
}

/** x to the power of 2^n. */
const squares: number[] = [2 ** 30];
for (let n = 1; n < 32; n++)
  squares.push(multiply(squares[n - 1] as number, squares[n - 1] as number));

/** Factors of the last counts: the runs of a part have one distance. */
const factors = new Map<number, number>();
const MOST_FACTORS = 1024;

/** x to the power of 8 `count`. */
function zerosFactor(count: number): number {
  const known = factors.get(count);
  if (known !== undefined) return known;
  let factor = 2 ** 31;
  for (let rest = count, n = 3; rest > 0; rest = Math.floor(rest / 2), n++)
    if (rest % 2 === 1) factor = multiply(squares[n % 32] as number, factor);
  if (factors.size >= MOST_FACTORS) factors.clear();
  factors.set(count, factor);
  return factor;
}
