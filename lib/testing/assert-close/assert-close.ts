/** `assertClose`: compares tensors, alone or inside of arrays, objects and Maps, in tests. */
import { calledAs } from '../../core/call-context.js';
import { ArgumentError } from '../../core/errors.js';
import { checkFlag, checkNumber, optionsOf, unexpected } from '../../core/options.js';
import type { Comparison } from './failure.js';
import { checkPair, type Pair } from './pair.js';
import { pairsOf } from './walk.js';

/** Options of {@link assertClose}. */
export interface CloseOptions {
  /** The relative tolerance, given together with `atol`. By default that of the dtype. */
  rtol?: number | null;
  /** The absolute tolerance, given together with `rtol`. By default that of the dtype. */
  atol?: number | null;
  /** Whether NaN is close to NaN. False by default. */
  equalNan?: boolean;
  /** Whether dtypes must be equal; else the larger tolerances count. True by default. */
  checkDtype?: boolean;
  /** Whether devices must be equal. True by default. */
  checkDevice?: boolean;
  /** Whether strides must be equal. False by default. */
  checkStride?: boolean;
  /** The begin of the error. */
  message?: string | null;
}

/**
 * Asserts that `actual` and `expected` are close: `|actual - expected| <= atol + rtol * |expected|`
 * for all elements, and shapes, dtypes and devices are equal. Blocks until the values are known.
 *
 * Arrays, objects and Maps are compared recursively, typed arrays as tensors, numbers as float64;
 * bigints, strings and booleans exactly. Tolerances (rtol, atol) by dtype: float64 1e-7, 1e-7;
 * float32 1.3e-6, 1e-5; float16 1e-3, 1e-5; bfloat16 1.6e-2, 1e-5; integers and bool 0, 0.
 * Tensors of `meta` have no values: shape, dtype and device count.
 *
 * Distributed tensors of the same spec without partial values compare the local shard of each rank,
 * and no ranks communicate. Others, and a distributed tensor with a plain one, compare whole values
 * on all ranks, which must all call it.
 *
 * @throws `assert.AssertionError` with what differs: how many elements, the greatest differences
 * with their indices, the rank; `actual` and `expected` are the first elements that differ, by
 * index. ArgumentError for options that are none, and for objects of other classes; DistributedError
 * for a collective that `local` ranks cannot wait for: use {@link assertCloseAsync}
 * @see PyTorch `torch.testing.assert_close`
 * @example
 * assertClose(tensor([0.1]).add(0.2), tensor([0.3]));
 * assertClose({ loss: 1, grads: [ones([2])] }, { loss: 1, grads: [ones([2])] });
 */
export function assertClose(actual: unknown, expected: unknown, options: CloseOptions = {}): void {
  const comparison = readOptions('assertClose', options, assertClose);
  const read = ({ sides: [a, e] }: Pair) => [a.valuesNow(), e.valuesNow()] as const;
  for (const pair of pairsOf(actual, expected, comparison)) {
    const values = calledAs(
      'assertClose',
      () => read(pair),
      'Use `await assertCloseAsync(…)` instead.',
    );
    checkPair(pair, values, comparison);
  }
}

/**
 * {@link assertClose} without blocking the event loop, which `local` ranks need where they wait for
 * a collective. The promise is rejected with what that throws.
 *
 * @example
 * await assertCloseAsync(ones([2]).add(1), full([2], 2));
 */
export async function assertCloseAsync(
  actual: unknown,
  expected: unknown,
  options: CloseOptions = {},
): Promise<void> {
  const comparison = readOptions('assertCloseAsync', options, null);
  for (const pair of pairsOf(actual, expected, comparison)) {
    const [a, e] = pair.sides;
    checkPair(pair, await Promise.all([a.values(), e.values()]), comparison);
  }
}

function readOptions(op: string, options: CloseOptions, below: Comparison['below']): Comparison {
  const names = 'rtol atol equalNan checkDtype checkDevice checkStride message';
  const {
    rtol = null,
    atol = null,
    equalNan = false,
    checkDtype = true,
    checkDevice = true,
    checkStride = false,
    message = null,
  } = optionsOf(op, options, names);
  if ((rtol === null) !== (atol === null))
    throw new ArgumentError(
      `${op}: expected rtol and atol or neither, got ${rtol === null ? 'atol' : 'rtol'} alone`,
      { op, rtol, atol },
    );
  if (rtol !== null) checkNumber(op, 'rtol', rtol, { from: 0 });
  if (atol !== null) checkNumber(op, 'atol', atol, { from: 0 });
  for (const [name, flag] of Object.entries({ equalNan, checkDtype, checkDevice, checkStride }))
    checkFlag(op, name, flag);
  if (message !== null && typeof message !== 'string')
    throw unexpected(op, 'message', 'a string', message);
  const tolerances = rtol === null || atol === null ? null : { rtol, atol };
  return { op, below, message, tolerances, equalNan, checkDtype, checkDevice, checkStride };
}
