/** The self-test of native/comm under ThreadSanitizer, built in a folder of its own (build/races). */
import { spawnSync } from 'node:child_process';
import path from 'node:path';
import { buildIn, root } from './build.js';

const folder = path.join(root, 'build', 'races');

/** Ranks that are threads: what ranks of several processes do with each other, it cannot see. */
export function findRaces({ jobs }: { jobs: number }): void {
  buildIn(folder, ['CMAKE_CXX_FLAGS=-fsanitize=thread -g1'], jobs, 'comm_selftest');
  const { status, error } = spawnSync(
    path.join(folder, 'build', 'selftest', 'comm_selftest'),
    ['threads'],
    { stdio: 'inherit', env: { ...process.env, TSAN_OPTIONS: 'halt_on_error=1' } },
  );
  if (status === 0) return;
  console.error(`FOUND by races${error ? `: ${error.message}` : ''}`);
  process.exitCode = 1;
}
