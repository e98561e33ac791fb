/**
 * Runs all tests: two files at a time, then `*.alone.test.ts`, which need the whole machine, and a
 * sample of `test-compiled.mjs`. What failed is listed at the end. Arguments are passed to mocha.
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
const folder = mkdtempSync(path.join(tmpdir(), 'shardwise-failures-'));
const failures = path.join(folder, 'failures.txt');
process.env['SHARDWISE_TEST_FAILURES'] = failures;
writeFileSync(failures, '');

const most = mocha(args, {});
const alone = together ? mocha(args, { SHARDWISE_TEST_ALONE: '1' }) : 0;
const bodies = together && args.length === 0 ? sampleOfBodies() : 0;
process.exitCode = most || alone || bodies;

if (process.exitCode) {
  const codes = `all ${most}, alone ${alone}, compiled bodies ${bodies}`;
  console.log(`Exit codes: ${codes}. Failed tests:\n${readFileSync(failures, 'utf8')}`);
}
rmSync(folder, { recursive: true });
