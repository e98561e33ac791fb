/**
 * Prints measured rows as a table: times, ratio to PyTorch, share of the machine's limit, and
 * verdict.
 */
import type { Row } from './rows.js';

export interface Measured {
  readonly row: Row;
  readonly failed?: string;
  /** The commit of the rerun that the row is from; left out for rows of the report's own run. */
  readonly commit?: string;
  /** Microseconds a call. */
  readonly ours?: number;
  readonly torch?: number;
  readonly mode?: string;
  /**
   * Median of the ratios of the pairs, ours / PyTorch's; `spread` is the smallest and the largest.
   */
  readonly ratio?: number;
  readonly spread?: readonly [number, number];
  /**
   * Error of the samples as a fraction of the tolerance; left out without samples. The first
   * reports have 0 instead.
   */
  readonly error?: number;
  /** The kernel that computes our matmul. */
  readonly by?: string;
  /** Microseconds of a raw launch in the rerun, for a host row that is from a rerun. */
  readonly rawLaunch?: number;
  /** The lowest clock and the highest power seen. */
  readonly mhz?: number;
  readonly watts?: number;
}

export interface Report {
  readonly date: string;
  readonly machine: string;
  readonly gpu: string;
  readonly torch: string;
  readonly commit: string;
  readonly pairs: number;
  /** Modes of PyTorch. */
  readonly modes: readonly string[];
  /** Microseconds of a raw launch. */
  readonly rawLaunch?: number;
  /** Duration of the run. */
  readonly seconds?: number;
  readonly rows: readonly Measured[];
}

/** Measured limits of the machine in the same run, in bytes and operations per microsecond. */
interface Ceilings {
  readonly bytes: number;
  readonly flops: number;
}

function ceilingsOf(rows: readonly Measured[]): Ceilings {
  const best = (of: (row: Row) => number | undefined): number =>
    Math.max(
      0,
      ...rows.flatMap(({ row, ours, torch }) =>
        [ours, torch].map((us) => (of(row) ?? 0) / (us ?? Infinity)),
      ),
    );
  const copies = rows.filter(({ row }) => row.group === 'copy');
  const copy = Math.max(
    0,
    ...copies.flatMap(({ row, ours, torch }) =>
      [ours, torch].map((us) => (row.bytes ?? 0) / (us ?? Infinity)),
    ),
  );
  return {
    bytes: copy,
    flops: best((row) => (['matmul', 'linear'].includes(row.group) ? row.flops : undefined)),
  };
}

/** The share of the machine's limit that a row reaches; null without a limit. */
function shareOf({ row, ours }: Measured, { bytes, flops }: Ceilings): number | null {
  if (ours === undefined || row.job.host || row.group === 'copy') return null;
  if (row.peak !== undefined) return (row.flops ?? 0) / (row.peak * 1e6) / ours;
  const multiplied =
    row.flops !== undefined && row.job.dtype === 'bfloat16' && flops > 0 ? row.flops / flops : 0;
  const moved =
    row.bytes !== undefined &&
    bytes > 0 &&
    !(row.flops !== undefined && row.job.dtype === 'float32')
      ? row.bytes / bytes
      : 0;
  const least = Math.max(multiplied, moved);
  return least === 0 ? null : least / ours;
}

/** The raw launch time of the run that the row is from; that of another run does not apply. */
const rawLaunchOf = (measured: Measured, report: Report): number | undefined =>
  measured.rawLaunch ?? (measured.commit === undefined ? report.rawLaunch : undefined);

/** 'not measured' means that at least one goal was not measured, for example without PyTorch. */
export type Verdict = 'reached' | 'not yet' | 'not measured';

function verdictOf(
  { row: { goal }, ours, ratio, failed }: Measured,
  share: number | null,
  rawLaunch: number | undefined,
): Verdict | null {
  if (failed !== undefined) return 'not yet';
  if (Object.keys(goal).length === 0) return null;
  const most = (figure: number | undefined, bound: number | undefined): Verdict =>
    figure === undefined || bound === undefined
      ? 'not measured'
      : figure <= bound
        ? 'reached'
        : 'not yet';
  const verdicts = [
    goal.us === undefined ? null : most(ours, goal.us),
    goal.aboveRaw === undefined
      ? null
      : most(ours, rawLaunch === undefined ? undefined : rawLaunch + goal.aboveRaw),
    goal.ratio === undefined ? null : most(ratio, goal.ratio),
    goal.limit === undefined ? null : most(goal.limit, share ?? undefined),
  ];
  return (
    (['not yet', 'not measured', 'reached'] as const).find((each) => verdicts.includes(each)) ??
    null
  );
}

function goalText({ row, rawLaunch }: Measured): string {
  const { us, aboveRaw, ratio, limit } = row.goal;
  return [
    us === undefined ? '' : `${us} us`,
    aboveRaw === undefined
      ? ''
      : `raw${rawLaunch === undefined ? '' : ` (${rawLaunch.toFixed(1)})`} + ${aboveRaw} us`,
    ratio === undefined ? '' : `${ratio} x`,
    limit === undefined ? '' : `${limit * 100} %`,
  ]
    .filter(Boolean)
    .join(', ');
}

const rate = ({ row, ours }: Measured): string => {
  if (ours === undefined || row.job.host) return '';
  if (row.flops !== undefined && row.group !== 'skinny')
    return `${(row.flops / ours / 1e6).toFixed(0)} TFLOP/s`;
  return row.bytes === undefined ? '' : `${(row.bytes / ours / 1e6).toFixed(2)} TB/s`;
};

const us = (value: number | undefined): string =>
  value === undefined ? '' : value.toFixed(value < 100 ? 1 : 0);

const MEAN = 'matmul, small and odd sizes, geometric mean';

/** The geometric mean of the rows that share one goal. */
function meanOf(rows: readonly Measured[]): { goal: number; ratio: number } | null {
  const several = rows.filter(
    ({ row, ratio }) => row.goal.mean !== undefined && ratio !== undefined,
  );
  const goal = several[0]?.row.goal.mean;
  if (goal === undefined) return null;
  return {
    goal,
    ratio: Math.exp(
      several.reduce((sum, { ratio }) => sum + Math.log(ratio as number), 0) / several.length,
    ),
  };
}

/**
 * The rows that miss their goals. If a mean misses its goal, also its rows that are slower than
 * PyTorch.
 */
export function shortRows(report: Report): string[] {
  const { rows } = report;
  const ceilings = ceilingsOf(rows);
  const mean = meanOf(rows);
  const isMeanShort = mean !== null && mean.ratio > mean.goal;
  const isShort = (measured: Measured): boolean =>
    verdictOf(measured, shareOf(measured, ceilings), rawLaunchOf(measured, report)) === 'not yet' ||
    (isMeanShort && measured.row.goal.mean !== undefined && (measured.ratio ?? 0) > 1);
  const short = rows.filter(isShort).map(({ row }) => row.name);
  return isMeanShort ? [...short, MEAN] : short;
}

/** The table as Markdown, one line for each row. */
export function printed(report: Report): string {
  const ceilings = ceilingsOf(report.rows);
  const lines = report.rows.map((measured) => {
    const { row, failed, ours, torch, mode, ratio, spread, mhz, watts, by } = measured;
    const share = shareOf(measured, ceilings);
    const verdict = verdictOf(measured, share, rawLaunchOf(measured, report)) ?? '';
    if (failed !== undefined)
      return [row.name, failed, '', '', '', '', goalText(measured), verdict];
    const against =
      ratio === undefined
        ? ''
        : `${ratio.toFixed(2)} (${spread?.map((each) => each.toFixed(2)).join(' to ')})`;
    const beside =
      row.flops !== undefined && mhz !== undefined ? `, ${mhz} MHz, ${watts?.toFixed(0)} W` : '';
    return [
      row.name,
      us(ours),
      torch === undefined ? '' : `${us(torch)} (${mode})`,
      against,
      `${rate(measured)}${beside}${by === undefined ? '' : `, by ${by === 'library' ? 'cuBLASLt' : by}`}`,
      share === null ? '' : `${(share * 100).toFixed(0)} %`,
      goalText(measured),
      verdict,
    ];
  });
  if (report.rawLaunch !== undefined)
    lines.push(['loop of raw launches', us(report.rawLaunch), '', '', '', '', '', '']);
  const mean = meanOf(report.rows);
  if (mean !== null)
    lines.push([
      MEAN,
      '',
      '',
      mean.ratio.toFixed(3),
      '',
      '',
      `${mean.goal} x`,
      mean.ratio <= mean.goal ? 'reached' : 'not yet',
    ]);
  const table = [
    ['row', 'ours, us', 'PyTorch, us', 'ours / PyTorch', 'rate', 'of the limit', 'goal', ''],
    ['---', '--:', '--:', '--:', '--:', '--:', '---', '---'],
    ...lines,
  ];
  return table.map((cells) => `| ${cells.join(' | ')} |`).join('\n');
}
