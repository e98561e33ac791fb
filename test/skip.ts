/** Skips tests with a reason in the report, so that a skipped test is visible. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { cuda } from '../lib/index.js';

/**
 * Skips the test, or from a `before` hook its whole suite, and writes the reason behind the names
 * in the report.
 */
export function skipBecause(context: Mocha.Context, reason: string): never {
  const { test } = context;
  const mark = (each: Mocha.Runnable): void => {
    each.title += ` (skipped: ${reason})`;
  };
  if ((test as { type?: string } | undefined)?.type === 'hook') test?.parent?.eachTest(mark);
  else if (test !== undefined) mark(test);
  return context.skip();
}

/** CI has to have g++: there the tests that compile native code by themselves must run. */
export function skipWithoutCompiler(context: Mocha.Context): void {
  if (spawnSync('g++', ['--version']).status === 0) return;
  assert.ok(process.env.CI !== 'true', 'CI has to have g++: native self-tests would not run');
  skipBecause(context, 'no g++');
}

export function skipWithoutCuda(context: Mocha.Context): void {
  if (!cuda.isAvailable()) skipBecause(context, 'no CUDA device');
}
