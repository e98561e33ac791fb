/** The table of the GPU benchmark judges rows by their goals. */
import assert from 'node:assert/strict';
import type { Goal } from '../../bench/gpu/rows.js';
import { type Measured, printed, type Report, shortRows } from '../../bench/gpu/table.js';

/** A row of 1 GB per call, on a machine that copies 4 TB/s. */
const measured = (name: string, goal: Goal, seen: Omit<Measured, 'row'>): Measured => ({
  row: { group: 'some', name, job: { op: 'some', shape: [1], dtype: 'float32' }, goal, bytes: 1e9 },
  ...seen,
});

const copy: Measured = {
  row: {
    group: 'copy',
    name: 'copy',
    job: { op: 'copy', shape: [1], dtype: 'float32' },
    goal: {},
    bytes: 4e9,
  },
  ours: 1000,
};

const reportOf = (rows: Measured[], rawLaunch?: number): Report => ({
  date: '2026-11-22',
  machine: 'a machine',
  gpu: 'a GPU',
  torch: 'none',
  commit: 'abc',
  pairs: 5,
  modes: ['eager'],
  rows: [copy, ...rows],
  ...(rawLaunch === undefined ? {} : { rawLaunch }),
});

/** The last column of the table. */
function verdict(goal: Goal, seen: Omit<Measured, 'row'>, rawLaunch?: number): string {
  const table = printed(reportOf([measured('the row', goal, seen)], rawLaunch)).split('\n');
  return (
    table
      .find((line) => line.startsWith('| the row'))
      ?.split('|')
      .at(-2)
      ?.trim() ?? 'no row'
  );
}

describe('the table of kernels', () => {
  it('says "reached" if every goal of a row is reached', () => {
    assert.equal(
      verdict({ us: 300, ratio: 1, limit: 0.8 }, { ours: 290, torch: 300, ratio: 0.97 }),
      'reached',
    );
    assert.equal(verdict({ aboveRaw: 1.5 }, { ours: 4 }, 3), 'reached');
  });

  it('says "not yet" if one goal of a row is not reached', () => {
    assert.equal(verdict({ us: 280, ratio: 1 }, { ours: 290, torch: 300, ratio: 0.97 }), 'not yet');
    assert.equal(verdict({ limit: 0.9 }, { ours: 290 }), 'not yet');
    assert.equal(verdict({ us: 280, ratio: 1 }, { ours: 290 }), 'not yet');
  });

  it('says so if a goal was not measured: without PyTorch, or without the launch loop', () => {
    assert.equal(verdict({ us: 300, ratio: 1 }, { ours: 290 }), 'not measured');
    assert.equal(verdict({ us: 4, aboveRaw: 1.5 }, { ours: 3.9 }), 'not measured');
  });

  it('has no verdict on a row without goals', () => assert.equal(verdict({}, { ours: 290 }), ''));

  it('counts the slower rows of a mean as short if the mean is', () => {
    const rows = [
      measured('slower', { mean: 0.95 }, { ours: 290, ratio: 1.02 }),
      measured('faster', { mean: 0.95 }, { ours: 290, ratio: 0.97 }),
    ];
    assert.deepEqual(shortRows(reportOf(rows)), [
      'slower',
      'matmul, small and odd sizes, geometric mean',
    ]);
    assert.deepEqual(
      shortRows(
        reportOf([
          measured('slower', { mean: 0.95 }, { ours: 290, ratio: 1.02 }),
          measured('faster', { mean: 0.95 }, { ours: 290, ratio: 0.8 }),
        ]),
      ),
      [],
    );
  });

  it('counts a row with wrong results as short', () => {
    const wrong = measured('a wrong row', { ratio: 1 }, { failed: 'ours is wrong' });
    const good = measured('a good row', { ratio: 1 }, { ours: 290, ratio: 0.9 });
    assert.deepEqual(shortRows(reportOf([wrong, good])), ['a wrong row']);
    assert.match(printed(reportOf([wrong])), /a wrong row \| ours is wrong .* not yet \|/);
  });

  it('judges a row of another run by the raw launches of that run, and shows them', () => {
    const host = (seen: Omit<Measured, 'row'>): string =>
      printed(reportOf([measured('the row', { aboveRaw: 1.5 }, { ours: 4.6, ...seen })], 2));
    assert.match(host({}), /raw \+ 1\.5 us \| not yet \|/);
    assert.match(host({ commit: 'def', rawLaunch: 3.5 }), /raw \(3\.5\) \+ 1\.5 us \| reached \|/);
    assert.match(host({ commit: 'def' }), /raw \+ 1\.5 us \| not measured \|/);
  });
});
