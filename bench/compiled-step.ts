/**
 * A training step compiled beside the same step uncompiled, in turns: time, host time and most
 * memory for each backend. On the CPU the GPT of `npm start`, on a GPU that of GPT-2's sizes under
 * bfloat16 autocast. usage: compiled-step.js [cpu|cuda] [batch] [--write]
 */
import os from 'node:os';
import { Gpt as SmallGpt } from '../examples/gpt/model.js';
import {
  amp,
  bfloat16,
  type CompileOptions,
  compile,
  cuda,
  manualSeed,
  memory,
  optim,
  randint,
  scope,
  type Tensor,
} from '../lib/index.js';
import { commit, keep, median, printedByPeer, today, torchVersion } from './figures.js';
import { Gpt, SIZES } from './gpt.js';
import { device } from './measure.js';
import { runProgram } from './program.js';

const BACKENDS = [null, 'eager', 'aot_eager', 'aot_eager_decomp_partition', 'inductor'] as const;
const ROUNDS = 15;
const onGpu = device !== 'cpu';
const batch = Number(process.argv[3] ?? 16);

/** A loss of two operands, and the parameters behind it. */
interface Training {
  readonly loss: (input: Tensor, target: Tensor) => Tensor;
  readonly parameters: Iterable<Tensor>;
  readonly draw: () => Tensor;
}

function training(backend: (typeof BACKENDS)[number]): Training {
  manualSeed(1);
  const options: CompileOptions | null = backend === null ? null : { backend, fullgraph: true };
  if (onGpu) {
    const size = SIZES['124m'];
    const model = new Gpt(size, 'cuda');
    const called = options === null ? model : compile(model, options);
    return {
      loss: (input, target) =>
        amp.autocast({ deviceType: 'cuda', dtype: bfloat16 }, () => called(input, target)),
      parameters: model.parameters(),
      draw: () => randint(0, size.vocabulary, [batch, size.context], { device: 'cuda' }),
    };
  }
  const model = new SmallGpt({
    vocabSize: 96,
    contextLength: 64,
    numLayers: 4,
    numHeads: 4,
    dModel: 128,
  });
  const called = options === null ? model : compile(model, options);
  return {
    loss: (input, target) => called(input).flatten(0, 1).crossEntropy(target.flatten()),
    parameters: model.parameters(),
    draw: () => randint(0, 96, [batch, 64]),
  };
}

function stepOf(backend: (typeof BACKENDS)[number]): () => Tensor {
  const { loss, parameters, draw } = training(backend);
  const optimizer = new optim.AdamW(parameters, { lr: 1e-3, fused: true });
  const [input, target] = [draw(), draw()];
  return () =>
    scope(() => {
      const value = loss(input, target);
      value.backward();
      optimizer.step();
      optimizer.zeroGrad();
      return value;
    });
}

/** Milliseconds of a step with its work done, and of its host part. */
function timed(step: () => Tensor): { ms: number; hostMs: number } {
  const start = performance.now();
  const loss = step();
  const hostMs = performance.now() - start;
  loss.item();
  const ms = performance.now() - start;
  loss.dispose();
  return { ms, hostMs };
}

runProgram(() => {
  const found = BACKENDS.map((backend) => ({ backend, ms: [] as number[], host: [] as number[] }));
  const steps = BACKENDS.map(stepOf);
  for (const step of steps) for (let i = 0; i < 6; i++) timed(step);
  for (let round = 0; round < ROUNDS; round++)
    steps.forEach((step, i) => {
      const { ms, hostMs } = timed(step);
      found[i]?.ms.push(ms);
      found[i]?.host.push(hostMs);
    });
  const rows = steps.map((step, i) => {
    const before = memory.stats(device).allocatedBytes;
    memory.resetPeak(device);
    timed(step);
    const peakMiB = (memory.stats(device).peakAllocatedBytes - before) / 2 ** 20;
    const { ms, host } = found[i] as (typeof found)[number];
    const row = {
      backend: BACKENDS[i] ?? 'uncompiled',
      stepMs: +median(ms).toFixed(3),
      hostMs: +median(host).toFixed(3),
      peakMiBAboveState: +peakMiB.toFixed(1),
    };
    console.log(JSON.stringify(row));
    return row;
  });
  // On a GPU the peer of this model is bench/train-step.ts's.
  const peers = onGpu
    ? []
    : printedByPeer<object>('peer_compile.py', [device, 'step', String(batch)]);
  for (const peer of peers) console.log(JSON.stringify(peer));
  if (!process.argv.includes('--write')) return;
  const cores = `${os.availableParallelism()}-cores`;
  const machine = onGpu ? cuda.getDeviceProperties().name : cores;
  keep(machine, 'compiled-step', {
    machine: `${os.cpus()[0]?.model ?? 'unknown'}, ${cores}, Node ${process.version}`,
    date: today(),
    commit: commit(),
    torch: torchVersion() || 'none on this machine',
    batch,
    rows: [...rows, ...peers],
  });
});
