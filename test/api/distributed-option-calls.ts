/**
 * A call of each public function of several ranks that has options, with values for the options.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import * as dist from '../../lib/distributed.js';
import {
  float32,
  Generator,
  loadCheckpoint,
  loadSafetensors,
  nn,
  ones,
  SafetensorsFile,
  saveCheckpoint,
  saveSafetensors,
  type Tensor,
  zeros,
} from '../../lib/index.js';
import { assertClose, assertCloseAsync, withRanks } from '../../lib/testing/index.js';

/** Options by name. */
export type Options = Record<string, never>;
export type Calls = Record<string, (options: Options) => unknown>;
/** Values by option; a prefix names the function of a special value. */
export type Values = Record<string, unknown>;

const { Replicate, Shard } = dist;
const x = () => ones([2, 2]);

/** The calls of two ranks, with the number of this one. */
export function callsOfRanks(rank: number): { calls: Calls; values: Values } {
  const other = 1 - rank;
  const mesh = dist.initDeviceMesh('cpu', [2]);
  const sharded = (): Tensor => dist.DTensor.fromLocal(x(), mesh, [Shard(0)]);
  const linear = (): nn.Linear => new nn.Linear(2, 2);
  const spec = (o: object) =>
    dist.DTensorSpec(mesh, [Shard(0)], {
      tensorMeta: dist.TensorMeta([4, 2], [2, 1], float32),
      ...o,
    });
  const both = (o: Options): Options =>
    'shape' in o || 'stride' in o ? ({ shape: [4, 2], stride: [2, 1] } as unknown as Options) : o;
  /** Rank 0 sends, rank 1 receives and may wait. */
  const message =
    (
      send: (t: Tensor, to: number, o: Options) => unknown,
      recv: (t: Tensor, from: number, o: Options) => unknown,
    ) =>
    (o: Options) => {
      const { timeoutMs: _, ...own } = o as { timeoutMs?: number };
      return rank === 0 ? send(x(), 1, own as Options) : recv(x(), 0, o);
    };
  const layouts = (o: Options, ...names: string[]): Options =>
    ({ ...Object.fromEntries(names.map((name) => [name, Shard(0)])), ...o }) as never;
  const withInputs = (o: Options): Options => {
    if ('inputLayouts' in o || 'desiredInputLayouts' in o)
      return layouts(o, 'inputLayouts', 'desiredInputLayouts');
    return 'desiredInputKwargLayouts' in o
      ? ({ inputKwargLayouts: { mask: Shard(0) }, ...o } as never)
      : o;
  };
  const outputs = ['outputLayouts', 'desiredOutputLayouts'];
  const checkpoint = path.join(tmpdir(), `shardwise-options-checkpoint-${process.pid}`);
  if (rank === 0) process.once('exit', () => rmSync(checkpoint, { recursive: true, force: true }));
  const apply = (style: dist.ParallelStyle, module: nn.AnyModule) => (o: Options) =>
    style._apply(module, mesh, o);
  const wrapped = () => new dist.FullyShardedDataParallel(linear());
  const calls: Calls = {
    'Tensor.redistribute': (o) => sharded().redistribute(mesh, [Shard(0)], o),
    'Tensor.toLocal': (o) => sharded().toLocal(o),
    'Tensor.fullTensor': (o) => sharded().fullTensor(o),
    'new distributed.DTensor': (o) => new dist.DTensor(x(), spec({}), o),
    'distributed.DTensor.fromLocal': (o) => dist.DTensor.fromLocal(x(), mesh, [Shard(0)], both(o)),
    'distributed.DTensor.fromLocalUneven': (o) =>
      dist.DTensor.fromLocalUneven(ones([rank + 1, 2]), mesh, [Shard(0)], {
        rebalance: true,
        ...o,
      }),
    'distributed.distributeTensor': (o) => dist.distributeTensor(x(), mesh, [Shard(0)], o),
    'distributed.localMap': (o) =>
      dist.localMap((t: Tensor) => t.neg(), [Shard(0)], [[Shard(0)]], o)(sharded()),
    'distributed.dtensorArange': (o) => dist.dtensorArange(0, 4, 1, { mesh, ...o }),
    'distributed.dtensorLinspace': (o) => dist.dtensorLinspace(0, 1, 4, { mesh, ...o }),
    'distributed.dtensorFull': (o) => dist.dtensorFull([2, 2], 3, { mesh, ...o }),
    'distributed.dtensorRandint': (o) => dist.dtensorRandint(0, 9, [2, 2], { mesh, ...o }),
    'distributed.dtensorEmpty': (o) => dist.dtensorEmpty([2, 2], { mesh, ...o }),
    'distributed.dtensorOnes': (o) => dist.dtensorOnes([2, 2], { mesh, ...o }),
    'distributed.dtensorZeros': (o) => dist.dtensorZeros([2, 2], { mesh, ...o }),
    'distributed.dtensorRand': (o) => dist.dtensorRand([2, 2], { mesh, ...o }),
    'distributed.dtensorRandn': (o) => dist.dtensorRandn([2, 2], { mesh, ...o }),
    'distributed.functional.allGatherTensor': (o) =>
      dist.functional.allGatherTensor(x(), 0, mesh, o),
    'distributed.DTensorSpec': spec,
    'distributed.visualizeSharding': (o) => dist.visualizeSharding(sharded(), o),
    'distributed.P2POp': (o) => dist.P2POp(rank === 0 ? dist.isend : dist.irecv, x(), other, o),
    'MessageOp.op': message(dist.isend, dist.irecv),
    'distributed.allGather': (o) => dist.allGather([x(), x()], x(), o),
    'distributed.allGatherIntoTensor': (o) => dist.allGatherIntoTensor(zeros([4, 2]), x(), o),
    'distributed.allGatherIntoTensorCoalesced': (o) =>
      dist.allGatherIntoTensorCoalesced([zeros([4, 2])], [x()], o),
    'distributed.allReduce': (o) => dist.allReduce(x(), o),
    'distributed.newGroup': (o) => dist.newGroup(null, o),
    'distributed.allToAll': (o) => dist.allToAll([x(), x()], [x(), x()], o),
    'distributed.allToAllSingle': (o) => dist.allToAllSingle(x(), x(), o),
    'distributed.barrier': (o) => dist.barrier(o),
    'distributed.broadcast': (o) => dist.broadcast(x(), 0, o),
    'distributed.gather': (o) =>
      dist.gather(x(), { ...(rank === 0 ? { gatherList: [x(), x()] } : {}), ...o }),
    'distributed.reduce': (o) => dist.reduce(x(), 0, o),
    'distributed.reduceScatter': (o) => dist.reduceScatter(x(), [x(), x()], o),
    'distributed.reduceScatterTensor': (o) => dist.reduceScatterTensor(x(), ones([4, 2]), o),
    'distributed.reduceScatterTensorCoalesced': (o) =>
      dist.reduceScatterTensorCoalesced([x()], [ones([4, 2])], o),
    'distributed.scatter': (o) =>
      dist.scatter(x(), { ...(rank === 0 ? { scatterList: [x(), x()] } : {}), ...o }),
    'distributed.DeviceMesh': (o) => dist.DeviceMesh('cpu', [0, 1], o),
    'distributed.DeviceMesh.fromGroup': (o) =>
      dist.DeviceMesh.fromGroup(dist.worldGroup(), 'cpu', o),
    'distributed.initDeviceMesh': (o) => dist.initDeviceMesh('cpu', [2], o),
    'distributed.send': message(dist.send, dist.recv),
    'distributed.recv': message(dist.send, dist.recv),
    'distributed.isend': message(dist.isend, dist.irecv),
    'distributed.irecv': message(dist.isend, dist.irecv),
    'distributed.allGatherObject': (o) => dist.allGatherObject([null, null], rank, o),
    'distributed.broadcastObjectList': (o) => dist.broadcastObjectList([rank], 0, o),
    'distributed.gatherObject': (o) =>
      dist.gatherObject(rank, { ...(rank === 0 ? { objectGatherList: [null, null] } : {}), ...o }),
    'distributed.scatterObjectList': (o) =>
      dist.scatterObjectList([null], {
        ...(rank === 0 ? { scatterObjectInputList: [1, 2] } : {}),
        ...o,
      }),
    'distributed.ColwiseParallel': (o) =>
      dist.parallelizeModule(linear(), mesh, dist.ColwiseParallel(o))(x()),
    'distributed.RowwiseParallel': (o) =>
      dist.parallelizeModule(linear(), mesh, dist.RowwiseParallel(o))(ones([2, 1])),
    'distributed.SequenceParallel': (o) =>
      dist.parallelizeModule(new nn.LayerNorm(2), mesh, dist.SequenceParallel(o))(ones([1, 2, 2])),
    'LayerStyle._apply': apply(dist.ColwiseParallel(), linear()),
    'Sequence._apply': apply(dist.SequenceParallel(), new nn.LayerNorm(2)),
    'ParallelStyle._apply': apply(dist.RowwiseParallel() as dist.ParallelStyle, linear()),
    'distributed.distributeModule': (o) =>
      dist.distributeModule(linear(), mesh, o)(dist.distributeTensor(x(), mesh)),
    'distributed.parallelizeModule': (o) =>
      dist.parallelizeModule(linear(), mesh, dist.ColwiseParallel(), o),
    'distributed.saveHuggingFace': (o) => dist.saveHuggingFace(checkpoint, linear(), o),
    'distributed.loadHuggingFace': async (o) => {
      await dist.saveHuggingFace(checkpoint, linear());
      await dist.loadHuggingFace(checkpoint, linear(), o);
    },
    'new distributed.Checkpointer': (o) =>
      new dist.Checkpointer({ folder: checkpoint, every: 1, signals: false, ...o }).close(),
    'distributed.distributedCheckpoint.save': async (o) => {
      await dist.distributedCheckpoint.save(checkpoint, { rank }, o);
      await dist.distributedCheckpoint.save(checkpoint, { rank });
    },
    'distributed.distributedCheckpoint.load': async (o) => {
      const state = { rank: 0 };
      await dist.distributedCheckpoint.save(checkpoint, { rank });
      await dist.distributedCheckpoint.load(checkpoint, state, o);
    },
    'new distributed.DistributedDataParallel': (o) => new dist.DistributedDataParallel(linear(), o),
    'DistributedDataParallel.join': (o) =>
      new dist.DistributedDataParallel(linear()).join(() => undefined, o),
    'distributed.checkpoint': (o) =>
      dist.checkpoint((t: Tensor, options: object = {}) => t.exp().sum(options), x(), o),
    'distributed.createSelectiveCheckpointContexts': (o) =>
      dist.createSelectiveCheckpointContexts(['matmul'], o),
    'distributed.checkpointWrapper': (o) => dist.checkpointWrapper(linear(), o)(x()),
    'distributed.applyActivationCheckpointing': (o) =>
      dist.applyActivationCheckpointing(new nn.Sequential(linear()), o),
    'distributed.fullyShard': (o) => dist.fullyShard(linear(), o),
    'new distributed.MixedPrecisionPolicy': (o) => new dist.MixedPrecisionPolicy(o),
    'new distributed.CPUOffloadPolicy': (o) => new dist.CPUOffloadPolicy(o),
    'new distributed.FullyShardedDataParallel': (o) =>
      new dist.FullyShardedDataParallel(linear(), o),
    'distributed.FullyShardedDataParallel.summonFullParams': (o) =>
      dist.FullyShardedDataParallel.summonFullParams(wrapped(), () => 1, o),
    'FullyShardedDataParallel.namedParameters': (o) => [...wrapped().namedParameters('', o)],
    'FullyShardedDataParallel.namedBuffers': (o) => [...wrapped().namedBuffers('', o)],
    'new distributed.FlatParamHandle': (o) => {
      const module = linear();
      return new dist.FlatParamHandle([...module.parameters()], module, o);
    },
    'new distributed.MixedPrecision': (o) => new dist.MixedPrecision(o),
    'new distributed.CPUOffload': (o) => new dist.CPUOffload(o),
    'distributed.PrepareModuleInput': (o) => dist.PrepareModuleInput(withInputs(o)),
    'distributed.PrepareModuleOutput': (o) =>
      dist.PrepareModuleOutput(layouts(o, ...outputs) as never),
    'distributed.PrepareModuleInputOutput': (o) =>
      dist.PrepareModuleInputOutput(layouts(withInputs(o), ...outputs) as never),
  };
  const values: Values = {
    maxCtas: 16,
    ownStream: true,
    shardOrder: [[0]], asyncOp: true, timeoutMs: Number.POSITIVE_INFINITY, gradPlacements: [Shard(0)], inGradPlacements: [[Shard(0)]], redistributeInputs: true, requiresGrad: true, runCheck: true, shape: [4, 2], stride: [2, 1], rebalance: true, srcDataRank: null, mesh, placements: [Replicate()],
    'distributed.DeviceMesh.fromGroup': { mesh: [0, 1] }, dtype: 'float64', 'distributed.dtensorRandint': { dtype: 'int64', requiresGrad: false }, 'distributed.dtensorArange': { requiresGrad: false }, generator: new Generator(7), sizes: [2, 2], format: 'svg', op: 'max',
    tensorMeta: dist.TensorMeta([4, 2], [2, 1], float32), group: dist.worldGroup(), inputSplitSizes: [1, 1], outputSplitSizes: [1, 1], meshDimNames: ['dp'], device: 'cpu', dst: 0, src: 0,
    gatherList: rank === 0 ? [x(), x()] : undefined, scatterList: rank === 0 ? [x(), x()] : undefined, objectGatherList: rank === 0 ? [null, null] : undefined,
    scatterObjectInputList: rank === 0 ? [1, 2] : undefined, inputLayouts: Replicate(), outputLayouts: Replicate(), useLocalOutput: true, useLocalInput: true, path: 'layer', sequenceDim: 1,
    'distributed.RowwiseParallel': { inputLayouts: Shard(-1) }, 'distributed.SequenceParallel': { useLocalOutput: true }, desiredInputLayouts: Replicate(), desiredOutputLayouts: Replicate(),
    inputKwargLayouts: { mask: Shard(0) }, desiredInputKwargLayouts: { mask: Replicate() }, partitionFn: () => {}, inputFn: () => {}, outputFn: (_: unknown, output: unknown) => output,
    reshardAfterForward: 2, mpPolicy: new dist.MixedPrecisionPolicy(), offloadPolicy: new dist.CPUOffloadPolicy(), shardPlacementFn: () => Shard(0), paramDtype: 'bfloat16', reduceDtype: 'float32',
    outputDtype: 'float32', castForwardInputs: false, keepLowPrecisionGrads: true, pinMemory: false, resumeArguments: ['--resume'], report: () => {},
    processGroup: dist.worldGroup(), shardingStrategy: 'SHARD_GRAD_OP', cpuOffload: new dist.CPUOffload(), autoWrapPolicy: () => false, backwardPrefetch: null, mixedPrecision: new dist.MixedPrecision(),
    ignoredStates: [], syncModuleStates: true, forwardPrefetch: true, limitAllGathers: false, fsdpExtension: null, useOrigParams: true, deviceMesh: mesh, recurse: false, removeDuplicate: false, writeback: false, offloadParams: true,
    mpParamDtype: 'bfloat16', mpReduceDtype: 'float32', bufferDtype: 'bfloat16', castRootForwardInputs: false,
    strict: false, verify: false, async: true, folder: checkpoint, every: 3, keep: 2, signals: true, rename: (name: string) => name, maxShardBytes: 1e6,
    useReentrant: false, preserveRngState: false, determinismCheck: 'none', earlyStop: false, allowCacheEntryMutation: true, broadcastBuffers: false, initSync: false, bucketCapMb: 1, findUnusedParameters: true, gradientAsBucketView: false, staticGraph: true, divideByInitialWorldSize: false, enable: false, checkpointImpl: 'NO_REENTRANT',
    checkpointFn: dist.checkpoint, checkpointWrapperFn: (m: nn.AnyModule) => dist.checkpointWrapper(m), checkFn: () => true, contextFn: () => [(fn: () => unknown) => fn(), (fn: () => unknown) => fn()],
  }; // biome-ignore format: a table
  return { calls, values };
}

/** One is refused without the other. */
const bothTolerances = (o: Options): Options =>
  'rtol' in o || 'atol' in o ? ({ rtol: 0, atol: 0, ...o } as never) : o;

/**
 * The calls of a process that is not a rank or becomes one: files, stores on 127.0.0.1 and in
 * files, groups of one rank.
 */
export function callsOfProcess(): { calls: Calls; values: Values; end: () => void } {
  const folder = mkdtempSync(path.join(tmpdir(), 'shardwise-options-'));
  const alone = async (o: Options): Promise<void> => {
    const place = { rank: 0, worldSize: 1 };
    await dist.initProcessGroup(
      'shm',
      'initMethod' in o ? { ...place, ...o } : { store: new dist.HashStore(), ...place, ...o },
    );
    dist.destroyProcessGroup();
  };
  const file = path.join(folder, 'tensors.safetensors');
  const calls: Calls = {
    saveSafetensors: (o) => saveSafetensors(file, { a: x() }, o),
    loadSafetensors: (o) => loadSafetensors(file, o),
    loadCheckpoint: async (o) => {
      const run = path.join(folder, 'run.safetensors');
      await saveCheckpoint(run, { step: 1 });
      await loadCheckpoint(run, { step: 0 }, o);
    },
    'SafetensorsFile.get': async (o) => {
      const opened = await SafetensorsFile.open(file);
      await opened.get('a', o).finally(() => opened.close());
    },
    'SafetensorsFile.readInto': async (o) => {
      const opened = await SafetensorsFile.open(file);
      const request = { name: 'a', into: zeros([2, 2]) };
      const part = 'ranges' in o ? { into: zeros([1, 2]) } : {};
      const isRequest = 'ranges' in o || 'name' in o || 'into' in o;
      const requests = [isRequest ? { ...request, ...part, ...o } : request];
      await opened.readInto(requests, isRequest ? {} : o).finally(() => opened.close());
    },
    'distributed.initProcessGroup': alone,
    'distributed.launch': (o) => dist.launch(1, () => 1, o),
    'testing.assertClose': (o) => assertClose(1, 1, bothTolerances(o)),
    'testing.assertCloseAsync': (o) => assertCloseAsync(1, 1, bothTolerances(o)),
    'testing.withRanks': (o) => withRanks(1, () => 1, o),
    'new distributed.FileStore': (o) =>
      new dist.FileStore(path.join(folder, 'store'), 1, o).close(),
    'new distributed.TCPStore': async (o) => {
      const store = new dist.TCPStore('127.0.0.1', 0, {
        isServer: true,
        worldSize: 1,
        ...o,
      } as never);
      await store.ready();
      await store.close();
    },
  };
  const values: Values = {
    store: new dist.HashStore(), rank: 0, worldSize: 1, timeoutMs: 5000, deviceId: 0, initMethod: pathToFileURL(path.join(folder, 'meeting')).href, mode: 'local', backend: 'shm', args: ['--fast'],
    env: { SHARD: '1' }, prefixOutput: false, seed: 3, faults: [{ rank: 0, at: 0, kind: 'delay', ms: 1 }], isServer: true, waitForWorkers: false, secret: 'hidden', device: 'cpu', metadata: { step: '1' },
    chunkBytes: 4096, slackBytes: 0, ranges: [[0, 1]], strict: false, rng: false,
    rtol: 0, atol: 0, equalNan: true, checkDtype: false, checkDevice: false, checkStride: true, message: 'sums',
  }; // biome-ignore format: a table
  return { calls, values, end: () => rmSync(folder, { recursive: true, force: true }) };
}
