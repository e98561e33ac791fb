/**
 * Draws the picture of docs/profiler.md from a trace that was recorded: bench/results/…-profile.json.
 * With --check, fails if it differs; with --record, records a new trace first.
 */
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import { fileURLToPath } from 'node:url';
import { nn, optim, profiler, randn } from '../lib/index.js';
import { type Axis, axisOf, drawBox, drawEnds, drawPage, milliseconds } from './slice-picture.js';
import { writeOrCheck } from './written-parts.js';

const FILE = fileURLToPath(new URL('../bench/results/2026-11-26-profile.json', import.meta.url));

/** What is kept of a slice; times are in microseconds. */
interface Slice {
  readonly name: string;
  readonly cat: string;
  readonly start: number;
  readonly end: number;
}

interface Kept {
  readonly machine: string;
  readonly commit: string;
  readonly host: readonly Slice[];
  readonly kernels: readonly Slice[];
  /** The numbers of slices: from a host slice to a kernel. */
  readonly flows: readonly (readonly [number, number])[];
  /** Time and allocated bytes. */
  readonly memory: readonly (readonly [number, number])[];
}

const tenth = (us: number): number => Math.round(us * 10) / 10;

/** Profiles a step of a small model. */
function record(): Kept {
  const model = new nn.Sequential(new nn.Linear(256, 512), new nn.GELU(), new nn.Linear(512, 256));
  const optimizer = new optim.AdamW(model.parameters(), { lr: 1e-3 });
  const x = randn([64, 256]);
  const step = (): number => {
    optimizer.zeroGrad();
    const loss = profiler.recordFunction('forward', () => model(x).square().mean());
    loss.backward();
    optimizer.step();
    return loss.item();
  };
  for (let i = 0; i < 200; i++) step();
  const options = { activities: ['cpu'], withModules: true, profileMemory: true } as const;
  const take = () =>
    profiler.profile(options, () => profiler.recordFunction('training step', step));
  const timeOf = (prof: profiler.Profile): number => prof.events()[0]?.cpuTimeTotal ?? 0;
  // Of many profiles the one with the least of other programs in it.
  const prof = Array.from({ length: 300 }, take).sort(
    (a, b) => timeOf(a) - timeOf(b),
  )[0] as profiler.Profile;
  const events = prof.events();
  const slice = ({ name, kind, start, end }: profiler.ProfilerEvent | profiler.KernelEvent) => ({
    name,
    cat: kind,
    start: tenth(start),
    end: tenth(end),
  });
  const places = new Map(events.map((event, i) => [event.id, i]));
  const flows = prof
    .kernels()
    .flatMap(({ op }, i) => (op === null ? [] : [[places.get(op.id) as number, i] as const]));
  return {
    machine: `${os.cpus()[0]?.model}, ${os.cpus().length} cores`,
    commit: execFileSync('git', ['rev-parse', '--short', 'HEAD'], { encoding: 'utf8' }).trim(),
    host: events.map(slice),
    kernels: prof.kernels().map(slice),
    flows,
    memory: prof.memory().map(({ time, allocated }) => [tenth(time), allocated] as const),
  };
}

const [TOP, ROW, GAP, CURVE] = [34, 18, 14, 48];
const fills: Readonly<Record<string, string>> = {
  op: '#cfe8fc',
  kernel: '#d5efd0',
  module: '#e6dcf5',
  node: '#fde6b3',
  backward: '#fde6b3',
  optimizer: '#f9d2d2',
  user: '#e4e4e4',
};

/** How many slices lie around each slice. */
function depthsOf(slices: readonly Slice[]): number[] {
  const open: Slice[] = [];
  return slices.map((slice) => {
    while (open.length > 0 && (open.at(-1) as Slice).end <= slice.start) open.pop();
    return open.push(slice) - 1;
  });
}

const drawSlice = ({ name, cat, start, end }: Slice, x: Axis, y: number): string => {
  const style = `fill="${fills[cat] ?? '#fff'}" stroke="#666" stroke-width="0.4"`;
  return drawBox(x, { start, end, y, height: ROW - 1, label: name, title: name, style });
};

/** The curve of allocated memory below `top`, with its range beside it. */
function drawMemory(memory: Kept['memory'], x: Axis, total: number, top: number): string[] {
  const most = Math.max(...memory.map(([, bytes]) => bytes));
  const least = Math.min(...memory.map(([, bytes]) => bytes));
  const y = (bytes: number): string =>
    (top + CURVE - ((bytes - least) / (most - least)) * CURVE).toFixed(1);
  const curve = memory.map(
    ([us, bytes], i) =>
      `${i === 0 ? 'M' : 'H'}${x(us).toFixed(1)}${i === 0 ? ' ' : 'V'}${y(bytes)}`,
  );
  const mib = (bytes: number): string => `${(bytes / 2 ** 20).toFixed(1)} MiB`;
  return [
    `<text x="8" y="${top + 12}">memory cpu</text>`,
    `<text x="8" y="${top + 24}">${mib(least)} to</text>`,
    `<text x="8" y="${top + 36}">${mib(most)}</text>`,
    `<path d="${curve.join('')}H${x(total).toFixed(1)}" fill="none" stroke="#444"/>`,
  ];
}

function draw({ machine, commit, host, kernels, flows, memory }: Kept): string {
  const total = Math.max(...[...host, ...kernels].map(({ end }) => end));
  const x = axisOf(0, total);
  const depths = depthsOf(host);
  const streamTop = TOP + (Math.max(...depths) + 1) * ROW + 2 * GAP;
  const curveTop = streamTop + ROW + GAP;
  const hostY = (at: number): number => TOP + (depths[at] as number) * ROW;
  const arrow = ([from, to]: readonly [number, number]): string => {
    const [op, kernel] = [host[from] as Slice, kernels[to] as Slice];
    const [x1, x2] = [x(op.start).toFixed(1), x(kernel.start).toFixed(1)];
    return `<line x1="${x1}" y1="${hostY(from) + ROW - 1}" x2="${x2}" y2="${streamTop}"/>`;
  };
  const bottom = curveTop + CURVE;
  const head = `A training step on the CPU: ${milliseconds(total)} (${machine}, at ${commit})`;
  return drawPage(head, bottom + 26, [
    `<text x="8" y="${TOP + 12}">JavaScript</text>`,
    `<text x="8" y="${streamTop + 12}">cpu stream 0</text>`,
    `<g stroke="#999" stroke-width="0.4">`,
    ...flows.map(arrow),
    '</g>',
    ...host.map((slice, i) => drawSlice(slice, x, hostY(i))),
    ...kernels.map((slice) => drawSlice(slice, x, streamTop)),
    ...drawMemory(memory, x, total, curveTop),
    drawEnds(0, total, bottom + 18),
  ]);
}

if (process.argv.includes('--record')) writeFileSync(FILE, `${JSON.stringify(record())}\n`);
const kept = JSON.parse(readFileSync(FILE, 'utf8')) as Kept;
process.exitCode = writeOrCheck('docs/images/profile.svg', () => draw(kept));
