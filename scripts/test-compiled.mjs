/**
 * Compares compiled code with uncompiled code: ops, modules and optimizers with each backend; then
 * the suites of autograd, nn, optim, dtensor and parallel, with the body of every test compiled by
 * each backend (test/compiled/bodies.ts). Arguments are passed to mocha, such as `-g TEXT`.
 */
import { pathToFileURL } from 'node:url';
import { mocha } from './mocha.mjs';

const BACKENDS = ['eager', 'aot_eager', 'aot_eager_decomp_partition', 'inductor'];
const EVERY = ['op', 'module', 'optimizer'].map((what) => `test/compile/every-${what}.test.ts`);

/** The part that `npm test` runs; it has every kind of test, and takes a minute. */
const SAMPLE = [
  'autograd/engine',
  'autograd/in-place',
  'autograd/multi-grad-hook',
  'autograd/saved-tensors-hooks',
  'nn/layers',
  'nn/containers',
  'nn/transformer',
  'optim/optimizer',
  'dtensor/training',
  'dtensor/functional-collectives',
  'parallel/activation-checkpoint/checkpoint',
  'parallel/colwise-rowwise',
  'parallel/data-parallel/parity',
  'parallel/fully-shard/parity',
].map((name) => `test/${name}.test.ts`);

/** Runs the tests of some files with compiled bodies. */
export const sampleOfBodies = () => bodiesBy('inductor', ['--parallel', ...SAMPLE]);

/** Warnings that functions have been captured too often are no news here. */
function bodiesBy(backend, args) {
  return mocha(args, { SHARDWISE_TEST_BODIES: backend, NODE_NO_WARNINGS: '1' });
}

function run() {
  const args = process.argv.slice(2);
  if (args[0] === '--sample') return sampleOfBodies();
  const [named, others] = [args.filter(isFile), args.filter((arg) => !isFile(arg))];
  const every =
    named.length > 0 ? 0 : mocha([...EVERY, ...others], { SHARDWISE_TEST_COMPILED: 'all' });
  const failed = BACKENDS.map((backend) => {
    console.log(`\nBodies of tests compiled with backend ${backend}:`);
    return bodiesBy(backend, args);
  });
  return Math.max(every, ...failed);
}

const isFile = (arg) => arg.endsWith('.test.ts');

if (import.meta.url === pathToFileURL(process.argv[1]).href) process.exitCode = run();
