/**
 * Shared by tests of more than 2^31 elements: a kernel must give for chunks alone what it gives for
 * the whole.
 */
import assert from 'node:assert/strict';
import {
  autograd,
  bfloat16,
  cuda,
  type DType,
  float32,
  memory,
  randn,
  scope,
  type Tensor,
} from '../../lib/index.js';
import { skipBecause, skipWithoutCuda } from '../skip.js';

export const BEYOND = 2 ** 31;
/** Device memory that the largest of these tests needs. */
const GIBIBYTES = 100;
export const device = 'cuda' as const;

export const random = (shape: readonly number[], dtype: DType = bfloat16): Tensor =>
  randn([...shape], { device, dtype });

/** The number of rows of `columns` that exceeds 2^31 elements, plus a few. */
export const rowsOf = (columns: number): number => Math.floor(BEYOND / columns) + 5;

/** Starts of the compared chunks: the first rows, those around element 2^31, the last. */
export const partsOf = (rows: number, columns: number, height: number): number[] => [
  0,
  Math.floor(BEYOND / columns) - 1,
  rows - height,
];

export const HEIGHT = 3;

export async function assertSame(got: Tensor, expected: Tensor, what: string): Promise<void> {
  assert.deepEqual(got.shape, expected.shape, what);
  const [a, b] = [got.detach().to(float32), expected.detach().to(float32)];
  const largest = await b.abs().amax().itemAsync();
  const apart = await a.sub(b).abs().amax().itemAsync();
  // Few rows may be added in another order, which changes one rounding of bfloat16.
  assert.ok(
    apart <= largest * 2 ** -7 && Number.isFinite(largest) && largest > 0,
    `${what}: ${apart} apart, of ${largest}`,
  );
}

/** Checks a function that treats rows independently. */
export async function checkRows(
  columns: number,
  fn: (x: Tensor, first: number) => Tensor,
  make = (rows: number): Tensor => random([rows, columns]),
): Promise<void> {
  const rows = rowsOf(columns);
  const x = make(rows);
  const whole = fn(x, 0);
  for (const first of partsOf(rows, columns, HEIGHT)) {
    const part = fn(x.narrow(0, first, HEIGHT).clone(), first);
    await assertSame(whole.narrow(0, first, HEIGHT), part, `rows from ${first}`);
    part.dispose();
  }
  for (const t of [x, whole]) t.dispose();
}

export const gradientOf = (fn: (x: Tensor) => Tensor): ((x: Tensor) => Tensor) => {
  return (x) =>
    scope(() => {
      const leaf = x.detach().requiresGrad_();
      const y = fn(leaf);
      return autograd.grad(y, [leaf], { gradOutputs: x.detach() })[0] as Tensor;
    });
};

/**
 * `describe` for tests that need much device memory. Skips them on smaller devices, and frees all
 * memory after each.
 */
export function describeBeyond(subject: string, tests: () => void): void {
  describe(`more than 2^31 elements on CUDA: ${subject}`, function () {
    this.timeout(120_000);
    before(function () {
      skipWithoutCuda(this);
      if (cuda.getDeviceProperties().totalBytes < GIBIBYTES * 2 ** 30)
        skipBecause(this, `they take ${GIBIBYTES} GiB of the device`);
    });
    afterEach(() => {
      memory.collect();
      cuda.emptyCache();
    });
    tests();
  });
}
