/**
 * A train step before and after each pass, on two ranks that are processes: steps in turns, and the
 * model's predictions from what the step without passes has shown in the same run. On the CPU it is
 * 512 wide and collectives take as long as on a slow network; on GPUs 4,096 wide.
 * usage: spmd-overlap.js [cpu|cuda] [rounds] [--write]
 */
import os from 'node:os';
import { barrier, getRank, launch } from '../lib/distributed.js';
import { cuda, manualSeed } from '../lib/index.js';
import * as spmd from '../lib/spmd/index.js';
import { type SlowConnection, slowCollectives } from '../lib/testing/index.js';
import { commit, keep, median, today } from './figures.js';
import { LAYERS, type LayeredSetting, layeredStep, passesOf } from './layered-step.js';
import { runProgram } from './program.js';

interface Setting extends Omit<LayeredSetting, 'device'> {
  /** Slows collectives; null: they are as fast as they are. */
  readonly connection: SlowConnection | null;
  /** Where ranks wait for them. */
  readonly waits: 'graph' | 'use';
}

const SETTINGS: Readonly<Record<'cpu' | 'cuda', Setting>> = {
  cpu: {
    dim: 512,
    batch: 1024,
    bucketMb: 2,
    target: 'relu_1',
    connection: { latency: 0.01, bandwidth: 50e6 },
    waits: 'graph',
  },
  cuda: {
    dim: 4096,
    batch: 4096,
    bucketMb: 100,
    target: 'relu',
    connection: null,
    waits: 'use',
  },
};

const device = process.argv.includes('cuda') ? 'cuda' : 'cpu';
const setting: LayeredSetting = { ...SETTINGS[device], device };
const { connection, waits } = SETTINGS[device];
const PASSES = passesOf(setting);
const WARM_UP = 3;
const ROUNDS = Number(process.argv.slice(2).find((text) => /^\d+$/.test(text)) ?? 25);
/** Shorter entries are not kept: nobody sees them in a picture. */
const SHORTEST = 1 / 2000;

/** A compiled step after some passes, and what was measured of it. */
interface Variant {
  readonly take: () => void;
  /** Resolves when the step is done. */
  readonly done: () => Promise<unknown>;
  readonly gm: spmd.IterGraphModule;
  readonly ms: number[];
  readonly seen: spmd.Timeline[];
}

function variantOf(passes: number): Variant {
  manualSeed(1);
  const { take, model, gm } = layeredStep(setting, passes);
  const [parameter] = model.parameters();
  return {
    take,
    done: async () => parameter?.detach().narrow(0, 0, 1).read(),
    gm,
    ms: [],
    seen: [],
  };
}

const sum = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0);
const lengthOf = ({ start, end }: spmd.TimelineEntry): number => end - start;

/** The line through points with the least squares: what it is at 0, and its slope. */
function lineThrough(
  points: readonly (readonly [x: number, y: number])[],
): readonly [at0: number, slope: number] {
  const x = sum(points.map((p) => p[0])) / points.length;
  const y = sum(points.map((p) => p[1])) / points.length;
  const slope =
    sum(points.map((p) => (p[0] - x) * (p[1] - y))) / sum(points.map((p) => (p[0] - x) ** 2));
  return [y - slope * x, slope];
}

/** The rates of this machine and of the connection, as the step without passes has shown them. */
function ratesOf(seen: readonly spmd.Timeline[]): spmd.Rates {
  const entries = seen.flatMap((each) => each.entries);
  const kernels = entries.filter(({ lane, bytes }) => lane === 'compute' && bytes > 0);
  const products = kernels.filter(({ flops }) => flops > 0);
  const others = kernels.filter(({ flops, bytes }) => flops === 0 && bytes >= 2 ** 20);
  const [latency, secondsPerByte] = lineThrough(
    entries
      .filter(({ lane }) => lane === 'communication')
      .map((entry) => [entry.bytes, lengthOf(entry)]),
  );
  const rate = (list: readonly spmd.TimelineEntry[], of: 'flops' | 'bytes'): number =>
    +(sum(list.map((entry) => entry[of])) / sum(list.map(lengthOf))).toPrecision(4);
  const ranks = Number.MAX_SAFE_INTEGER;
  return {
    name: 'this run',
    flops: { float32: rate(products, 'flops') },
    memory: rate(others, 'bytes'),
    launch: 0,
    links: [
      {
        ranks,
        latency: +Math.max(0, latency).toPrecision(4),
        bandwidth: +(1 / secondsPerByte).toPrecision(4),
      },
    ],
  };
}

/** A step after a pass, and what the model says. */
interface Row {
  readonly pass: string;
  readonly predictedMs: number;
  readonly ms: number;
  readonly exposedMs: number;
}

/** What rank 0 returns. */
interface Measured {
  readonly rates: spmd.Rates;
  readonly rows: readonly Row[];
  /** Of each variant, a run of the usual length. */
  readonly timelines: readonly (readonly spmd.TimelineEntry[])[];
}

async function measure(): Promise<Measured | null> {
  const restore = connection === null ? () => {} : slowCollectives(connection);
  const variants = PASSES.map((_, i) => variantOf(i));
  for (let i = 0; i < WARM_UP; i++) for (const { take } of variants) take();
  for (let round = 0; round < ROUNDS; round++)
    for (const { take, done, ms, seen } of variants) {
      await barrier();
      const start = performance.now();
      take();
      await done();
      ms.push(performance.now() - start);
      await barrier();
      seen.push(await spmd.recordTimeline(take));
    }
  restore();
  return getRank() === 0 ? measuredOf(variants) : null;
}

function measuredOf(variants: readonly Variant[]): Measured {
  const measured = (variants[0] as Variant).seen;
  const rates = ratesOf(measured);
  return {
    rates,
    rows: variants.map(({ gm, ms, seen }, i) => ({
      pass: (PASSES[i] as (typeof PASSES)[number])[0],
      predictedMs: spmd.timeline(gm.main, { rates, measured, waits }).total * 1e3,
      ms: median(ms),
      exposedMs: median(seen.map(({ exposed }) => exposed * 1e3)),
    })),
    timelines: variants.map(({ seen }) => usual(seen).entries),
  };
}

/** The timeline whose length is the median. */
const usual = (seen: readonly spmd.Timeline[]): spmd.Timeline =>
  [...seen].sort((a, b) => a.total - b.total)[seen.length >> 1] as spmd.Timeline;

/** The entries that can be seen, to a microsecond. */
function shortened(entries: readonly spmd.TimelineEntry[]): object[] {
  const total = Math.max(...entries.map(({ end }) => end));
  const isSeen = (entry: spmd.TimelineEntry): boolean =>
    Math.max(lengthOf(entry), entry.waited) > SHORTEST * total;
  const rounded = (seconds: number): number => +seconds.toFixed(6);
  return entries.filter(isSeen).map(({ name, lane, start, end, waited }) => ({
    name,
    lane,
    start: rounded(start),
    end: rounded(end),
    waited: rounded(waited),
  }));
}

runProgram(async () => {
  // On any machine, ranks compute about as long as they communicate.
  if (device === 'cpu') process.env['SHARDWISE_NUM_THREADS'] ??= '1';
  const [measured] = await launch(2, measure, { mode: 'process', prefixOutput: false });
  const { rates, rows, timelines } = measured as Measured;
  const [first] = rows as readonly [Row];
  const figures = rows.map(({ pass, predictedMs, ms, exposedMs }) => ({
    pass,
    predictedMs: +predictedMs.toPrecision(4),
    ms: +ms.toPrecision(4),
    exposedMs: +exposedMs.toPrecision(4),
    predictedSpeedUp: +(first.predictedMs / predictedMs).toFixed(3),
    speedUp: +(first.ms / ms).toFixed(3),
  }));
  for (const row of figures) console.log(JSON.stringify(row));
  console.log(JSON.stringify(rates));
  if (!process.argv.includes('--write')) return;
  const cores = `${os.availableParallelism()}-cores`;
  const gpu = device === 'cuda' ? cuda.getDeviceProperties().name : null;
  const machine = `${os.cpus()[0]?.model ?? 'unknown'}, ${cores}, Node ${process.version}`;
  keep(gpu === null ? cores : `2x-${gpu}`, 'spmd-overlap', {
    machine: gpu === null ? machine : `2 ${gpu}, ${machine}`,
    date: today(),
    commit: commit(),
    setting: { ranks: 2, layers: LAYERS, ...SETTINGS[device], rounds: ROUNDS },
    rates,
    rows: figures,
    timelines: timelines.map(shortened),
  });
});
