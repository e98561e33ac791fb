/** Skips tests with a reason in the report, so that a skipped test is visible. */
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

export function skipWithoutCuda(context: Mocha.Context): void {
  if (!cuda.isAvailable()) skipBecause(context, 'no CUDA device');
}
