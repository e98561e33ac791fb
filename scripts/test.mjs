/**
 * Runs all tests: two files at a time, then `*.alone.test.ts`, which need the whole machine, and a
 * sample of `test-compiled.mjs`. Arguments are passed to mocha.
 */
import { createRequire } from 'node:module';
import { mocha } from './mocha.mjs';
import { sampleOfBodies } from './test-compiled.mjs';

const args = process.argv.slice(2);
// Mocha reads the same configuration with the same arguments.
const { parallel: together } = createRequire(import.meta.url)('../.mocharc.cjs');
const most = mocha(args, {});
const alone = together ? mocha(args, { SHARDWISE_TEST_ALONE: '1' }) : 0;
const bodies = together && args.length === 0 ? sampleOfBodies() : 0;
process.exitCode = most || alone || bodies;
