/**
 * Collectives, distributed tensors and products beside them, ours and
 * PyTorch's in turns; prints medians and the medians of the pairs' ratios, and keeps them.
 *
 *   npm run bench:collectives -- [--ranks N] [--rounds N] [--write]
 */
import { spawnSync } from 'node:child_process';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { Command } from 'commander';
import { cuda } from '../../lib/index.js';
import { commit, keep, median, python, today, torchVersion } from '../figures.js';
import { requireGpu, runProgram } from '../program.js';
import {
  type CollectivesReport,
  type Compared,
  printedCollectives,
  type Times,
} from './collectives-table.js';

/** A line of output of a program. */
interface Row extends Times {
  name: string;
}

type Round = ReadonlyMap<string, Row>;

const here = fileURLToPath(import.meta.url);
const folder = path.dirname(path.dirname(here));
const MEASURES = ['us', 'hostUs', 'deviceUs', 'busGBps'] as const;

function rowsOf(command: string, args: readonly string[]): Row[] {
  const { status, stdout, stderr, error } = spawnSync(command, args, {
    encoding: 'utf8',
    maxBuffer: 2 ** 26,
  });
  // what a peer leaves out
  for (const line of stdout?.split('\n') ?? []) if (/^rank 0: /.test(line)) console.error(line);
  if (status !== 0)
    throw new Error(
      `${[command, ...args].join(' ')} failed: ` +
        `${error?.message ?? stderr.trim().split('\n').slice(-3).join('\n')}`,
    );
  const lines = stdout?.split('\n').filter((line) => line.startsWith('{"name"')) ?? [];
  return lines.map((line) => JSON.parse(line) as Row);
}

const ours = (ranks: number): Round => {
  const program = (name: string, ...args: string[]) =>
    rowsOf(process.execPath, [
      ...process.execArgv,
      path.join(folder, name + path.extname(here)),
      ...args,
    ]);
  return new Map(
    [...program('collectives', 'cuda', String(ranks)), ...program('overlap', String(ranks))].map(
      (row) => [row.name, row],
    ),
  );
};

const theirs = (ranks: number): Round => {
  const launcher = ['-m', 'torch.distributed.run', '--nproc-per-node', String(ranks)];
  const program = (name: string) =>
    rowsOf(python() ?? 'python3', [...launcher, path.join(folder, `peer_${name}.py`)]);
  return new Map([...program('collectives'), ...program('overlap')].map((row) => [row.name, row]));
};

/** The medians of one implementation. */
function medians(rounds: readonly Round[], name: string): Times | null {
  const rows = rounds.map((round) => round.get(name)).filter((row) => row !== undefined);
  if (rows.length === 0) return null;
  const values = MEASURES.flatMap((measure) => {
    const seen = rows.map((row) => row[measure]).filter((value) => value !== undefined);
    return seen.length === 0 ? [] : [[measure, median(seen)] as const];
  });
  return { us: Number.NaN, ...Object.fromEntries(values) };
}

/** The ratio of each pair of runs, ours / theirs. */
function ratios(
  a: readonly Round[],
  b: readonly Round[],
  name: string,
): { ratio: number; least: number; largest: number } | null {
  const pairs = a
    .map((round, i) => (round.get(name)?.us ?? Number.NaN) / (b[i]?.get(name)?.us ?? Number.NaN))
    .filter((ratio) => !Number.isNaN(ratio));
  return pairs.length === 0
    ? null
    : {
        ratio: +median(pairs).toFixed(3),
        least: +Math.min(...pairs).toFixed(3),
        largest: +Math.max(...pairs).toFixed(3),
      };
}

function main(): void {
  const command = new Command('bench:collectives')
    .option('--ranks <n>', 'a GPU each', Number, cuda.deviceCount())
    .option('--rounds <n>', 'how often each side runs', Number, 3)
    .option('--write', 'keep the figures in bench/results', false)
    .parse();
  const { ranks, rounds, write } = command.opts<{
    ranks: number;
    rounds: number;
    write: boolean;
  }>();
  requireGpu();
  const [a, b]: [Round[], Round[]] = [[], []];
  for (let i = 0; i < rounds; i++) {
    a.push(ours(ranks));
    b.push(theirs(ranks));
  }
  const names = new Set([...a, ...b].flatMap((round) => [...round.keys()]));
  const rows: Compared[] = [...names].map((name) => ({
    name,
    ours: medians(a, name),
    torch: medians(b, name),
    ...ratios(a, b, name),
  }));
  const device = cuda.getDeviceProperties().name;
  const torch = torchVersion();
  const date = today();
  const report: CollectivesReport = {
    machine: `${ranks} x ${device}; ranks are processes`,
    date,
    commit: commit(),
    rounds,
    torch,
    rows,
  };
  console.log(printedCollectives(report));
  if (write) keep(`${ranks}x ${device}`, 'collectives', report);
}

await runProgram(main);
