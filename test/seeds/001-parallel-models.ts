/** The parallel models of PyTorch's test_dtensor_compile.py, compiled and compared with eager ones. */
import assert from 'node:assert/strict';
import {
  ColwiseParallel,
  checkpoint,
  checkpointWrapper,
  DTensor,
  FullyShardedDataParallel,
  initDeviceMesh,
  type ParallelizePlan,
  PrepareModuleInput,
  PrepareModuleOutput,
  parallelizeModule,
  Replicate,
  RowwiseParallel,
  Shard,
} from '../../lib/distributed.js';
import {
  arange,
  compile,
  float32,
  manualSeed,
  nn,
  optim,
  rand,
  type Tensor,
} from '../../lib/index.js';
import { CompileCounterWithBackend } from '../../lib/testing/index.js';
import { valuesOf } from '../distributed/support/on-ranks.js';
import { commCounts } from '../parallel/compare.js';
import {
  assertAsEager,
  assertClose,
  BACKENDS,
  FULL,
  factsOf,
  opsOf,
  recordingBackend,
} from './compiled.js';
import type { World } from './worlds.js';

type Backend = (typeof BACKENDS)[number];
type Device = World['device'];

class Mlp extends nn.Module {
  net1 = new nn.Linear(10, 16);
  relu = new nn.ReLU();
  net2 = new nn.Linear(16, 10);
  forward(x: Tensor): Tensor {
    return this.net2(this.relu(this.net1(x)));
  }
}

class TwoMlps extends nn.Module {
  mlp_0 = new Mlp();
  mlp_1 = new Mlp();
  forward(x: Tensor): Tensor {
    return this.mlp_1(this.mlp_0(x));
  }
}

function newModel(device: Device): TwoMlps {
  manualSeed(1);
  return new TwoMlps().to(device);
}

const PLAIN = (): ParallelizePlan => ({
  'mlp_0.net1': ColwiseParallel(),
  'mlp_0.net2': RowwiseParallel(),
  'mlp_1.net1': ColwiseParallel(),
  'mlp_1.net2': RowwiseParallel(),
});

const SEQUENCE = (): ParallelizePlan => ({
  ...PLAIN(),
  mlp_0: PrepareModuleInput({ inputLayouts: [Shard(0)], desiredInputLayouts: [Replicate()] }),
  'mlp_0.net2': RowwiseParallel({ outputLayouts: Shard(0) }),
  'mlp_1.net1': ColwiseParallel({ inputLayouts: Shard(0) }),
  mlp_1: PrepareModuleOutput({ outputLayouts: [Replicate()], desiredOutputLayouts: [Shard(0)] }),
});

/** Outputs, gradients and collectives of a tensor-parallel model, compiled and not. */
async function compareTensorParallel(
  backend: Backend,
  device: Device,
  plan: ParallelizePlan,
  seed: number,
): Promise<void> {
  const mesh = initDeviceMesh(device, [4]);
  const model = newModel(device);
  parallelizeModule(model, mesh, plan);
  manualSeed(seed);
  const x = rand([20, 10], { device });
  const counter = CompileCounterWithBackend(backend);
  const compiled = compile(model, { ...FULL, backend: counter });
  await assertAsEager<(x: Tensor) => Tensor>(model, compiled, async (run) => {
    model.zeroGrad();
    let out: Tensor | null = null;
    const counts = commCounts(() => {
      out = run(x);
      out.sum().backward();
    });
    const grads = [...model.parameters()].map((p) => p.grad);
    return [await factsOf([out, ...grads]), counts];
  });
  assert.equal(counter.frameCount, 1);
}

type Run = (x: Tensor) => Tensor;

/** A model of tensor parallelism below flat parameters, and how often its forward ran. */
function twoDims(device: Device, useOrigParams: boolean, wrap: (model: TwoMlps) => nn.AnyModule) {
  const mesh = initDeviceMesh(device, [2, 2], { meshDimNames: ['dp', 'tp'] });
  const model = newModel(device);
  let runs = 0;
  model.registerForwardPreHook(() => {
    runs++;
  });
  parallelizeModule(model, mesh.get('tp'), PLAIN());
  const sharded = new FullyShardedDataParallel(wrap(model) as nn.Module<[x: Tensor], Tensor>, {
    deviceMesh: mesh.get('dp'),
    useOrigParams,
  });
  return { sharded, runs: () => runs, dp: mesh.get('dp').getLocalRank() };
}

const STEPS = 3;

/** Outputs, gradients by name, parameters, and collectives, each by step. */
async function trained(run: Run, sharded: nn.AnyModule, device: Device, dp: number) {
  const sgd = new optim.SGD(sharded.parameters(), { lr: 0.1 });
  const [results, collectives]: [unknown[], unknown[]] = [[], []];
  for (let step = 0; step < STEPS; step++) {
    manualSeed(10 * step + dp);
    const x = rand([20, 10], { device });
    let out: Tensor | null = null;
    const counts = commCounts(() => {
      out = run(x);
      out.sum().backward();
    });
    const named = [...sharded.namedParameters()];
    const grads = await factsOf(named.map(([, p]) => p.grad));
    sgd.step();
    sgd.zeroGrad();
    const values = await factsOf(named.map(([, p]) => p));
    results.push(await factsOf([out]));
    results.push(named.map(([name], i) => [name, grads[i], values[i]]));
    collectives.push(counts);
  }
  return { results, collectives };
}

/** On the CPU a graph runs the kernels of eager code; on a GPU it may have kernels of its own. */
const compare = (device: Device): ((seen: unknown, expected: unknown) => void) =>
  device === 'cpu' ? assert.deepEqual : assertClose;

/** What activation checkpoints wrap: nothing, the eager model, or the compiled model, too. */
type Checkpoints = 'none' | 'eager' | 'both';

async function compareTwoDims(
  backend: Backend,
  device: Device,
  useOrigParams: boolean,
  checkpoints: Checkpoints,
): Promise<void> {
  const as = (isWrapped: boolean) => (model: TwoMlps) =>
    isWrapped ? checkpointWrapper(model, { checkpointFn: checkpoint as never }) : model;
  const eager = twoDims(device, useOrigParams, as(checkpoints !== 'none'));
  const other = twoDims(device, useOrigParams, as(checkpoints === 'both'));
  const counter = CompileCounterWithBackend(backend);
  const compiled = compile(other.sharded, { backend: counter }) as Run;
  const expected = await trained(eager.sharded as never as Run, eager.sharded, device, eager.dp);
  const found = await trained(compiled, other.sharded, device, other.dp);
  compare(device)(found.results, expected.results);
  // Running forward again, an eager checkpoint repeats its collectives.
  if (checkpoints !== 'eager') assert.deepEqual(found.collectives, expected.collectives);
  assert.equal(counter.frameCount, 1);
  assert.equal(eager.runs(), checkpoints === 'none' ? STEPS : 2 * STEPS);
}

/** A product of shards, gathered: its golden values, gradients and graphs. */
async function compareRedistributed(device: Device): Promise<void> {
  const mesh = initDeviceMesh(device, [4]);
  const fn = (x: Tensor, y: Tensor): Tensor =>
    DTensor.fromLocal(x.reshape(2, 4), mesh, [Shard(0)])
      .matmul(DTensor.fromLocal(y.reshape(4, 2), mesh, [Shard(1)]))
      .redistribute(mesh, [Replicate()])
      .toLocal();
  const { backend, forward, backward } = recordingBackend();
  const compiled = compile(fn, { ...FULL, backend });
  for (let call = 0; call < 2; call++) {
    const [x, y] = [0, 1].map(() => arange(8, { dtype: float32, device }).requiresGrad_()) as [
      Tensor,
      Tensor,
    ];
    const out = compiled(x, y);
    assert.deepEqual(out.shape, [8, 8]);
    assertClose(await valuesOf(out), await valuesOf(fn(x.detach(), y.detach())));
    assert.equal(await out.sum().itemAsync(), 3776);
    out.sum().backward();
    assert.deepEqual(await valuesOf(x.grad as Tensor), [4, 20, 36, 52, 4, 20, 36, 52]);
    assert.deepEqual(await valuesOf(y.grad as Tensor), [16, 16, 24, 24, 32, 32, 40, 40]);
  }
  assert.deepEqual([forward.length, backward.length], [1, 1]);
  const [ops] = forward.map(opsOf) as [string[]];
  assert.ok(ops.includes('allGather'));
  for (const [i, name] of ops.entries())
    if (name === 'allGather') assert.ok(ops.indexOf('waitTensor', i) > i, ops.join(' '));
  assert.ok(!backward.flatMap(opsOf).includes('allGather'));
}

/** What each of four ranks does in a case. */
export interface ParallelCase {
  readonly title: string;
  readonly backends: readonly Backend[];
  readonly run: (backend: Backend, device: Device, rank: number) => Promise<void>;
}

export const RANKS = 4;

export const CASES: readonly ParallelCase[] = [
  {
    title: 'seed 001.20: tensor parallelism with shards between the layers',
    backends: BACKENDS,
    run: (backend, device, rank) => compareTensorParallel(backend, device, SEQUENCE(), rank),
  },
  {
    title: 'seed 001.21: tensor parallelism',
    backends: BACKENDS,
    run: (backend, device) => compareTensorParallel(backend, device, PLAIN(), 0),
  },
  {
    title: 'seed 001.22: tensor parallelism in flat parameters',
    backends: BACKENDS,
    run: (backend, device) => compareTwoDims(backend, device, true, 'none'),
  },
  {
    title: 'seed 001.22: tensor parallelism in flat parameters that optimizers have',
    backends: BACKENDS,
    run: (backend, device) => compareTwoDims(backend, device, false, 'none'),
  },
  {
    title: 'seed 001.23: tensor parallelism in flat parameters, as a checkpoint computes it',
    backends: BACKENDS,
    run: (backend, device) => compareTwoDims(backend, device, true, 'eager'),
  },
  {
    title: 'seed 001.23: tensor parallelism in flat parameters, in a checkpoint that is compiled',
    backends: BACKENDS,
    run: (backend, device) => compareTwoDims(backend, device, true, 'both'),
  },
  {
    title: 'seed 001.24: a product of shards that is gathered in forward, and nothing in backward',
    backends: ['aot_eager'],
    run: (_, device) => compareRedistributed(device),
  },
];
