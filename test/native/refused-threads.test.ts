/** A system that refuses threads, as at pids.max of a container. */
import assert from 'node:assert/strict';
import { skipWithoutTools } from '../skip.js';
import { runRefused } from './refusals.js';

interface Report {
  alone: { blocking: number; awaited: number };
  index: string;
  refused: { results: number[]; name: string; message: string };
  after: { blocking: number; results: number[]; name: string; message: string };
}

const SUM = (300 * 301) / 2;

describe('without threads', function () {
  this.timeout(120_000);
  let report: Report;

  before(async function () {
    skipWithoutTools(this, 'g++');
    report = await runRefused<Report>(
      'SHARDWISE_TEST_NO_THREADS',
      { SHARDWISE_NUM_THREADS: '4' },
      'native/programs/refused-threads',
    );
  });

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
