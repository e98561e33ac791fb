/** A report with some rows measured again, in a later run. */
import { copyRow, type Row, rows } from './rows.js';
import type { Measured, Report } from './table.js';

/** Of both runs, so that their rows may stand in one table. */
type Terms = Pick<Report, 'gpu' | 'torch' | 'modes' | 'pairs'>;

const present = new Map([copyRow, ...rows].map((row, place) => [row.name, { row, place }]));

/** @throws Error where the runs were not measured alike, with what differs */
export function checkAlike(report: Terms, later: Terms): void {
  const differing = (['gpu', 'torch', 'modes', 'pairs'] as const).filter(
    (each) => String(report[each]) !== String(later[each]),
  );
  if (differing.length === 0) return;
  const told = differing.map((each) => `${each}: ${report[each]} before, ${later[each]} now`);
  throw new Error(`rows of this run cannot stand in the earlier report: ${told.join('; ')}`);
}

/** Goals and bounds as they are today; the job is the one that was measured. */
function renewed(measured: Measured): Measured {
  const today: Row | undefined = present.get(measured.row.name)?.row;
  return today === undefined ? measured : { ...measured, row: { ...today, job: measured.row.job } };
}

/** Told by the run that it is from; the host's rows with the loop of that run. */
function fromLater(measured: Measured, { commit, rawLaunch }: Report): Measured {
  return {
    ...measured,
    commit,
    ...(measured.row.job.host && rawLaunch !== undefined ? { rawLaunch } : {}),
  };
}

/**
 * A report whose rows are those of a later run where that has them, and those that are new, in the
 * order of the rows. A figure stays where the later run has failed.
 *
 * @throws Error where the runs were not measured alike
 */
export function mended(
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
    else again.set(row.name, fromLater(measured, later));
  }
  const stay = report.rows.filter(({ row }) => !again.has(row.name)).map(renewed);
  const placeOf = ({ row }: Measured): number => present.get(row.name)?.place ?? present.size;
  return {
    ...report,
    rows: [...stay, ...again.values()].toSorted((a, b) => placeOf(a) - placeOf(b)),
  };
}
