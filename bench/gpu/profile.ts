/**
 * Profiles our kernels by Nsight Compute: bandwidth, occupancy, and stall reasons of warps. Meant
 * for rows that miss their goal.
 *
 *   npm run bench:profile -- [groups or parts of names …] [--short bench/results/….json] [--write]
 */
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import os from 'node:os';
import { fileURLToPath } from 'node:url';
import { Command } from 'commander';
import { parse } from 'csv-parse/sync';
import {
  cuda,
  scope,
  setFloat32MatmulPrecision,
  type Tensor,
  triu,
  zeros,
} from '../../lib/index.js';
import { commit, keep, kept, today } from '../figures.js';
import { runProgram } from '../program.js';
import { chosenRows, type Row, rows } from './rows.js';
import { type Report, shortRows } from './table.js';
import { prepare } from './work.js';

/** A marker kernel, which no row uses: the profiled call runs between two of them. */
const mark = (square: Tensor): void => void triu(square);
const MARK = /tri_words/;
const SECTIONS = [
  'SpeedOfLight',
  'MemoryWorkloadAnalysis',
  'Occupancy',
  'LaunchStats',
  'WarpStateStats',
  'SchedulerStats',
];

/** One kernel of a call. Shares are percentages of the hardware's limit. */
export interface Profile {
  readonly kernel: string;
  readonly us: number;
  readonly memory: number;
  readonly compute: number;
  readonly occupancy: number;
  readonly registers: number;
  readonly blocks: number;
  readonly threads: number;
  /** Reasons for the cycles between two instructions of a warp, largest first. */
  readonly stalls: Readonly<Record<string, number>>;
}

/** The kernels of a row in order. */
export interface RowProfile {
  readonly commit: string;
  readonly kernels: readonly Profile[];
}

/** Profiles of rows by name. */
export interface Profiles {
  readonly gpu: string;
  readonly machine: string;
  readonly date: string;
  readonly rows: Readonly<Record<string, RowProfile>>;
}

type Line = Readonly<Record<string, string>>;

const number = (line: Line, metric: string): number =>
  Number((line[metric] ?? 'NaN').replaceAll(',', ''));

/** The name of a kernel without arguments and namespaces, which differ from run to run. */
function kernelOf(line: Line): string {
  const written = line['Kernel Name'] ?? '';
  const plain = written.replace(/^void /, '').replaceAll(/\w+::|\(anonymous namespace\)::/g, '');
  return /(\w+)(<|\(|$)/.exec(plain)?.[1] ?? written;
}

function stallsOf(line: Line): Record<string, number> {
  const seen = Object.keys(line).flatMap((metric) => {
    const name = /^smsp__average_warps_issue_stalled_(\w+)_per_issue_active\.ratio$/.exec(
      metric,
    )?.[1];
    return name === undefined || name.endsWith('_not_issued')
      ? []
      : [[name, number(line, metric)] as const];
  });
  const all = seen.reduce((sum, [, cycles]) => sum + cycles, 0);
  const largest = seen.toSorted((a, b) => b[1] - a[1]).slice(0, 3);
  return Object.fromEntries(
    largest.map(([name, cycles]) => [name, +((100 * cycles) / all).toFixed(0)]),
  );
}

/** Microseconds of each unit. */
const MICROSECONDS: Readonly<Record<string, number>> = {
  ns: 1e-3,
  us: 1,
  usecond: 1,
  nsecond: 1e-3,
  ms: 1e3,
  msecond: 1e3,
};

function profileOf(line: Line, units: Line): Profile {
  const of = (metric: string): number => +number(line, metric).toFixed(1);
  return {
    kernel: kernelOf(line),
    us: +(
      number(line, 'gpu__time_duration.sum') *
      (MICROSECONDS[units['gpu__time_duration.sum'] ?? ''] ?? Number.NaN)
    ).toFixed(1),
    memory: of('gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed'),
    compute: of('sm__throughput.avg.pct_of_peak_sustained_elapsed'),
    occupancy: of('sm__warps_active.avg.pct_of_peak_sustained_active'),
    registers: of('launch__registers_per_thread'),
    blocks: of('launch__grid_size'),
    threads: of('launch__block_size'),
    stalls: stallsOf(line),
  };
}

/** Runs the profiler on one row and parses its table, whose second line has the units. */
function ncu(index: number, options: readonly string[]): { units: Line; lines: Line[] } {
  const command = ['--csv', '--page', 'raw', '--clock-control', 'none', ...options];
  const program = [
    process.execPath,
    ...process.execArgv,
    fileURLToPath(import.meta.url),
    '--one',
    String(index),
  ];
  const { stdout, stderr, status } = spawnSync('ncu', [...command, ...program], {
    encoding: 'utf8',
    maxBuffer: 2 ** 28,
  });
  const start = stdout?.indexOf('"ID"') ?? -1;
  if (status !== 0 || start < 0)
    throw new Error(
      `ncu failed: ${[stdout, stderr].join('\n').trim().split('\n').slice(-5).join('\n')}`,
    );
  const [units = {}, ...lines] = parse(stdout.slice(start), {
    columns: true,
    relaxColumnCount: true,
    skipEmptyLines: true,
  }) as Line[];
  return { units, lines };
}

/**
 * Profiles one row. A first run finds the markers without replays: replaying all kernels that
 * create the operands of an optimizer would take many minutes.
 */
function profile(index: number): Profile[] {
  const { lines: all } = ncu(index, ['--section', 'LaunchStats']);
  const [before, after] = all
    .flatMap((line, i) => (MARK.test(kernelOf(line)) ? [i] : []))
    .slice(-2);
  if (before === undefined || after === undefined || after === before + 1)
    throw new Error(`no kernels between two marks, of ${all.length} in all`);
  const wanted = all.slice(before + 1, after).map(kernelOf);
  const sections = SECTIONS.flatMap((section) => ['--section', section]);
  const { units, lines } = ncu(index, [
    ...sections,
    '--launch-skip',
    String(before + 1),
    '--launch-count',
    String(wanted.length),
  ]);
  const got = lines.map(kernelOf);
  if (got.join() !== wanted.join())
    throw new Error(
      `the second run has other kernels: ${got.join(', ')}; expected ${wanted.join(', ')}`,
    );
  return lines.map((line) => profileOf(line, units));
}

/** Runs in the profiled process: a warm-up call, and one between markers. */
function callOnce({ job }: Row): void {
  setFloat32MatmulPrecision(job.precision ?? 'highest');
  const work = prepare(job);
  const square = zeros([2, 2], { device: 'cuda' });
  scope(() => void work.call(0));
  mark(square);
  scope(() => void work.call(1));
  mark(square);
  cuda.synchronize();
}

/** Profiles rows. Each row takes minutes, so the results of the day are stored after each. */
function profileRows(chosen: readonly Row[], write: boolean): void {
  const gpu = cuda.getDeviceProperties().name;
  const seen = { ...kept<Profiles>(gpu, 'profiles')?.rows };
  for (const row of chosen.filter(({ job }) => !job.host)) {
    const kernels = profile(rows.indexOf(row));
    seen[row.name] = { commit: commit(), kernels };
    console.log(row.name);
    console.table(
      kernels.map(({ stalls, ...rest }) => ({ ...rest, stalls: JSON.stringify(stalls) })),
    );
    if (write)
      keep(gpu, 'profiles', {
        gpu,
        machine: `${os.cpus()[0]?.model.trim()}`,
        date: today(),
        rows: seen,
      });
  }
}

function shortOf(file: string): Row[] {
  const short = shortRows(JSON.parse(readFileSync(file, 'utf8')) as Report);
  return rows.filter((row) => short.includes(row.name));
}

function main(): void {
  const command = new Command('bench:profile')
    .argument(
      '[rows...]',
      'groups as of bench:gpu, or parts of the names of rows; all that are timed on the ' +
        'device if left out',
    )
    .option('--short <report>', 'those that stay short of their goals in a report of bench:gpu')
    .option('--one <index>', 'what the profiled process does', Number)
    .option('--write', 'keep the figures in bench/results', false)
    .parse();
  const { one, short, write } = command.opts<{ one?: number; short?: string; write: boolean }>();
  if (one === undefined)
    profileRows(short === undefined ? chosenRows(command.args) : shortOf(short), write);
  else callOnce(rows[one] as Row);
}

await runProgram(main);
