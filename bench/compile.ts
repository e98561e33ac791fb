/**
 * Host time of compiled graphs below autograd: capture, encoding, and replay beside eager mode and
 * the graph run op by op, in turns. With `--write` also the guards (guards.ts), and the same in
 * PyTorch where it is installed. usage: compile.ts [cpu|cuda] [--write]
 */
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

import { recording } from '../lib/compile/capture/levels.js';
import { Recorder } from '../lib/compile/capture/recorder.js';
import type { Graph } from '../lib/compile/graph/graph.js';
import { GraphModule } from '../lib/compile/graph/graph-module.js';
import { GuardCollector } from '../lib/compile/guards/guard-collector.js';
import { buildPlan } from '../lib/compile/schedule/plan.js';
import { compile, cuda, nn, noGrad, ones, scope, type Tensor } from '../lib/index.js';
import { commit, keep, median, printedBy, printedByPeer, today, torchVersion } from './figures.js';
import { device, print, type Row } from './measure.js';

/** Calls after which the engine has compiled the code. */
const WARM_UP = 4000;
const ROUNDS = 31;
const rows: Row[] = [];

function row(name: string, us: number, burst: number): void {
  const made: Row = { name, unit: 'us', value: us, burst };
  rows.push({ ...made, value: +us.toPrecision(4) });
  print(made);
}

function lower(fn: (x: Tensor) => Tensor, x: Tensor): Graph {
  const recorder = new Recorder(new GuardCollector(), 'lowered');
  try {
    recorder.placeholder(x, 0);
    const y = recording(recorder, () => noGrad(() => fn(x)));
    recorder.graph.outputs = [recorder.valueOf(y)];
    return recorder.graph;
  } finally {
    recorder.restore();
  }
}

/** Median microseconds of each function, in bursts that take turns. */
function times(functions: readonly (() => unknown)[], burst: number, warmUp: number): number[] {
  const all: number[][] = functions.map(() => []);
  const run = (fn: () => unknown, calls: number): number => {
    const start = performance.now();
    for (let i = 0; i < calls; i++) scope(() => void fn());
    const us = ((performance.now() - start) / calls) * 1e3;
    if (device !== 'cpu') cuda.synchronize();
    return us;
  };
  for (const fn of functions) run(fn, warmUp);
  for (let r = 0; r < ROUNDS; r++) functions.forEach((fn, i) => void all[i]?.push(run(fn, burst)));
  return all.map(median);
}

function compare(what: string, fn: (x: Tensor) => Tensor, x: Tensor, burst: number): void {
  const graph = noGrad(() => lower(fn, x));
  const plan = buildPlan(graph);
  const module = new GraphModule(graph);
  const compiled = compile(fn, { fullgraph: true });
  const names = ['eager', 'op by op', 'plan', 'compile'];
  const runs = [() => fn(x), () => module.run([x]), () => plan.run([x]), () => compiled(x)];
  const found = noGrad(() => times(runs, burst, WARM_UP));
  for (const [i, us] of found.entries()) row(`${what}, ${names[i]}`, us, burst);
}

const ADDS = 100;
const adds = (x: Tensor): Tensor => {
  let y = x;
  for (let i = 0; i < ADDS; i++) y = y.add(1);
  return y;
};
const x = ones([8], { device });
const graph = lower(adds, x);
const [captured, encoded] = times([() => lower(adds, x), () => buildPlan(graph)], 10, 300);
row('capture, an op', (captured as number) / ADDS, 10);
row('encoding of a plan, an op', (encoded as number) / ADDS, 10);
compare(`${ADDS} adds of 8 elements`, adds, x, 100);
const layers = Array.from({ length: 24 }, () => new nn.Linear(8, 8).to(device));
const model = new nn.Sequential(...layers);
compare('24 linear layers 8x8', (t) => model(t) as Tensor, ones([4, 8], { device }), 200);
compare('one add of 8 elements', (t) => t.add(1), x, 5000);

function add(more: readonly Row[]): void {
  more.forEach(print);
  rows.push(...more);
}

if (process.argv.includes('--write')) {
  const here = fileURLToPath(import.meta.url);
  const guards = path.join(path.dirname(here), `guards${path.extname(here)}`);
  add(printedBy(process.execPath, [...process.execArgv, guards]));
  add(printedByPeer('peer_compile.py', [device]));
  const processors = `${os.availableParallelism()}-cores`;
  const name = device === 'cpu' ? processors : cuda.getDeviceProperties().name;
  keep(name, 'compile', {
    machine: `${os.cpus()[0]?.model ?? 'unknown'}, ${processors}, Node ${process.version}`,
    date: today(),
    commit: commit(),
    torch: torchVersion() || 'none on this machine',
    rows,
  });
}
