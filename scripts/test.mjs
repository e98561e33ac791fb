/**
 * All tests: two files at a time, and then those that need the machine for themselves,
 * `*.alone.test.ts`. Arguments are mocha's.
 */
import { spawnSync } from 'node:child_process';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';

const file = (name) => fileURLToPath(new URL(`../${name}`, import.meta.url));
const args = process.argv.slice(2);

function mocha(env) {
  const command = [
    '--import',
    './scripts/typescript.mjs',
    file('node_modules/mocha/bin/mocha.js'),
    ...args,
  ];
  const { status } = spawnSync(process.execPath, command, {
    cwd: file('.'),
    stdio: 'inherit',
    env: { ...process.env, ...env },
  });
  return status ?? 1;
}

// as mocha will decide, by the same arguments
const { parallel: together } = createRequire(import.meta.url)('../.mocharc.cjs');
const most = mocha({});
const alone = together ? mocha({ SHARDWISE_TEST_ALONE: '1' }) : 0;
process.exitCode = most || alone;
