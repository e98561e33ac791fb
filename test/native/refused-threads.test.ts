/** A system that refuses threads, as at pids.max of a container. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { root } from '../../scripts/check-tree.js';
import { compileOnce } from '../packaging/package.js';
import { runProgramWith } from '../run-program.js';
import { skipWithoutCompiler } from '../skip.js';

interface Report {
  alone: { blocking: number; awaited: number };
  index: string;
  refused: { results: number[]; name: string; message: string };
  after: { blocking: number; results: number[]; name: string; message: string };
}

const library = path.join(root, 'build', 'selftest', 'refuse-threads.so');
const SUM = (300 * 301) / 2;

describe('without threads', function () {
  this.timeout(120_000);
  const folder = mkdtempSync(path.join(tmpdir(), 'shardwise-threads-'));
  let report: Report;

  before(async function () {
    skipWithoutCompiler(this);
    mkdirSync(path.dirname(library), { recursive: true });
    const source = path.join(root, 'test', 'native', 'programs', 'refuse-threads.c');
    execFileSync(compileOnce, ['gcc', '-shared', '-fPIC', source, '-ldl', '-o', library]);
    const env = {
      LD_PRELOAD: library,
      SHARDWISE_TEST_NO_THREADS: path.join(folder, 'no-threads'),
      SHARDWISE_NUM_THREADS: '4',
    };
    report = await runProgramWith<Report>(env, 'native/programs/refused-threads');
  });
  after(() => rmSync(folder, { recursive: true }));

  it("works on the caller's thread", () => {
    assert.deepEqual(report.alone, { blocking: SUM, awaited: SUM });
    assert.equal(report.index, 'IndexError');
  });

  it('refuses ranks of one process, and says which limit to raise', () => {
    const { results, name, message } = report.refused;
    assert.deepEqual(results, []);
    assert.match(name, /^DeviceError/);
    assert.match(message, /the system refuses another thread.*pids\.max.*ulimit -u/);
  });

  it('works as ever once threads are to be had', () => {
    assert.deepEqual(report.after, { blocking: SUM, results: [24, 24, 24], name: '', message: '' });
  });
});
