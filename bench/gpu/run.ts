/**
 * Measures kernels of one GPU against PyTorch, in pairs: ours, PyTorch, ours, PyTorch. Each figure
 * is the median; PyTorch's is that of its best mode, with short kernels replayed from a CUDA graph.
 *
 * Host rows are also compared with a loop of raw launches: cmake --build build/cmake
 * --target launch_loop.
 *
 *   npm run bench:gpu -- [groups or parts of names …] [--pairs N] [--no-compile] [--write | --again bench/results/….json]
 */
import { readFileSync, rmSync } from 'node:fs';
import os from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { Command } from 'commander';
import { commit, keep, median, python, store, today } from '../figures.js';
import { requireGpu, runProgram } from '../program.js';
import {
  type MeasuringProcess,
  Meter,
  ourWorker,
  type PeerMode,
  rawLaunch,
  torchPeer,
} from './peers.js';
import { checkAlike, withRerun } from './rerun.js';
import { chosenRows, copyRow, groups, type Row } from './rows.js';
import { type Measured, printed, type Report } from './table.js';

const BATCH_US = 30_000;
const HOST_CALLS = 20_000;
/** Calls in one replay of the peer's graph; both processes run multiples of it. */
const GRAPH_CALLS = 12;
const MODES: readonly PeerMode[] = ['eager', 'compile', 'max-autotune'];

interface Options {
  pairs: number;
  compile: boolean;
  write: boolean;
  again?: string;
}

const wholeReplays = (calls: number): number =>
  GRAPH_CALLS * Math.max(1, Math.round(calls / GRAPH_CALLS));

async function callsOf(side: MeasuringProcess, row: Row): Promise<number> {
  if (row.job.host) return HOST_CALLS;
  const { us = 1 } = await side.ask({ time: 10, warm: 3 });
  return wholeReplays(Math.min(2000, BATCH_US / us));
}

/** Measures both processes in turn, and returns the times of each in the order of the pairs. */
async function pairs(
  row: Row,
  ours: MeasuringProcess,
  torch: MeasuringProcess | null,
  count: number,
): Promise<{ ours: number[]; torch: number[]; failed?: string }> {
  const times = { ours: [] as number[], torch: [] as number[] };
  const calls = await callsOf(ours, row);
  for (let i = 0; i < count; i++) {
    for (const side of torch === null ? [ours] : i % 2 === 0 ? [ours, torch] : [torch, ours]) {
      const { us, failed } = await side.ask({ time: calls, warm: wholeReplays(calls / 4) });
      if (us === undefined) return { ...times, failed: `${side.name}: ${failed}` };
      times[side.name as 'ours' | 'torch'].push(us);
    }
  }
  return times;
}

async function measure(
  row: Row,
  ours: MeasuringProcess,
  torch: MeasuringProcess | null,
  meter: Meter,
  { pairs: count, compile }: Options,
): Promise<Measured> {
  const { error, failed } = await ours.ask({ prepare: row.job });
  if (failed !== undefined) return { row, failed: `ours: ${failed}` };
  if (error !== undefined && !(error <= 1))
    return {
      row,
      failed: `ours is wrong: a sample is ${error} times as far from float64 as its dtype allows`,
    };
  await sleep(20); // its other output arrives by another pipe than the reply
  const by = ours
    .takeOutput()
    .flatMap((line) => /^shardwise: matmul .* by ([^:,\s]+)/.exec(line)?.[1] ?? []);
  const modes: readonly PeerMode[] = compile && row.job.host !== true ? MODES : ['eager'];
  const seen: Measured[] = [];
  for (const mode of torch === null ? ['eager' as const] : modes) {
    const prepared = await torch?.ask({ prepare: row.job, mode, graph: GRAPH_CALLS });
    if (prepared?.none) continue;
    if (prepared?.failed !== undefined)
      console.error(`torch, ${mode}: ${row.name}: ${prepared.failed}`);
    meter.take();
    const times = await pairs(row, ours, prepared?.failed === undefined ? torch : null, count);
    if (times.failed !== undefined) return { row, failed: times.failed };
    const ratios = times.torch.map((us, i) => (times.ours[i] as number) / us);
    const peer =
      ratios.length === 0
        ? {}
        : {
            torch: median(times.torch),
            mode,
            ratio: median(ratios),
            spread: [Math.min(...ratios), Math.max(...ratios)] as const,
          };
    seen.push({
      row,
      ours: median(times.ours),
      ...(error === undefined ? {} : { error }),
      ...(by.length > 0 ? { by: by.at(-1) } : {}),
      ...peer,
      ...(meter.take() ?? {}),
    });
    await torch?.ask({ drop: true });
  }
  await ours.ask({ drop: true });
  return seen.reduce((best, each) =>
    (each.torch ?? Infinity) < (best.torch ?? Infinity) ? each : best,
  );
}

async function main(): Promise<void> {
  const command = new Command('bench:gpu')
    .argument('[rows...]', `groups (${groups.join(', ')}) or parts of names; all rows if left out`)
    .option('--pairs <n>', 'how often each side is measured', Number, 5)
    .option('--no-compile', 'leave torch.compile out, which takes seconds a row')
    .option('--write', 'keep the figures in bench/results', false)
    .option('--again <report>', 'keep them in place of those of an earlier report')
    .parse();
  const options = command.opts<Options>();
  const start = performance.now();
  const chosen = [copyRow, ...chosenRows(command.args)];
  requireGpu();
  const earlier =
    options.again === undefined
      ? null
      : (JSON.parse(readFileSync(options.again, 'utf8')) as Report);
  const ours = ourWorker();
  const peer = python();
  const torch = peer === null ? null : torchPeer(peer);
  const meter = new Meter();
  const { torch: version = 'none', gpu = 'unknown GPU' } =
    (await torch?.ask({ version: true })) ?? {};
  const machine = `${os.cpus()[0]?.model.trim()}, ${os.cpus().length} threads, Node ${process.version}`;
  const modes = options.compile ? MODES : ['eager'];
  let report: Report = {
    date: today(),
    machine,
    gpu,
    torch: version,
    commit: commit(),
    pairs: options.pairs,
    modes,
    rows: [],
  };
  if (earlier !== null) checkAlike(earlier, report); // before the minutes that measuring takes
  let unfinished: string | null = null;
  for (const row of chosen) {
    const raw = row.job.host && report.rawLaunch === undefined ? rawLaunch() : null;
    const seen = await measure(row, ours, torch, meter, options);
    const seconds = Math.round((performance.now() - start) / 1000);
    report = {
      ...report,
      ...(raw === null ? {} : { rawLaunch: raw }),
      seconds,
      rows: [...report.rows, seen],
    };
    console.error(
      `${row.name}: ` +
        `${seen.failed ?? `${seen.ours?.toFixed(1)} us, torch ${seen.torch?.toFixed(1)}`}`,
    );
    if (options.write || earlier !== null)
      // it takes minutes, and may be cut off
      unfinished = store(gpu, 'unfinished-kernels-run', report);
  }
  for (const each of [ours, torch, meter]) each?.end();
  console.log(printed(report));
  if (earlier !== null) keep(gpu, 'kernels', withRerun(earlier, report));
  else if (options.write) keep(gpu, ['kernels', ...command.args].join('-'), report);
  if (unfinished !== null) rmSync(unfinished);
}

await runProgram(main);
