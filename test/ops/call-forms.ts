/**
 * Tests of call forms: PyTorch's arguments by position give the same as options.
 */
import assert from 'node:assert/strict';
import { it } from 'mocha';
import { float64, type Tensor, tensor } from '../../lib/index.js';

export const f64 = { dtype: float64 } as const;
export const x = tensor(
  [
    [3, 1, 2],
    [0, 5, 4],
  ],
  f64,
);
export const y = tensor(
  [
    [1, 1, 1],
    [2, 2, 2],
  ],
  f64,
);
export const index = tensor([
  [0n, 1n],
  [2n, 0n],
]);

/** The result in PyTorch as JSON, and the forms of the call that must give it. */
export type CallForms = Record<string, [expected: string, ...forms: (() => unknown)[]]>;

/** Values of all tensors in a result. */
function values(result: unknown): unknown {
  if (result !== null && typeof result === 'object' && 'tolist' in result)
    return (result as Tensor).tolist();
  if (result !== null && typeof result === 'object' && Symbol.iterator in result)
    return [...(result as Iterable<unknown>)].map(values);
  return result !== null && typeof result === 'object' ? Object.values(result).map(values) : result;
}

function close(actual: unknown, expected: unknown, form: string): void {
  if (Array.isArray(expected)) {
    assert.ok(Array.isArray(actual) && actual.length === expected.length, form);
    for (const [i, e] of expected.entries()) close(actual[i], e, form);
  } else if (typeof expected === 'number')
    assert.ok(
      Math.abs(Number(actual) - expected) < 1e-6,
      `${form} gives ${actual} instead of ${expected}`,
    );
  else assert.equal(actual, expected, form);
}

/** A test for each call. */
export function itGivesTheSame(calls: CallForms): void {
  for (const [call, [expected, ...forms]] of Object.entries(calls)) {
    it(`${call} gives the same result by position and as options`, () => {
      for (const form of forms) {
        const actual = values(form());
        close(actual, JSON.parse(expected), String(form));
      }
    });
  }
}
