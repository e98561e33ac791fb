/**
 * A training step of a fully sharded model on one of four ranks. The other ranks are simulated: their
 * collectives return at once, all kernels of this rank are real. Time of the host, of the step and
 * most memory: uncompiled, with compiled layers, and compiled as a whole. With `fake` nothing is
 * computed either: the host's time on the CPU, sharded and not. One JSON object a line.
 * `npm run bench:gpus` has ranks on all GPUs of a machine, beside PyTorch's.
 *
 *   npm run bench:fsdp -- [124m | 1.5b | 8b] [batch] [fake]
 */
import { FakeTensorMode } from '../lib/compile/index.js';
import {
  destroyProcessGroup,
  fullyShard,
  initDeviceMesh,
  initProcessGroup,
  MixedPrecisionPolicy,
} from '../lib/distributed.js';
import {
  amp,
  bfloat16,
  compile,
  cuda,
  type DeviceName,
  float32,
  memory,
  nn,
  optim,
  randint,
  scope,
  type Tensor,
} from '../lib/index.js';
import { median } from './figures.js';
import { Gpt, SIZES } from './gpt.js';
import { requireGpu, runProgram } from './program.js';

const RANKS = 4;
type Name = keyof typeof SIZES;

/** What is compiled. */
const COMPILED = ['uncompiled', 'compiled layers', 'compiled as a whole'] as const;
type Compiled = (typeof COMPILED)[number];

interface Trainer {
  readonly step: () => void;
  readonly model: Gpt;
}

/** A step under autocast, or of a sharded model with its own policy. */
function trainer(
  name: Name,
  batch: number,
  device: DeviceName,
  sharded: boolean,
  compiled: Compiled = 'uncompiled',
): Trainer {
  const size = SIZES[name];
  const model = new Gpt(size, sharded ? 'meta' : device);
  if (sharded) {
    const mpPolicy = new MixedPrecisionPolicy({ paramDtype: bfloat16, reduceDtype: float32 });
    const mesh = initDeviceMesh(device === 'cuda' ? 'cuda' : 'cpu', [RANKS]);
    for (const layer of model.layers) fullyShard(layer, { mesh, mpPolicy });
    fullyShard(model, { mesh, mpPolicy });
    model.toEmpty(device);
  }
  const options = { backend: 'inductor', fullgraph: true } as const;
  if (compiled === 'compiled layers') for (const layer of model.layers) layer.compile(options);
  const run = compiled === 'compiled as a whole' ? compile(model, options) : model;
  for (const p of model.parameters()) nn.init.constant_(p, 0.01);
  const optimizer = new optim.AdamW(model.parameters(), { lr: 1e-4, fused: true });
  const draw = (): Tensor => randint(0, size.vocabulary, [batch, size.context], { device });
  const [input, target] = [draw(), draw()];
  const loss = (): Tensor =>
    sharded
      ? run(input, target)
      : amp.autocast({ deviceType: device === 'cuda' ? 'cuda' : 'cpu', dtype: bfloat16 }, () =>
          run(input, target),
        );
  const step = (): void =>
    scope(() => {
      loss().backward();
      optimizer.step();
      optimizer.zeroGrad();
    });
  return { step, model };
}

function print(name: string, figures: Record<string, number>): void {
  const rounded = Object.entries(figures).map(([key, value]) => [key, +value.toPrecision(4)]);
  console.log(JSON.stringify({ name, ...Object.fromEntries(rounded) }));
}

function onGpu(name: Name, batch: number, compiled: Compiled): void {
  const { step } = trainer(name, batch, 'cuda', true, compiled);
  for (let i = 0; i < 3; i++) step();
  cuda.synchronize();
  memory.resetPeak('cuda');
  const walls: number[] = [];
  const hosts: number[] = [];
  for (let i = 0; i < 10; i++) {
    const start = performance.now();
    step();
    hosts.push(performance.now() - start);
    cuda.synchronize();
    walls.push(performance.now() - start);
  }
  const waited = memory.stats('cuda').peakAllocatedBytes;
  memory.resetPeak('cuda');
  for (let i = 0; i < 5; i++) step();
  cuda.synchronize();
  const ahead = memory.stats('cuda').peakAllocatedBytes;
  print(`fully sharded ${name}, batch ${batch}, one of ${RANKS} ranks, ${compiled}`, {
    hostMs: median(hosts),
    wallMs: median(walls),
    peakGiB: waited / 2 ** 30,
    peakAheadGiB: ahead / 2 ** 30,
    reservedGiB: memory.stats('cuda').peakReservedBytes / 2 ** 30,
  });
}

function hostTime(name: Name, batch: number, sharded: boolean): number {
  const { step } = trainer(name, batch, 'cpu', sharded);
  for (let i = 0; i < 3; i++) step();
  const times = Array.from({ length: 10 }, () => {
    const start = performance.now();
    step();
    return performance.now() - start;
  });
  return median(times);
}

function withoutKernels(name: Name, batch: number): void {
  const fake = (sharded: boolean): { host: number; peak: number } => {
    const mode = new FakeTensorMode();
    const host = mode.run(() => hostTime(name, batch, sharded));
    return { host, peak: mode.memory.stats().peak.total };
  };
  const [plain, sharded] = [fake(false), fake(true)];
  print(`host time and memory without kernels, ${name}, batch ${batch}`, {
    unshardedMs: plain.host,
    shardedMs: sharded.host,
    ratio: sharded.host / plain.host,
    unshardedGiB: plain.peak / 2 ** 30,
    shardedGiB: sharded.peak / 2 ** 30,
  });
}

await runProgram(async () => {
  const name = (process.argv[2] ?? '124m') as Name;
  const batch = Number(process.argv[3] ?? 16);
  await initProcessGroup('fake', { rank: 0, worldSize: RANKS });
  if (process.argv[4] === 'fake') withoutKernels(name, batch);
  else {
    requireGpu();
    for (const compiled of COMPILED) {
      onGpu(name, batch, compiled);
      memory.collect();
      cuda.emptyCache();
    }
  }
  destroyProcessGroup();
});
