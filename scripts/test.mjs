/**
 * Runs all tests: two files at a time, and then `*.alone.test.ts`, which need the whole machine.
 * Arguments are passed to mocha.
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

// Mocha reads the same configuration with the same arguments.
const { parallel: together } = createRequire(import.meta.url)('../.mocharc.cjs');
const most = mocha({});
const alone = together ? mocha({ SHARDWISE_TEST_ALONE: '1' }) : 0;
process.exitCode = most || alone;
