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

/** What some tests need beside Node, and the package of Debian that has it. */
const packages = {
  cmake: 'cmake',
  'g++': 'g++',
  git: 'git',
  make: 'make',
  nm: 'binutils',
  objdump: 'binutils',
  python3: 'python3',
  readelf: 'binutils',
  script: 'bsdutils',
  strip: 'binutils',
  taskset: 'util-linux',
} as const;

/** A machine may lack programs, but CI has to have them: there all tests must run. */
export function skipWithoutTools(
  context: Mocha.Context,
  ...tools: readonly (keyof typeof packages)[]
): void {
  const missing = tools.filter((tool) => spawnSync(tool, ['--version']).status !== 0);
  if (missing.length === 0) return;
  const install = `apt-get install ${[...new Set(missing.map((tool) => packages[tool]))].join(' ')}`;
  assert.ok(process.env.CI !== 'true', `CI has to have ${missing.join(', ')}: ${install}`);
  skipBecause(context, `no ${missing.join(', ')}: ${install}`);
}

export function skipWithoutCuda(context: Mocha.Context): void {
  if (!cuda.isAvailable()) skipBecause(context, 'no CUDA device');
}
