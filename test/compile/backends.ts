/** The backends that a test compares with eager, and how exactly. */
import assert from 'node:assert/strict';
import type { BackendName } from '../../lib/compile/backends.js';

const all: readonly BackendName[] = [
  'eager',
  'aot_eager',
  'aot_eager_decomp_partition',
  'inductor',
];

/** `npm run test:compiled` runs all backends, `npm test` the default one. */
export const backends: readonly BackendName[] =
  process.env['SHARDWISE_TEST_COMPILED'] === 'all' ? all : ['inductor'];

/** Whether results may differ in rounding: ops were replaced by others. */
const rounds = (backend: BackendName): boolean => backend === 'aot_eager_decomp_partition';

/** Compares values at any depth. */
export function assertSame(
  actual: unknown,
  expected: unknown,
  backend: BackendName,
  message: string,
): void {
  if (rounds(backend)) assertNear(actual, expected, message);
  else assert.deepEqual(actual, expected, message);
}

function assertNear(actual: unknown, expected: unknown, message: string): void {
  if (typeof expected === 'number' && typeof actual === 'number') {
    const near = Math.abs(actual - expected) <= 1e-5 * (1 + Math.abs(expected));
    assert.ok(near || Object.is(actual, expected), `${message}: ${actual}, not ${expected}`);
  } else if (Array.isArray(expected)) {
    assert.ok(Array.isArray(actual) && actual.length === expected.length, message);
    expected.forEach((each, i) => assertNear((actual as unknown[])[i], each, `${message}, ${i}`));
  } else if (typeof expected === 'object' && expected !== null) {
    assert.deepEqual(Object.keys(actual as object), Object.keys(expected), message);
    for (const [key, value] of Object.entries(expected))
      assertNear((actual as Record<string, unknown>)[key], value, `${message}, ${key}`);
  } else assert.equal(actual, expected, message);
}
