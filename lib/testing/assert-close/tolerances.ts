/** When two values are close: tolerances by dtype, and the differences of two arrays of values. */
import { bfloat16, type DType, float16, float32, float64 } from '../../core/dtype.js';
import type { TypedArray } from '../../core/values.js';

/** `|actual - expected| <= atol + rtol * |expected|`. */
export interface Tolerances {
  readonly rtol: number;
  readonly atol: number;
  /** Whether NaN is close to NaN. */
  readonly equalNan: boolean;
}

/** The tolerances of PyTorch's `torch.testing.assert_close`; integers and bool are exact. */
const byDtype = new Map<DType, readonly [rtol: number, atol: number]>([
  [float64, [1e-7, 1e-7]],
  [float32, [1.3e-6, 1e-5]],
  [float16, [1e-3, 1e-5]],
  [bfloat16, [1.6e-2, 1e-5]],
]);

/** The tolerances of values of some dtypes: the largest of each. */
export function tolerancesOf(dtypes: readonly DType[]): { rtol: number; atol: number } {
  const all = dtypes.map((dtype) => byDtype.get(dtype) ?? [0, 0]);
  return {
    rtol: Math.max(...all.map(([rtol]) => rtol)),
    atol: Math.max(...all.map(([, atol]) => atol)),
  };
}

/** A difference, and the element that has it. */
export interface Extreme {
  readonly value: number;
  readonly at: number;
}

/** How two arrays of one length differ. */
export interface Differences {
  /** The number of elements that are not close. */
  readonly count: number;
  /** The first of these. */
  readonly first: readonly number[];
  readonly absolute: Extreme;
  readonly relative: Extreme;
}

/** Elements that an error has as `actual` and `expected`. */
const MOST_SHOWN = 10;

/** The elements that are not close; null if all are. Values of 64-bit integers compare exactly. */
export function differencesOf(
  actual: TypedArray,
  expected: TypedArray,
  tolerances: Tolerances,
): Differences | null {
  let count = 0;
  const first: number[] = [];
  let absolute = NONE;
  let relative = NONE;
  for (let i = 0; i < expected.length; i++) {
    const [a, e] = [actual[i] as number | bigint, expected[i] as number | bigint];
    if (a === e) continue;
    const difference = distance(a, e);
    if (isClose(difference, Number(a), Number(e), tolerances)) continue;
    count++;
    if (first.length < MOST_SHOWN) first.push(i);
    absolute = greater(absolute, difference, i);
    relative = greater(relative, difference / Math.abs(Number(e)), i);
  }
  return count === 0 ? null : { count, first, absolute, relative };
}

const NONE: Extreme = { value: Number.NEGATIVE_INFINITY, at: -1 };

function distance(a: number | bigint, e: number | bigint): number {
  if (typeof a === 'bigint' && typeof e === 'bigint') return Math.abs(Number(a - e));
  return Math.abs(Number(a) - Number(e));
}

function isClose(
  difference: number,
  a: number,
  e: number,
  { rtol, atol, equalNan }: Tolerances,
): boolean {
  if (Number.isNaN(a) || Number.isNaN(e)) return equalNan && Number.isNaN(a) && Number.isNaN(e);
  // An infinity is close to itself alone.
  return Number.isFinite(difference) && difference <= atol + rtol * Math.abs(e);
}

/** NaN is the greatest difference. */
function greater(found: Extreme, value: number, at: number): Extreme {
  return Number.isNaN(found.value) || value <= found.value ? found : { value, at };
}
