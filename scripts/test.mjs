/**
 * Runs all tests: two files at a time, then `*.alone.test.ts`, which need the whole machine, and a
 * sample of `test-compiled.mjs`. The sum and what failed come at the end. Arguments are passed to
 * mocha.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { mocha } from './mocha.mjs';
import { sampleOfBodies } from './test-compiled.mjs';

const args = process.argv.slice(2);
// Mocha reads the same configuration with the same arguments.
const { parallel: together } = createRequire(import.meta.url)('../.mocharc.cjs');
const folder = mkdtempSync(path.join(tmpdir(), 'shardwise-tests-'));
const [failures, counts] = ['failures.txt', 'counts.txt'].map((name) => path.join(folder, name));
for (const file of [failures, counts]) writeFileSync(file, '');
process.env['SHARDWISE_TEST_REPORT'] = folder;
const began = Date.now();

const most = mocha(args, {});
const alone = together ? mocha(args, { SHARDWISE_TEST_ALONE: '1' }) : 0;
const bodies = together && args.length === 0 ? sampleOfBodies() : 0;
process.exitCode = most || alone || bodies;

if (together) console.log(`${sum()} in ${((Date.now() - began) / 60_000).toFixed(1)} minutes`);
if (process.exitCode) {
  const codes = `all ${most}, alone ${alone}, compiled bodies ${bodies}`;
  console.log(`Exit codes: ${codes}. Failed tests:\n${readFileSync(failures, 'utf8')}`);
}
rmSync(folder, { recursive: true });

/** The tests of all runs. */
function sum() {
  const runs = readFileSync(counts, 'utf8').trim().split('\n').filter(Boolean);
  const total = (name) => runs.reduce((count, line) => count + JSON.parse(line)[name], 0);
  return `All tests: ${total('passes')} passing, ${total('pending')} pending, ${total('failures')} failing`;
}
