/** Rerun rows replace those of an earlier report. */
import assert from 'node:assert/strict';
import { checkAlike, withRerun } from '../../bench/gpu/rerun.js';
import { copyRow, type Row, rows } from '../../bench/gpu/rows.js';
import { type Measured, type Report, shortRows } from '../../bench/gpu/table.js';

const rowOf = (name: string): Row => rows.find((row) => row.name === name) as Row;
const [ADD, MM, NORM] = [
  'host time of add',
  'host time of mm',
  'layer norm, bfloat16, 8192 x 4096',
];

const measured = (name: string, seen: Omit<Measured, 'row'>): Measured => ({
  row: rowOf(name),
  ...seen,
});

function reportOf(commit: string, list: readonly Measured[], more: Partial<Report> = {}): Report {
  const common = {
    date: '2026-11-22',
    machine: 'a machine',
    gpu: 'a GPU',
    torch: '2.11.0',
    pairs: 5,
    modes: ['eager', 'compile'],
  };
  return { ...common, commit, rows: [{ row: copyRow, ours: 500 }, ...list], ...more };
}

const rowIn = (report: Report, name: string): Measured =>
  report.rows.find(({ row }) => row.name === name) as Measured;

describe('a report with rows that were measured again', () => {
  it('has the later figures with their commit and new rows, and keeps the other rows in order', () => {
    const earlier = reportOf('old', [measured(ADD, { ours: 4 }), measured(MM, { ours: 5 })]);
    const { rows: all, commit } = withRerun(
      earlier,
      reportOf('new', [measured(MM, { ours: 3 }), measured(NORM, { ours: 35 })]),
    );
    assert.deepEqual(
      all.map(({ row, ours, commit: own }) => [row.name, ours, own]),
      [
        [copyRow.name, 500, undefined],
        [NORM, 35, 'new'],
        [ADD, 4, undefined],
        [MM, 3, 'new'],
      ],
    );
    assert.equal(commit, 'old');
  });

  it('judges host rows by the launch loop of their own run', () => {
    const earlier = reportOf('old', [measured(ADD, { ours: 3.9 }), measured(MM, { ours: 4.6 })], {
      rawLaunch: 2,
    });
    const later = withRerun(
      earlier,
      reportOf('new', [measured(MM, { ours: 4.6 })], { rawLaunch: 3.5 }),
    );
    assert.equal(rowIn(later, MM).rawLaunch, 3.5);
    assert.equal(later.rawLaunch, 2);
    assert.deepEqual(shortRows(earlier), [ADD, MM]);
    assert.deepEqual(shortRows(later), [ADD]);
  });

  it('does not judge host rows by the launch loop of the earlier run if the later run has none', () => {
    const earlier = reportOf('old', [measured(MM, { ours: 4.6 })], { rawLaunch: 2 });
    assert.deepEqual(
      shortRows(withRerun(earlier, reportOf('new', [measured(MM, { ours: 4.6 })]))),
      [],
    );
  });

  it('keeps a figure that failed in the later run, and says so', () => {
    const lines: string[] = [];
    const earlier = reportOf('old', [measured(NORM, { ours: 35 })]);
    const both = withRerun(
      earlier,
      reportOf('new', [
        measured(NORM, { failed: 'ours: no memory' }),
        measured(ADD, { failed: 'torch: gone' }),
      ]),
      (line) => lines.push(line),
    );
    assert.deepEqual(
      [rowIn(both, NORM).ours, rowIn(both, NORM).failed, rowIn(both, NORM).commit],
      [35, undefined, undefined],
    );
    assert.equal(rowIn(both, ADD).failed, 'torch: gone');
    assert.deepEqual(lines, [
      `${NORM}: the earlier figure stays, because it failed now: ours: no memory`,
    ]);
  });

  it('uses the later run if the earlier one failed', () => {
    const earlier = reportOf('old', [measured(NORM, { failed: 'ours: no memory' })]);
    assert.equal(
      rowIn(withRerun(earlier, reportOf('new', [measured(NORM, { ours: 35 })])), NORM).ours,
      35,
    );
  });

  it('is refused if the two runs were measured differently, with the difference', () => {
    const earlier = reportOf('old', []);
    const refused = (more: Partial<Report>, what: RegExp): void =>
      assert.throws(() => withRerun(earlier, reportOf('new', [], more)), what);
    refused({ gpu: 'another GPU' }, /earlier report: gpu: a GPU before, another GPU now$/);
    refused({ torch: '2.12.0' }, /torch: 2\.11\.0 before, 2\.12\.0 now$/);
    refused({ modes: ['eager'] }, /modes: eager,compile before, eager now$/);
    refused({ pairs: 3 }, /pairs: 5 before, 3 now$/);
    refused(
      { pairs: 7, gpu: 'another GPU' },
      /gpu: a GPU before, another GPU now; pairs: 5 before, 7 now$/,
    );
    assert.doesNotThrow(() =>
      checkAlike(earlier, reportOf('new', [], { machine: 'another machine' })),
    );
  });

  it('has the current goals for rows that were not measured again, and the jobs of those that were', () => {
    const job = { ...rowOf(NORM).job, rotate: 7 };
    const old: Measured = {
      row: { ...rowOf(NORM), goal: { us: 1 }, bytes: 1, flops: 2, peak: 3, job },
      ours: 35,
      ratio: 0.98,
    };
    const gone: Measured = {
      row: { ...rowOf(NORM), name: 'a row of the past', goal: { us: 1 } },
      ours: 35,
    };
    const both = withRerun(reportOf('old', [gone, old]), reportOf('new', []));
    assert.deepEqual(rowIn(both, NORM), { row: { ...rowOf(NORM), job }, ours: 35, ratio: 0.98 });
    assert.deepEqual(both.rows.at(-1), gone);
  });
});
