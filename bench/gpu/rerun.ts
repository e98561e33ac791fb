/** Merges a rerun of some rows into an earlier report. */
import { copyRow, type Row, rows } from './rows.js';
import type { Measured, Report } from './table.js';

/** Conditions that must be equal in both runs, or their rows cannot be compared. */
type Conditions = Pick<Report, 'gpu' | 'torch' | 'modes' | 'pairs'>;

const present = new Map([copyRow, ...rows].map((row, place) => [row.name, { row, place }]));

/** @throws Error with the differences if the two runs were measured under different conditions */
export function checkAlike(report: Conditions, later: Conditions): void {
  const differing = (['gpu', 'torch', 'modes', 'pairs'] as const).filter(
    (each) => String(report[each]) !== String(later[each]),
  );
  if (differing.length === 0) return;
  const differences = differing.map(
    (each) => `${each}: ${report[each]} before, ${later[each]} now`,
  );
  throw new Error(`rows of this run cannot stand in the earlier report: ${differences.join('; ')}`);
}

/** A row with its current goals and bounds, and the job that was measured. */
function withCurrentGoals(measured: Measured): Measured {
  const today: Row | undefined = present.get(measured.row.name)?.row;
  return today === undefined ? measured : { ...measured, row: { ...today, job: measured.row.job } };
}

/** A row of the rerun with its commit, and for host rows the launch loop of the rerun. */
function fromRerun(measured: Measured, { commit, rawLaunch }: Report): Measured {
  return {
    ...measured,
    commit,
    ...(measured.row.job.host && rawLaunch !== undefined ? { rawLaunch } : {}),
  };
}

/**
 * Replaces the rows that the rerun has, and adds new ones, in the order of the rows. If a row
 * failed in the rerun, the earlier figure stays. @throws Error if the two runs were measured under
 * different conditions
 */
export function withRerun(
  report: Report,
  later: Report,
  tell: (line: string) => void = console.error,
): Report {
  checkAlike(report, later);
  const good = new Set(
    report.rows.filter(({ failed }) => failed === undefined).map(({ row }) => row.name),
  );
  const again = new Map<string, Measured>();
  for (const measured of later.rows.filter(({ row }) => row.group !== copyRow.group)) {
    const { row, failed } = measured;
    if (failed !== undefined && good.has(row.name))
      tell(`${row.name}: the earlier figure stays, because it failed now: ${failed}`);
    else again.set(row.name, fromRerun(measured, later));
  }
  const stay = report.rows.filter(({ row }) => !again.has(row.name)).map(withCurrentGoals);
  const placeOf = ({ row }: Measured): number => present.get(row.name)?.place ?? present.size;
  return {
    ...report,
    rows: [...stay, ...again.values()].toSorted((a, b) => placeOf(a) - placeOf(b)),
  };
}
