/**
 * The packed package in mocha, vitest and jest, in ES modules and in CommonJS: the programs of
 * docs/writing-tests.md, and those of runners/. Part of npm run test:runtimes.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { npm, pack, removeTemporaryFolders, root, temporaryFolder } from '../packaging/package.js';

const packages = ['jest@30', 'jest-29@npm:jest@29', 'mocha@12', 'vitest@4'];

describe('the package in', function () {
  this.timeout(300_000);
  let folder: string;

  before(() => {
    folder = temporaryFolder('test-runners');
    writeFileSync(path.join(folder, 'package.json'), '{ "private": true }\n');
    cpSync(path.join(root, 'test', 'runtimes', 'runners'), folder, { recursive: true });
    for (const [file, code] of programs()) {
      mkdirSync(path.dirname(path.join(folder, file)), { recursive: true });
      writeFileSync(path.join(folder, file), code);
    }
    const options = ['--ignore-scripts', '--prefer-offline', '--no-audit'];
    npm(folder, ['install', ...options, pack(), ...packages]);
  });

  after(removeTemporaryFolders);

  /** Runs a file of a package in the folder of its runner. */
  function run(runner: string, file: string, args: readonly string[]) {
    const { status, stdout, stderr } = spawnSync(
      process.execPath,
      [path.join(folder, 'node_modules', file), ...args],
      { cwd: path.join(folder, runner), encoding: 'utf8', timeout: 120_000, env: environment() },
    );
    return { status, output: stdout + stderr };
  }

  function passes(runner: string, file: string, args: readonly string[], count: RegExp): void {
    const { status, output } = run(runner, file, args);
    assert.equal(status, 0, output);
    assert.match(output, count);
  }

  function fails(runner: string, file: string, args: readonly string[], what: RegExp[]): void {
    const { status, output } = run(runner, file, args);
    assert.notEqual(status, 0, output);
    for (const text of what) assert.match(output, text);
  }

  const failedRank = /rank 1: assertClose on rank 1 of 2: values differ/;
  const differenceOfDims = /- Array \[\n.*\n\s*-\s+1,\n\s*-\s+1,\n/;
  const difference = /1,\n\s*-\s+3,\n\s*\+\s+1,\n/;

  describe('mocha', () => {
    const mocha = 'mocha/bin/mocha.js';

    it('runs tests of both kinds of modules, and ranks in one process and as processes', () =>
      passes('mocha', mocha, ['*.test.*'], /4 passing/));

    it('names the rank that failed', () =>
      fails('mocha', mocha, ['failing.mjs'], [failedRank, /2 failing/]));
  });

  describe('vitest', () => {
    const vitest = 'vitest/vitest.mjs';

    for (const pool of ['forks', 'threads', 'vmThreads'])
      it(`runs tests in the pool ${pool}`, () => {
        const args = ['run', `--pool=${pool}`, '--exclude', 'failing/**'];
        passes('vitest', vitest, args, /Tests .*4 passed/);
      });

    it('names the rank that failed, and prints how tensors differ', () => {
      const args = ['run', '--dir', 'failing'];
      fails('vitest', vitest, args, [failedRank, difference]);
    });
  });

  for (const [version, jest] of [
    ['29', 'jest-29/bin/jest.js'],
    ['30', 'jest/bin/jest.js'],
  ] as const)
    describe(`jest ${version}`, () => {
      it('runs tests in CommonJS', () =>
        passes('jest', jest, ['--runInBand', '\\.test\\.js$'], /Tests: +3 passed, 3 total/));

      it('runs tests in ES modules', () => {
        process.env['NODE_OPTIONS'] = '--experimental-vm-modules';
        try {
          passes('jest', jest, ['--runInBand', '\\.mjs$'], /Tests: +2 passed, 2 total/);
        } finally {
          delete process.env['NODE_OPTIONS'];
        }
      });

      it('names the rank that failed, and prints how tensors differ', () =>
        fails(
          'jest',
          jest,
          ['--runInBand', '--testMatch', '**/failing.js'],
          [failedRank, difference, differenceOfDims],
        ));
    });
});

/** The programs of the page, by the file that each one names. */
function programs(): Map<string, string> {
  const page = readFileSync(path.join(root, 'docs', 'writing-tests.md'), 'utf8');
  const blocks = page.matchAll(/```js\n\/\/ (\S+)\n([\s\S]*?)```/g);
  return new Map([...blocks].map(([, file = '', code = '']) => [file, code]));
}

/** Without colors, and without what mocha's own processes get. */
function environment(): NodeJS.ProcessEnv {
  const { FORCE_COLOR: _, ...env } = process.env;
  return { ...env, NO_COLOR: '1' };
}
