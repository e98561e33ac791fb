/**
 * A call of each public function of one process that has options but no declaration, with values
 * for the options.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import {
  aotAutograd,
  captureStep,
  Graph,
  GraphModule,
  minCutRematerializationPartition,
  reorderForOverlap,
} from '../../lib/compile/index.js';
import { allOps } from '../../lib/core/op.js';
import { declarationOf } from '../../lib/core/signature.js';
import {
  DataLoader,
  DistributedSampler,
  RandomSampler,
  randomSplit,
  tokenWindows,
} from '../../lib/data/index.js';
import * as shardwise from '../../lib/index.js';
import {
  add,
  amp,
  autograd,
  compile,
  compiler,
  div,
  library,
  memory,
  nn,
  ones,
  optim,
  profiler,
  sub,
  type Tensor,
  where,
  zeros,
} from '../../lib/index.js';
import * as spmd from '../../lib/spmd/index.js';
import { assertClose, assertCloseAsync, gpu, type TestRunner } from '../../lib/testing/index.js';
import {
  exposedCommunication,
  lossCurve,
  progress,
  SummaryWriter,
  TrainMetrics,
  transformerFlops,
} from '../../lib/train/index.js';
import type { Calls, Options } from './distributed-option-calls.js';

const x = () => ones([2, 2]);
const leaf = () => ones([2, 2], { requiresGrad: true });
const square = (t: Tensor) => t.mul(t).sum();

/** Values of options whose default is not a useful sample. */
export const values: Record<string, unknown> = {
  deviceType: 'cpu', dtype: 'bfloat16', enabled: true, cacheEnabled: true, initScale: 2, growthFactor: 2, backoffFactor: 0.5, growthInterval: 2, gradOutputs: [ones([])], gradTensors: [ones([])],
  retainGraph: true, createGraph: true, allowUnused: true, eps: 1e-6, atol: 1e-3, rtol: 1e-3, raiseException: false, backend: 'eager', fullgraph: false, signal: new AbortController().signal, dynamic: false, mode: 'default', verify: 2, recursive: true, reason: 'a counter was read',
  device: 'cpu', copy: true, nonBlocking: false, alpha: 2, out: ones([2, 2]), roundingMode: 'floor', pinMemory: false, requiresGrad: false, mutatesArgs: [], managesArgs: [], runsAgain: () => true, when: () => true, communicates: true, keepsNoTensors: true, gain: 2, a: 0.1, nonlinearity: 'relu', persistent: false, name: 'count', tensor: x(), input: 1, other: 2, recurse: true, removeDuplicate: false, prefix: 'a.', keepVars: true, strict: false, assign: true, setToNone: false, prepend: true, alwaysCall: true, release: () => {}, allowOthers: true, parameters: [], fwCompiler: () => {}, bwCompiler: () => {}, partitionFn: () => {}, decompositions: [], distribute: new Map(), gmTransformation: () => {}, parallelMode: {}, memory: () => [], inSteps: () => {}, enableGraphOptimization: true, enableInductor: true, dumpGraphs: false, bucketSizeMb: 1, prerequisites: [], applyAfter: [], maxIters: 2, rates: 'cpu', worldSize: 8, title: 'step', waits: 'use', measured: [], allowanceBytes: 0, donated: [], leastGain: 0, layouts: ['dp'], memoryBytes: 1e9, paramDtype: 'bfloat16', reduceDtype: 'float32', run: (f: (...all: unknown[]) => unknown, all: unknown[]) => f(...all), settings: 1, preservesRng: false, policy: () => 'preferSave', shardParameter: () => null, activities: ['cpu'], recordShapes: true, withModules: true, profileMemory: true, withStack: true, schedule: () => 'record', onTraceReady: () => {}, deviceTimer: 'events', wait: 1, warmup: 1, active: 1, repeat: 1, skipFirst: 1, groupByInputShape: false, groupByModule: false, groupByKernel: true, sortBy: 'count', rowLimit: 3, maxNameColumnWidth: 20, groupOf: () => '', isCausal: false,
  averageAttnWeights: false, needWeights: true, attnMask: zeros([3, 3]), keyPaddingMask: zeros([1, 3]), memoryIsCausal: false, tgtIsCausal: false, srcIsCausal: false, mask: zeros([3, 3]),
  memoryMask: zeros([3, 3]), tgtMask: zeros([3, 3]), srcMask: zeros([3, 3]), memoryKeyPaddingMask: zeros([1, 3]), tgtKeyPaddingMask: zeros([1, 3]), srcKeyPaddingMask: zeros([1, 3]), inputs: [leaf()],
  'new data.DataLoader': { batchSize: 2, shuffle: true, seed: 1, bufferSize: 2, sampler: [0], batchSampler: [[0]], dropLast: true, numReplicas: 1, rank: 0, collateFn: () => 0, numWorkers: 0, prefetchFactor: 1 },
  equalNan: true, checkDtype: false, checkDevice: false, checkStride: true, message: 'other values', count: 1,
  'train.lossCurve': { title: 'loss', baseline: { name: 'bigram', loss: 1 } }, 'train.progress': { ranks: 1, json: true }, 'train.exposedCommunication': { rank: 0 }, 'train.transformerFlops': { parameters: 1, numLayers: 1, dModel: 1, contextLength: 1 },
  'new train.SummaryWriter': { prefix: '' }, 'new train.TrainMetrics': { every: 1, tokens: 1, flopsPerToken: 1, peakFlops: 1, device: 'cpu', rank: 0, writers: [] },
  'new data.RandomSampler': { seed: 1 }, 'data.randomSplit': { seed: 1 }, 'new data.DistributedSampler': { numReplicas: 1, rank: 0, shuffle: false, seed: 1 }, 'data.tokenWindows': { length: 1, stride: 1, dtype: 'uint16' },
}; // biome-ignore format: a table

const double = (options: Options) => ({ ...options }) as never;
const fan = (o: Options) => ('mode' in o ? { mode: 'fan_in' } : o) as Options;

const profiled = () =>
  profiler.profile({ activities: ['cpu'], recordShapes: true, withModules: true }, () =>
    x().add(1),
  );

/** Calls a function with a folder that is then removed. */
function inFolder(fn: (folder: string) => void): void {
  const folder = mkdtempSync(path.join(tmpdir(), 'shardwise-options-'));
  try {
    fn(folder);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

const perceptron = (): nn.Module => new nn.Sequential(new nn.Linear(2, 2)) as never;
const sequence = () => ones([3, 1, 2]);
const attention = () => new nn.MultiheadAttention(2, 1);
const encoderLayer = () => new nn.TransformerEncoderLayer(2, 1, { dimFeedforward: 4 });
const decoderLayer = () => new nn.TransformerDecoderLayer(2, 1, { dimFeedforward: 4 });
const transformer = () =>
  new nn.Transformer({
    dModel: 2,
    nhead: 1,
    numEncoderLayers: 1,
    numDecoderLayers: 1,
    dimFeedforward: 4,
  });
const encode = (module: (x: Tensor, o: Options) => unknown) => (o: Options) =>
  module(sequence(), o);
const decode = (module: (x: Tensor, y: Tensor, o: Options) => unknown) => (o: Options) =>
  module(sequence(), sequence(), o);
const attend = (module: nn.MultiheadAttention) => (o: Options) =>
  module(sequence(), sequence(), sequence(), o);

/** The joint graph of a function that returns its argument. */
function identity() {
  const graph = new Graph();
  const x = graph.add({ kind: 'placeholder', name: 'x' });
  const tangent = graph.add({ kind: 'placeholder', name: 'tangent' });
  graph.outputs = [x, tangent].map((node) => ({ node, output: 0 }));
  return { graph, primals: [x], tangents: [tangent], forwardOutputs: 1 };
}

/** Functions of the op table whose only option is `out`. */
type Pointwise = (...args: unknown[]) => unknown;
const functions = shardwise as unknown as Record<string, Pointwise>;
const onlyOut: Calls = Object.fromEntries(
  allOps()
    .filter(({ name, traits }) => traits.includes('out') && !/^(add|sub|div|where)$/.test(name))
    .filter(({ name }) => declarationOf(functions[name] as Pointwise) === undefined)
    .map(({ name, pointwise }) => {
      const operand = pointwise?.classes === 'I' ? x().int() : x();
      const operands = pointwise?.arity === 1 ? [operand] : [operand, operand];
      return [name, (o: Options) => functions[name]?.(...operands, o)];
    }),
);

const declare = Object.assign(() => {}, { skip: () => {} });
const noRunner: TestRunner = { describe: declare, it: declare };

/** Calls of functions without a declaration, by their names in the types. */
export const calls: Calls = {
  'Module.registerBuffer': (o) => perceptron().registerBuffer({ name: 'count', tensor: x(), ...o }),
  'Module.namedParameters': (o) => [...perceptron().namedParameters('', o)],
  'Module.parameters': (o) => [...perceptron().parameters(o)],
  'Module.namedBuffers': (o) => [...perceptron().namedBuffers('', o)],
  'Module.buffers': (o) => [...perceptron().buffers(o)],
  'Module.stateDict': (o) => perceptron().stateDict(o),
  'Module.loadStateDict': (o) => perceptron().loadStateDict(perceptron().stateDict(), o),
  'Module.zeroGrad': (o) => perceptron().zeroGrad(o),
  'Module.registerForwardPreHook': (o) => perceptron().registerForwardPreHook(() => undefined, o),
  'Module.registerForwardHook': (o) => perceptron().registerForwardHook(() => undefined, o),
  'Module.registerFullBackwardPreHook': (o) =>
    perceptron().registerFullBackwardPreHook(() => undefined, o),
  'Module.registerFullBackwardHook': (o) =>
    perceptron().registerFullBackwardHook(() => undefined, o),
  'Module.compile': (o) => perceptron().compile(o),
  'Optimizer.zeroGrad': (o) => new optim.SGD([leaf()], { lr: 1 }).zeroGrad(o),
  'MultiheadAttention.forward': attend(attention()),
  'TransformerEncoderLayer.self_attn': attend(encoderLayer().self_attn),
  'TransformerDecoderLayer.self_attn': attend(decoderLayer().self_attn),
  'TransformerDecoderLayer.multihead_attn': attend(decoderLayer().multihead_attn),
  'TransformerEncoderLayer.forward': encode(encoderLayer()),
  'TransformerDecoderLayer.forward': decode(decoderLayer()),
  'TransformerEncoder.forward': encode(new nn.TransformerEncoder(encoderLayer(), 1)),
  'TransformerDecoder.forward': decode(new nn.TransformerDecoder(decoderLayer(), 1)),
  'Transformer.encoder': encode(transformer().encoder),
  'Transformer.decoder': decode(transformer().decoder),
  'Transformer.forward': decode(transformer()),
  'nn.Transformer.generateSquareSubsequentMask': (o) =>
    nn.Transformer.generateSquareSubsequentMask(2, o),
  'amp.autocast': (o) => amp.autocast({ deviceType: 'cpu', ...o } as never, () => 1),
  'new amp.GradScaler': (o) => new amp.GradScaler(o),
  'autograd.backward': (o) => autograd.backward([square(leaf())], double(o)),
  'autograd.grad': (o) => {
    const input = leaf();
    return autograd.grad([square(input)], [input], double(o));
  },
  'autograd.savedTensorsHooks': (o) =>
    autograd.savedTensorsHooks(
      (t) => t,
      (t) => t,
      () => square(leaf()).backward(),
      o,
    ),
  'autograd.recomputed': (o) =>
    autograd.recomputed((t) => t.exp(), [leaf()], {
      run: (f, all) => f(...all),
      settings: 0,
      ...o,
    }),
  'autograd.opaqueHook': (o) => autograd.opaqueHook(() => {}, [], o),
  'memory.owned': (o) => memory.owned(() => ones([1]), o).dispose(),
  'profiler.profile': (o) => profiler.profile(o, () => x().add(1)),
  'profiler.schedule': (o) => profiler.schedule({ wait: 0, warmup: 0, active: 1, ...o }),
  'Profile.keyAverages': (o) => profiled().keyAverages(o),
  'KeyAverages.table': (o) => profiled().keyAverages().table(o),
  'autograd.gradcheck': (o) =>
    autograd.gradcheck(square, [leaf().double().detach().requiresGrad_()], o),
  'autograd.gradgradcheck': (o) =>
    autograd.gradgradcheck(square, [leaf().double().detach().requiresGrad_()], o),
  where: (o) => where(x().gt(0), { input: 1, other: 2, ...o }),
  'compile.compile': (o) => compile((t: Tensor) => t.add(1), o)(x()),
  'compile.aotAutograd': (o) => aotAutograd(o),
  'compile.minCutRematerializationPartition': (o) =>
    minCutRematerializationPartition(identity(), o),
  'compile.reorderForOverlap': (o) => reorderForOverlap(new Graph(), o),
  'compile.captureStep': (o) => captureStep((t: Tensor) => t.add(1), [x()], o),
  'spmd.compile': (o) => spmd.compile(o),
  'spmd.GraphModuleTransformation': (o) => spmd.GraphModuleTransformation(o),
  'spmd.graphOptimizationPass': (o) => spmd.graphOptimizationPass(o),
  'new data.DataLoader': (o) => new DataLoader([1, 2], o),
  'new data.RandomSampler': (o) => new RandomSampler([1, 2], o),
  'new data.DistributedSampler': (o) =>
    new DistributedSampler([1, 2], { numReplicas: 2, rank: 0, ...o }),
  'data.randomSplit': (o) => randomSplit([1, 2], [1, 1], o),
  'data.tokenWindows': (o) => tokenWindows([1, 2, 3], { length: 2, ...o }),
  'testing.assertClose': (o) => assertClose(x(), x(), { rtol: 0, atol: 0, ...o }),
  'testing.assertCloseAsync': (o) => assertCloseAsync(x(), x(), { rtol: 0, atol: 0, ...o }),
  'testing.gpu.describe': (o) => gpu.using(noRunner).describe('on a GPU', () => {}, o),
  'testing.gpu.it': (o) => gpu.using(noRunner).it('on a GPU', () => {}, o),
  'train.lossCurve': (o) => lossCurve([1, 2], o),
  'train.progress': (o) => progress(o),
  'train.exposedCommunication': (o) => exposedCommunication(profiled(), o),
  'train.transformerFlops': (o) =>
    transformerFlops({ parameters: 1, numLayers: 1, dModel: 1, contextLength: 1, ...o }),
  'new train.SummaryWriter': (o) => inFolder((folder) => new SummaryWriter(folder, o).close()),
  'new train.TrainMetrics': (o) => new TrainMetrics(o),
  'spmd.plan': (o) =>
    spmd.plan(
      () => ({ trainStep: (t: Tensor) => t.add(1), args: [ones([4])] }),
      { shape: [2], meshDimNames: ['dp'] },
      o,
    ),
  'spmd.recordTimeline': (o) => spmd.recordTimeline(() => compile((t: Tensor) => t.add(1))(x()), o),
  'spmd.timeline': (o) => spmd.timeline(new Graph(), o),
  'new spmd.IterGraphModule': (o) => new spmd.IterGraphModule(new GraphModule(new Graph()), o),
  'compile.disable': (o) => compiler.disable((t: Tensor) => t.add(1), o),
  compile: (o) => compile((t: Tensor) => t.add(1), o)(x()),
  'compiler.disable': (o) => compiler.disable((t: Tensor) => t.add(1), o),
  'Tensor.to': (o) => x().to(o),
  'Tensor.copy_': (o) => x().copy_(x(), o),
  'Tensor.newTensor': (o) => x().newTensor([1], o),
  'library.customOp': (o) =>
    library.customOp(
      `options::${Object.keys(o)[0]}`,
      o as never,
      ((t: Tensor) => t.clone()) as never,
    ),
  'nn.init.xavierUniform_': (o) => nn.init.xavierUniform_(x(), o),
  'nn.init.xavierNormal_': (o) => nn.init.xavierNormal_(x(), o),
  'nn.init.orthogonal_': (o) => nn.init.orthogonal_(x(), o),
  'nn.init.kaimingUniform_': (o) => nn.init.kaimingUniform_(x(), fan(o)),
  'nn.init.kaimingNormal_': (o) => nn.init.kaimingNormal_(x(), fan(o)),
  ...onlyOut,
  'nn.functional.sigmoid': (o) => nn.functional.sigmoid(x(), o),
  'nn.functional.tanh': (o) => nn.functional.tanh(x(), o),
  add: (o) => add(x(), x(), o),
  sub: (o) => sub(x(), x(), o),
  div: (o) => div(x(), x(), o),
  ...Object.fromEntries(
    ['add', 'add_', 'sub', 'sub_', 'subtract', 'subtract_'].map((name) => [
      `Tensor.${name}`,
      (o: Options) => x()[name as 'add'](x(), o),
    ]),
  ),
  ...Object.fromEntries(
    ['div', 'div_', 'divide', 'divide_', 'trueDivide', 'trueDivide_'].map((name) => [
      `Tensor.${name}`,
      (o: Options) => x()[name as 'div'](x(), o),
    ]),
  ),
};
