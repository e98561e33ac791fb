/**
 * The harness: runs our rows and the peers' in one go, interleaved by round, prints medians and
 * ratios, and keeps them.
 *
 *   npm run bench -- [cpu|cuda] [--rounds N] [--write]
 */
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { Argument, Command } from 'commander';
import { cuda } from '../lib/index.js';
import { commit, keep, median, printedBy, python, today, torchVersion } from './figures.js';
import type { Row } from './measure.js';
import { runProgram } from './program.js';

const here = fileURLToPath(import.meta.url);
const folder = path.dirname(here);
const root = path.dirname(folder);

/** A program of this folder with its arguments, and the implementation that it measures. */
interface Program {
  by: 'ours' | 'torch' | 'OpenBLAS' | 'raw launch';
  command: string;
  args: readonly string[];
}

function programs(device: string): Program[] {
  const ours = (name: string, argument: string): Program => {
    const args = [...process.execArgv, path.join(folder, `${name}${path.extname(here)}`), argument];
    return { by: 'ours', command: process.execPath, args };
  };
  const entry = path.join(root, 'dist', 'index.js');
  const interpreter = python() ?? 'python3';
  const peers: Program[] = [
    { by: 'torch', command: interpreter, args: [path.join(folder, 'peer_torch.py'), device] },
  ];
  if (device === 'cpu')
    peers.push({
      by: 'OpenBLAS',
      command: interpreter,
      args: [path.join(folder, 'peer_openblas.py')],
    });
  else
    peers.push({
      by: 'raw launch',
      command: process.env['LAUNCH_LOOP'] ?? 'launch_loop',
      args: [],
    });
  return [
    ours('overhead', device),
    ours('guards', device),
    ours('kernels', device),
    ours('compile', device),
    ours('backends', device),
    ours('start', pathToFileURL(entry).href),
    ours('ranks-start', path.dirname(entry)),
    ...peers,
  ];
}

/**
 * Runs a program. A missing peer leaves its columns out with a message; our own program must run.
 */
function rowsOf({ by, command, args }: Program): Row[] {
  const rows = printedBy<Row>(command, args);
  if (rows.length === 0 && by === 'ours') throw new Error(`${args.join(' ')} prints no rows`);
  return rows;
}

const keyOf = (row: Row): string => `${row.name} | ${row.burst ?? 1}`;

/** The median of each row over the rounds. */
function collect(rounds: readonly Row[][]): Map<string, Row> {
  const values = new Map<string, Row[]>();
  for (const row of rounds.flat()) values.set(keyOf(row), [...(values.get(keyOf(row)) ?? []), row]);
  return new Map(
    [...values].map(([key, rows]) => [
      key,
      { ...(rows[0] as Row), value: median(rows.map((r) => r.value)) },
    ]),
  );
}

function table(
  ours: ReadonlyMap<string, Row>,
  peers: ReadonlyMap<string, ReadonlyMap<string, Row>>,
): void {
  console.table(
    [...ours.entries()].map(([key, row]) => {
      const line: Record<string, string | number> = {
        row: row.name,
        burst: row.burst ?? 1,
        unit: row.unit,
        ours: row.value,
      };
      for (const [name, rows] of peers) {
        const peer = [...rows].find(
          ([other]) =>
            other === key || (row.unit === 'GFLOP/s' && other.startsWith(`${row.name} |`)),
        )?.[1];
        if (peer)
          Object.assign(line, {
            [name]: peer.value,
            [`ours / ${name}`]: +(row.value / peer.value).toFixed(2),
          });
      }
      return line;
    }),
  );
}

function main(): void {
  const command = new Command('bench')
    .addArgument(
      new Argument('[device]', 'where to measure')
        .choices(['cpu', 'cuda'])
        .default(cuda.isAvailable() ? 'cuda' : 'cpu'),
    )
    .option('--rounds <n>', 'how often each side runs', Number, 3)
    .option('--write', 'keep the figures in bench/results', false)
    .parse();
  const device = command.processedArgs[0] as string;
  const { rounds, write } = command.opts<{ rounds: number; write: boolean }>();
  const seen = new Map<string, Row[][]>();
  const all = programs(device);
  for (let i = 0; i < rounds; i++)
    for (const each of all) seen.set(each.by, [...(seen.get(each.by) ?? []), rowsOf(each)]);
  const results = new Map([...seen].map(([by, list]) => [by, collect(list)]));
  const ours = results.get('ours') as Map<string, Row>;
  const peers = new Map([...results].filter(([by, rows]) => by !== 'ours' && rows.size > 0));
  table(ours, peers);
  if (write) store(device, rounds, results);
}

function store(
  device: string,
  rounds: number,
  results: ReadonlyMap<string, ReadonlyMap<string, Row>>,
): void {
  const gpu = device === 'cuda' ? `, ${cuda.getDeviceProperties().name}` : '';
  const all = os.cpus().length;
  const usable = os.availableParallelism(); // fewer under taskset
  const processors = usable < all ? `${usable}-of-${all}` : String(all);
  const machine = `${os.cpus()[0]?.model ?? 'unknown'}, ${processors} threads, Node ${process.version}${gpu}`;
  const torch = torchVersion();
  const rows = Object.fromEntries([...results].map(([by, list]) => [by, [...list.values()]]));
  const date = today();
  keep(device === 'cuda' ? cuda.getDeviceProperties().name : `${processors}-cores`, device, {
    machine,
    date,
    commit: commit(),
    rounds,
    torch,
    rows,
  });
}

await runProgram(main);
