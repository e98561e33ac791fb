/** Runs programs in a system that refuses threads or memory, as programs/refusals.c says. */
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { root } from '../../scripts/check-tree.js';
import { compileOnce } from '../packaging/package.js';
import { runProgramWith } from '../run-program.js';

const library = path.join(root, 'build', 'selftest', 'refusals.so');

/** What the program prints. It makes and removes the file that the variable names. */
export async function runRefused<T>(
  variable: 'SHARDWISE_TEST_NO_THREADS' | 'SHARDWISE_TEST_NO_SCRATCH',
  env: Readonly<Record<string, string>>,
  name: string,
  ...args: string[]
): Promise<T> {
  mkdirSync(path.dirname(library), { recursive: true });
  const source = path.join(root, 'test', 'native', 'programs', 'refusals.c');
  execFileSync(compileOnce, ['gcc', '-shared', '-fPIC', source, '-ldl', '-o', library]);
  const folder = mkdtempSync(path.join(tmpdir(), 'shardwise-refusals-'));
  try {
    const refusing = { LD_PRELOAD: library, [variable]: path.join(folder, 'refuse') };
    return await runProgramWith<T>({ ...refusing, ...env }, name, ...args);
  } finally {
    rmSync(folder, { recursive: true });
  }
}
