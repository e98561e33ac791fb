/** Each case of PyTorch's tests that the library is measured by has a test of its number. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readdirSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import { root } from '../../scripts/check-tree.js';
import { loader } from '../run-program.js';

/** The number of cases of each document. */
const CASES = { '000': 9, '001': 24, '002': 8, '003': 10, '004': 19 } as const;

/** Those that PyTorch runs on GPUs only. The tests of 003 run on each device that there is. */
const ON_GPUS = {
  '000': [1, 4, 5, 6, 7, 8, 9],
  '001': [11, 14, 16, 18, 19, 20, 21, 22, 23, 24],
  '002': [2, 3, 4, 5, 6, 7, 8],
  '004': [3, 5, 19],
} as const;

interface Title {
  readonly title: string;
  readonly file: string;
}

/** The titles of the tests of a folder, as mocha sees them. */
async function titlesOf(folder: string): Promise<Title[]> {
  const files = readdirSync(path.join(root, folder)).filter((name) => /\.test\.[jt]s$/.test(name));
  const { stdout } = await promisify(execFile)(
    process.execPath,
    [
      ...loader,
      path.join(root, 'node_modules/mocha/bin/mocha.js'),
      ...['--dry-run', '--no-parallel', '--reporter', 'json'],
      ...files.map((name) => `${folder}/${name}`),
    ],
    // With 'off', .mocharc.cjs would leave files out.
    { cwd: root, maxBuffer: 1 << 26, env: { ...process.env, SHARDWISE_TEST_GPU: 'auto' } },
  );
  return (JSON.parse(stdout) as { tests: Title[] }).tests;
}

/** The numbers of cases with which titles begin: `seed 001.24: …`, `seed 001.20 to 001.24: …`. */
const numbersOf = (titles: readonly Title[]): string[] =>
  titles.flatMap(({ title }) => /^seed (\d{3}\.\d+)(?: to \d{3}\.\d+)?: /.exec(title)?.[1] ?? []);

describe('the tests of seed cases', function () {
  this.timeout(120_000);
  let titles: readonly Title[] = [];
  before(async () => {
    titles = await titlesOf('test/seeds');
  });

  const all = Object.entries(CASES).flatMap(([seed, count]) =>
    Array.from({ length: count }, (_, i) => `${seed}.${i + 1}`),
  );

  it('begin with the number of a case that there is', () => {
    const known = (title: string): boolean => /^seed 00\d: all cases/.test(title);
    const others = titles.filter((each) => numbersOf([each]).length === 0 && !known(each.title));
    assert.deepEqual(others, []);
    assert.deepEqual(
      numbersOf(titles).filter((number) => !all.includes(number)),
      [],
    );
  });

  it('leave no case out', () => {
    const tested = new Set(numbersOf(titles));
    assert.deepEqual(
      all.filter((number) => !tested.has(number)),
      [],
    );
  });

  it('leave no case out that PyTorch runs on GPUs only', () => {
    const tested = new Set(numbersOf(titles.filter(({ file }) => /\.gpu\.test\./.test(file))));
    const wanted = Object.entries(ON_GPUS).flatMap(([seed, cases]) =>
      cases.map((number) => `${seed}.${number}`),
    );
    assert.deepEqual(
      wanted.filter((number) => !tested.has(number)),
      [],
    );
  });
});
