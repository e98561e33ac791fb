/**
 * torch.testing.assert_close: compares dtype, shape, then values with tolerances by dtype. NaN
 * equals NaN.
 */
import assert from 'node:assert/strict';
import type { Snapshot } from './tensors.js';

/**
 * For some dtypes, an absolute tolerance in the place of the usual one; make.py measured that
 * PyTorch itself needs it.
 */
export type Slack = Record<string, number> | null | undefined;

const tolerances: Record<string, { rtol: number; atol: number }> = {
  float64: { rtol: 1e-7, atol: 1e-7 },
  float32: { rtol: 1.3e-6, atol: 1e-5 },
  float16: { rtol: 1e-3, atol: 1e-5 },
  bfloat16: { rtol: 1.6e-2, atol: 1e-5 },
};

/** @throws AssertionError with the first difference and the largest error */
export function assertClose(
  actual: Snapshot,
  expected: Snapshot,
  what: string,
  slack?: Slack,
): void {
  assert.equal(
    actual.dtype,
    expected.dtype,
    `${what}: dtype is ${actual.dtype}, PyTorch has ${expected.dtype}`,
  );
  const [shape, wanted] = [formatShape(actual.shape), formatShape(expected.shape)];
  assert.equal(shape, wanted, `${what}: shape is ${shape}, PyTorch has ${wanted}`);
  assert.equal(
    actual.values.length,
    expected.values.length,
    `${what}: ${actual.values.length} elements, PyTorch has ${expected.values.length}`,
  );
  const { rtol, atol } = tolerances[expected.dtype] ?? { rtol: 0, atol: 0 };
  const allowed = Math.max(atol, slack?.[expected.dtype] ?? 0);
  const worst = { count: 0, first: -1, absolute: 0, relative: 0 };
  for (let i = 0; i < expected.values.length; i++) {
    const [got, want] = [
      actual.values[i] as number | bigint,
      expected.values[i] as number | bigint,
    ];
    if (isClose(got, want, rtol, allowed)) continue;
    if (worst.count++ === 0) worst.first = i;
    const error = Math.abs(Number(got) - Number(want));
    worst.absolute = larger(worst.absolute, error);
    worst.relative = larger(worst.relative, error / Math.abs(Number(want)));
  }
  if (worst.count === 0) return;
  const { first } = worst;
  assert.fail(
    `${what}: ${worst.count} of ${expected.values.length} elements differ from PyTorch.\n` +
      `  first at ${formatShape(indexOf(first, expected.shape))}: ${actual.values[first]}, ` +
      `PyTorch has ${expected.values[first]}\n` +
      `  largest absolute error ${worst.absolute.toExponential(3)}, relative ` +
      `${worst.relative.toExponential(3)}; ` +
      `allowed ${allowed} + ${rtol} * |expected| in ${expected.dtype}`,
  );
}

/** Compares single numbers, such as learning rates. */
export function assertNear(
  actual: number,
  expected: number,
  rtol: number,
  atol: number,
  what: string,
): void {
  assert.ok(
    isClose(actual, expected, rtol, atol),
    `${what}: ${actual}, PyTorch has ${expected}, difference ${Math.abs(actual - expected)}`,
  );
}

function isClose(got: number | bigint, want: number | bigint, rtol: number, atol: number): boolean {
  if (got === want) return true;
  if (typeof got === 'bigint' || typeof want === 'bigint') return BigInt(got) === BigInt(want);
  if (Number.isNaN(got) || Number.isNaN(want)) return Number.isNaN(got) && Number.isNaN(want);
  if (!Number.isFinite(want)) return false;
  return Math.abs(got - want) <= atol + rtol * Math.abs(want);
}

/** The larger of two errors; NaN (as of infinity minus infinity) counts as infinite. */
function larger(a: number, b: number): number {
  return Math.max(a, Number.isNaN(b) ? Number.POSITIVE_INFINITY : b);
}

function indexOf(flat: number, shape: readonly number[]): number[] {
  const index: number[] = [];
  let rest = flat;
  for (let dim = shape.length - 1; dim >= 0; dim--) {
    index.unshift(rest % (shape[dim] as number));
    rest = Math.floor(rest / (shape[dim] as number));
  }
  return index;
}

export function formatShape(shape: readonly number[]): string {
  return `[${shape.join(', ')}]`;
}
