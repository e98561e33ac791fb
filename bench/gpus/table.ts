/** Collects the figures of both sides, and prints them as a table. */
import { median } from '../figures.js';
import type { Trained } from './job.js';

export type Side = 'ours' | 'torch';

/** A line of overlap.ts. */
export interface Timed {
  readonly name: string;
  readonly us: number;
}

type Failed = Pick<Trained, 'name' | 'mode'> & { readonly error: string };

const MEASURES = [
  ...(['stepMs', 'aheadMs', 'hostMs', 'tokensPerSecond', 'us'] as const),
  ...(['communicationMs', 'exposedMs'] as const),
  ...(['forwardMs', 'backwardMs', 'optimizerMs'] as const),
  ...(['peakGiB', 'reservedGiB', 'startSeconds', 'firstStepSeconds'] as const),
];
type Measure = (typeof MEASURES)[number];

/** The figures of one mode of a side: a value for each round. */
export interface ModeFigures extends Partial<Record<Measure, number[]>> {
  readonly side: Side;
  readonly mode: string;
  /** Of the last round. */
  losses?: readonly number[];
  errors?: string[];
}

export interface RowFigures {
  readonly name: string;
  /** Of a row that was measured in another run than the report, and kept in it. */
  readonly date?: string;
  readonly commit?: string;
  readonly modes: ModeFigures[];
  /** PyTorch's time over ours, each in its best mode. */
  speed?: number;
  /** The largest relative difference of the losses of a step, and that of the first step. */
  lossDifference?: number;
  firstLossDifference?: number;
}

export interface Report {
  readonly machine: string;
  readonly date: string;
  readonly commit: string;
  readonly torch: string;
  readonly about: string;
  readonly rows: RowFigures[];
}

export const newReport = (head: Omit<Report, 'about' | 'rows'>): Report => ({
  ...head,
  about:
    'bench/gpus/train.ts beside bench/gpus/peer_train.py, in turns on the same machine: every GPU is a rank; equal weights and batches; bfloat16 compute, float32 shards and reductions, fused AdamW. A value for each round, medians of the steps of a round.',
  rows: [],
});

const isFailed = (line: Trained | Timed | Failed): line is Failed => 'error' in line;

/** Adds what a side has printed. */
export function added(
  report: Report,
  row: string,
  side: Side,
  line: Trained | Timed | Failed,
): void {
  const mode = 'us' in line ? 'default' : line.mode;
  const figures = figuresOf(report, 'us' in line ? line.name : row, side, mode);
  if (isFailed(line)) {
    figures.errors = [...(figures.errors ?? []), line.error];
    return;
  }
  const values = line as unknown as Partial<Record<Measure, number | null>>;
  for (const measure of MEASURES) {
    const value = values[measure];
    if (value === undefined || value === null) continue;
    figures[measure] = [...(figures[measure] ?? []), value];
  }
  if ('losses' in line) figures.losses = line.losses;
  compare(report.rows.find(({ modes }) => modes.includes(figures)) as RowFigures);
}

function figuresOf(report: Report, name: string, side: Side, mode: string): ModeFigures {
  let row = report.rows.find((each) => each.name === name);
  if (row === undefined) report.rows.push((row = { name, modes: [] }));
  let figures = row.modes.find((each) => each.side === side && each.mode === mode);
  if (figures === undefined) row.modes.push((figures = { side, mode }));
  return figures;
}

const timeOf = (figures: ModeFigures): number => median(figures.stepMs ?? figures.us ?? []);

/** The fastest mode of a side. */
function bestOf({ modes }: RowFigures, side: Side): ModeFigures | undefined {
  return modes
    .filter((each) => each.side === side && !Number.isNaN(timeOf(each)))
    .sort((a, b) => timeOf(a) - timeOf(b))[0];
}

function compare(row: RowFigures): void {
  const [ours, torch] = [bestOf(row, 'ours'), bestOf(row, 'torch')];
  if (ours === undefined || torch === undefined) return;
  row.speed = +(timeOf(torch) / timeOf(ours)).toFixed(3);
  const [own = [], others = []] = [ours.losses, torch.losses];
  const steps = Math.min(own.length, others.length); // traces take more steps
  const differences = others.slice(0, steps).map((other, step) => {
    const loss = own[step] as number;
    return +(Math.abs(loss - other) / Math.abs(other)).toPrecision(3);
  });
  if (differences.length === 0) return;
  row.lossDifference = Math.max(...differences);
  row.firstLossDifference = differences[0] as number;
}

const shown = (values: readonly number[] | undefined, digits = 1): string =>
  values === undefined ? '' : median(values).toFixed(digits);

function lines(row: RowFigures): string[][] {
  const percent = (value: number | undefined): string =>
    value === undefined ? '' : `${(100 * value).toFixed(3)} %`;
  return row.modes.map((figures, i) => [
    i === 0 ? row.name : '',
    `${figures.side} ${figures.mode}`,
    shown(figures.stepMs) || (figures.us ? `${shown(figures.us)} us` : '-'),
    shown(figures.aheadMs),
    shown(figures.hostMs),
    shown(figures.tokensPerSecond, 0),
    shown(figures.peakGiB, 2),
    shown(figures.exposedMs),
    i === 0 ? (row.speed?.toFixed(2) ?? '') : '',
    i === 0 ? percent(row.lossDifference) : '',
    (figures.errors ?? []).map((error) => error.split('\n')[0]).join('; '),
  ]);
}

/** The scaling of DDP: tokens a GPU of several over those of one. */
function scaling(report: Report): string[] {
  const ofDdp = (ranks: number, side: Side): number | undefined => {
    const row = report.rows.find(({ name }) => name === `ddp124m, ${ranks} GPUs`);
    const best = row && bestOf(row, side);
    return best && median(best.tokensPerSecond ?? []);
  };
  return (['ours', 'torch'] as const).flatMap((side) =>
    [2, 4, 8].flatMap((ranks) => {
      const [one, several] = [ofDdp(1, side), ofDdp(ranks, side)];
      if (one === undefined || several === undefined) return [];
      return [`scaling of DDP to ${ranks} GPUs, ${side}: ${(several / one).toFixed(3)}`];
    }),
  );
}

/** The table as Markdown. */
export function printedReport(report: Report): string {
  const head = ['row', 'side', 'step, ms', 'ahead, ms', 'host, ms', 'tokens/s a GPU', 'peak, GiB'];
  head.push('exposed, ms', "PyTorch's best / ours", 'losses differ by', 'failures');
  const rows = [head, ['---', '---', ...Array(head.length - 2).fill('--:')]];
  rows.push(...report.rows.flatMap(lines));
  return [...rows.map((cells) => `| ${cells.join(' | ')} |`), ...scaling(report)].join('\n');
}
