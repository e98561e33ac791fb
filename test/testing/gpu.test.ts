/** Suites and tests of users that need GPUs. */
import assert from 'node:assert/strict';
import { afterEach, beforeEach } from 'mocha';
import { ArgumentError, cuda } from '../../lib/index.js';
import { type Declare, gpu, type TestRunner } from '../../lib/testing/index.js';

type Declared = readonly [kind: string, title: string, body: () => unknown];

/** A runner that notes what is declared, and runs suites. */
function recorder(): { runner: TestRunner; declared: Declared[] } {
  const declared: Declared[] = [];
  const declare = (kind: string): Declare =>
    Object.assign((title: string, body: () => unknown) => void declared.push([kind, title, body]), {
      skip: (title: string, body: () => unknown) =>
        void declared.push([`${kind}.skip`, title, body]),
    });
  return { runner: { describe: declare('describe'), it: declare('it') }, declared };
}

describe('suites and tests that need GPUs', () => {
  const before = process.env['SHARDWISE_TEST_GPU'];
  const more = cuda.deviceCount() + 1;
  const body = (): void => {};
  beforeEach(() => void (process.env['SHARDWISE_TEST_GPU'] = 'auto'));
  afterEach(() => {
    if (before === undefined) delete process.env['SHARDWISE_TEST_GPU'];
    else process.env['SHARDWISE_TEST_GPU'] = before;
  });

  for (const kind of ['describe', 'it'] as const) {
    it(`are skipped with the reason in their title where GPUs are missing: ${kind}`, () => {
      const { runner, declared } = recorder();
      gpu.using(runner)[kind]('adds', body, { count: more });
      assert.equal(declared.length, 1);
      const [[declaredAs, title, given]] = declared as [Declared];
      assert.equal(declaredAs, `${kind}.skip`);
      assert.match(title, /^adds \(skipped: needs \d+ GPUs?, found \d+/);
      assert.ok(title.includes(`found ${cuda.deviceCount()}`));
      assert.equal(given, body);
    });

    it(`fail where GPUs are required: ${kind}`, () => {
      process.env['SHARDWISE_TEST_GPU'] = 'require';
      const { runner, declared } = recorder();
      gpu.using(runner)[kind]('adds', body, { count: more });
      assert.deepEqual(
        declared.map(([declaredAs, title]) => [declaredAs, title]),
        [['it', 'adds']],
      );
      assert.throws(() => declared[0]?.[2](), /SHARDWISE_TEST_GPU=require: "adds" needs \d+ GPU/);
    });

    it(`are skipped where tests on GPUs are off: ${kind}`, () => {
      process.env['SHARDWISE_TEST_GPU'] = 'off';
      const { runner, declared } = recorder();
      gpu.using(runner)[kind]('adds', body);
      assert.deepEqual(
        declared.map(([declaredAs, title]) => [declaredAs, title]),
        [[`${kind}.skip`, 'adds (skipped: SHARDWISE_TEST_GPU=off)']],
      );
      assert.equal(gpu.count, 0);
    });

    it(`are refused without a body, with a wrong count and with other options: ${kind}`, () => {
      const tests = gpu.using(recorder().runner);
      assert.throws(() => tests[kind]('adds', null as never), /expected the body to be a function/);
      assert.throws(() => tests[kind]('adds', body, { count: 0 }), ArgumentError);
      assert.throws(() => tests[kind]('adds', body, { gpus: 2 } as never), /gpus.*count/s);
    });
  }

  it('refuse other values of SHARDWISE_TEST_GPU', () => {
    process.env['SHARDWISE_TEST_GPU'] = 'yes';
    assert.throws(
      () => gpu.using(recorder().runner).it('adds', body),
      /SHARDWISE_TEST_GPU: expected auto, require, off, got 'yes'/,
    );
  });

  it('say how to pass the functions of a runner without globals', () => {
    const { describe: ofMocha } = globalThis;
    try {
      (globalThis as { describe?: unknown }).describe = undefined;
      assert.throws(() => gpu.it('adds', body), /gpu\.using\(\{ describe, it \}\)/);
    } finally {
      globalThis.describe = ofMocha;
    }
  });

  it('count the GPUs that tests may use', () => {
    assert.equal(gpu.count, cuda.deviceCount());
  });
});

gpu.describe('a suite on a GPU', () => {
  gpu.it('runs where there is one', () => assert.ok(cuda.isAvailable()));
});
