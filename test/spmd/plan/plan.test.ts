/** Plans of train steps: their bytes and calls are those of real ranks, their memory that of sizes. */
import assert from 'node:assert/strict';
import {
  CommDebugMode,
  type DeviceMesh,
  DTensor,
  type FullyShardOptions,
  fullyShard,
  initDeviceMesh,
  MixedPrecisionPolicy,
  Replicate,
  Shard,
} from '../../../lib/distributed.js';
import {
  ArgumentError,
  amp,
  bfloat16,
  CompileError,
  DistributedError,
  float32,
  nn,
  type optim,
  randn,
  ShardingError,
  type Tensor,
} from '../../../lib/index.js';
import { checkpoint } from '../../../lib/parallel/index.js';
import {
  compile,
  GraphModuleTransformation,
  type LayoutName,
  type LayoutPlan,
  type PlanContext,
  type PlanMesh,
  type PlannedStep,
  type PlanOptions,
  plan,
} from '../../../lib/spmd/index.js';
import { onRanks } from '../../distributed/support/on-ranks.js';
import { adamOf, type Model, modelOf, shardInTurns, trainStep } from '../support/fake-step.js';

const LAYERS = 4;
const DIM = 16;
const ROWS = 32;
const FLOAT = 4;
/** A weight and a bias. */
const LAYER_BYTES = (DIM * DIM + DIM) * FLOAT;
const MODEL_BYTES = LAYERS * LAYER_BYTES;

const makeStep = ({ dataRanks }: PlanContext): PlannedStep => {
  const model = modelOf(LAYERS, DIM);
  return { trainStep, args: [model, adamOf(model), randn([ROWS / dataRanks, DIM])] };
};

const line = (ranks: number): PlanMesh => ({ shape: [ranks], meshDimNames: ['ranks'] });

function layoutOf(layout: LayoutName, mesh: PlanMesh, options: PlanOptions = {}): LayoutPlan {
  const { layouts } = plan(makeStep, mesh, { layouts: [layout], ...options });
  return layouts[0] as LayoutPlan;
}

/** The calls and bytes of a rank in `step`, by mesh dim. */
function countedIn(step: () => void): LayoutPlan['communication'] {
  const comm = new CommDebugMode();
  comm.run(step);
  return Object.fromEntries(
    Object.entries(comm.getTraffic().byMeshDim).map(([along, { calls, sentBytes }]) => [
      along,
      { calls, sentBytes },
    ]),
  );
}

/** The second step, which makes no state and captures nothing. */
function secondStep(step: (...args: never[]) => unknown, args: readonly unknown[]): () => void {
  const take = (): void => {
    (step as (...args: readonly unknown[]) => unknown)(...args);
  };
  take();
  return take;
}

/** Shards each layer, and what is outside of layers. */
function shardLayers(model: Model, options: FullyShardOptions = {}): void {
  for (const layer of model.children())
    if (layer instanceof nn.Linear) fullyShard(layer as never, options);
  fullyShard(model as never, options);
}

/** What ranks on a mesh of two dims run in a layout. */
function realStep(
  layout: LayoutName,
  { shape, meshDimNames }: PlanMesh,
): { readonly step: unknown; readonly args: readonly unknown[] } {
  const mesh = initDeviceMesh('cpu', [...shape], { meshDimNames: [...meshDimNames] });
  const model = modelOf(LAYERS, DIM);
  const isOfTwo = layout === 'fsdp x tp';
  const tensorMesh = mesh.get('tp') as DeviceMesh;
  if (layout === 'tp') shardInTurns(model, 2, mesh as DeviceMesh);
  if (isOfTwo) shardInTurns(model, 2, tensorMesh);
  if (layout === 'fsdp') shardLayers(model, { mesh: initDeviceMesh('cpu', [4]) as DeviceMesh });
  if (isOfTwo) shardLayers(model, { mesh: mesh.get('dp') as DeviceMesh });
  const local = randn([ROWS / (layout.includes('tp') ? 2 : 4), DIM]);
  const batch = isOfTwo ? DTensor.fromLocal(local, tensorMesh, [Replicate()]) : local;
  const args = [model, adamOf(model), batch];
  if (layout.startsWith('fsdp')) return { step: trainStep, args };
  const gmTransformation = GraphModuleTransformation({ enableGraphOptimization: true });
  const placements = layout === 'tp' ? [Shard(0), Replicate()] : [Shard(0), Shard(0)];
  const parallelMode = { mesh: mesh as DeviceMesh, batch: () => placements };
  return { step: compile({ gmTransformation, parallelMode })(trainStep), args };
}

/** Parameters outside of layers. */
class Net extends nn.Module<[x: Tensor], Tensor> {
  readonly input = new nn.Linear(DIM, DIM);
  readonly layers = new nn.ModuleList([new nn.Linear(DIM, DIM), new nn.Linear(DIM, DIM)]);
  readonly output = new nn.Linear(DIM, DIM);

  forward(x: Tensor): Tensor {
    let y = this.input(x).relu();
    for (const layer of this.layers) y = layer(y).relu();
    return this.output(y);
  }
}

describe('plans of train steps', function () {
  this.timeout(60_000);

  for (const ranks of [2, 4]) {
    it(`counts the bytes and calls of data parallel steps as ${ranks} real ranks do`, async () => {
      for (const bucketSizeMb of [null, 25]) {
        const planned = layoutOf('dp', line(ranks), { bucketSizeMb });
        await onRanks(ranks, () => {
          const { args } = makeStep({ dataRanks: ranks, tensorRanks: 1 });
          const enableGraphOptimization = bucketSizeMb !== null;
          const gmTransformation = GraphModuleTransformation({ enableGraphOptimization });
          const step = compile({ gmTransformation })(trainStep);
          assert.deepEqual(planned.communication, countedIn(secondStep(step as never, args)));
        });
        const { calls, sentBytes } = planned.communication['world']!;
        assert.equal(calls, bucketSizeMb === null ? 2 * LAYERS : 1);
        assert.equal(sentBytes, (MODEL_BYTES * 2 * (ranks - 1)) / ranks);
      }
    });

    it(`counts the bytes and calls of fully sharded steps as ${ranks} real ranks do`, async () => {
      const planned = layoutOf('fsdp', line(ranks));
      await onRanks(ranks, () => {
        const model = modelOf(LAYERS, DIM);
        shardLayers(model);
        const args = [model, adamOf(model), randn([ROWS / ranks, DIM])];
        assert.deepEqual(planned.communication, countedIn(secondStep(trainStep as never, args)));
      });
    });

    it(`counts the bytes and calls of tensor parallel steps as ${ranks} real ranks do`, async () => {
      const planned = layoutOf('tp', line(ranks));
      await onRanks(ranks, () => {
        const model = modelOf(LAYERS, DIM);
        shardInTurns(model, ranks);
        const args = [model, adamOf(model), randn([ROWS, DIM])];
        const mesh = initDeviceMesh('cpu', [ranks], { meshDimNames: ['ranks'] });
        const parallelMode = { mesh, batch: () => [Replicate()] };
        const gmTransformation = GraphModuleTransformation({ enableGraphOptimization: true });
        const step = compile({ parallelMode, gmTransformation })(trainStep);
        assert.deepEqual(planned.communication, countedIn(secondStep(step as never, args)));
      });
    });
  }

  for (const layout of ['dp', 'fsdp', 'tp', 'fsdp x tp'] as const)
    it(`counts the bytes and calls of ${layout} along each dim of a mesh as real ranks do`, async () => {
      const mesh = { shape: [2, 2], meshDimNames: ['dp', 'tp'] };
      const planned = layoutOf(layout, mesh);
      await onRanks(4, () => {
        const { step, args } = realStep(layout, mesh);
        assert.deepEqual(planned.communication, countedIn(secondStep(step as never, args)));
      });
    });

  it('gathers and reduces in the dtypes of mixed precision, as real ranks do', async () => {
    const precise = {
      trainStep: (model: Model, adam: optim.Adam, x: Tensor): void => {
        const forward = (): Tensor => model(x).sum();
        amp.autocast({ deviceType: 'cpu', dtype: bfloat16 }, forward).backward();
        adam.step();
      },
    };
    const make = (context: PlanContext): PlannedStep => ({ ...makeStep(context), ...precise });
    for (const reduceDtype of [null, float32]) {
      const options = { layouts: ['fsdp'], paramDtype: bfloat16, reduceDtype } as const;
      const [planned] = plan(make, line(2), options).layouts;
      await onRanks(2, () => {
        const mpPolicy = new MixedPrecisionPolicy({ paramDtype: bfloat16, reduceDtype });
        const model = modelOf(LAYERS, DIM);
        shardLayers(model, { mpPolicy });
        const args = [model, adamOf(model), randn([ROWS / 2, DIM])];
        assert.deepEqual(planned!.communication, countedIn(secondStep(trainStep as never, args)));
      });
      // The copies that autocast makes are what is gathered, and no activations.
      const whole = plan(make, line(2), { layouts: ['fsdp'] }).layouts[0]!.memory;
      assert.ok(planned!.memory.total < whole.total && planned!.memory.activations > 0);
    }
  });

  it('gathers and reduces the parameters outside of layers once, as real ranks do', async () => {
    const make = ({ dataRanks }: PlanContext): PlannedStep => {
      const model = new Net();
      return { trainStep, args: [model, adamOf(model), randn([ROWS / dataRanks, DIM])] };
    };
    const [planned] = plan(make, line(2), { layouts: ['fsdp'] }).layouts;
    await onRanks(2, () => {
      const model = new Net();
      for (const layer of model.layers) fullyShard(layer as never);
      fullyShard(model as never);
      const args = [model, adamOf(model), randn([ROWS / 2, DIM])];
      const counted = countedIn(secondStep(trainStep as never, args));
      assert.deepEqual(planned?.communication, counted);
      // Each of two layers is gathered twice and reduced once, the rest gathered and reduced once.
      assert.equal(counted['world']?.calls, 2 * 3 + 2);
    });
  });

  it('sums memory by role', () => {
    const ranks = 4;
    const { layouts } = plan(makeStep, line(ranks), {
      layouts: ['dp', 'fsdp'],
      bucketSizeMb: null,
    });
    const [dp, fsdp] = layouts as [LayoutPlan, LayoutPlan];
    const counts = 2 * LAYERS * FLOAT;
    assert.equal(dp.memory.parameters, MODEL_BYTES);
    assert.equal(dp.memory.optimizerState, 2 * MODEL_BYTES + counts);
    assert.equal(fsdp.memory.optimizerState, (2 * MODEL_BYTES) / ranks + counts);
    // Its own shards, a gathered layer as rows and whole, and the rows of the next one.
    const gathered = fsdp.memory.parameters - MODEL_BYTES / ranks;
    assert.ok(gathered % LAYER_BYTES === 0 && gathered <= 3 * LAYER_BYTES, String(gathered));
    // At the peak of dp all gradients are there, and the last layer's twice: before and after its reduction.
    assert.ok(dp.memory.gradients >= MODEL_BYTES, String(dp.memory.gradients));
    assert.ok(fsdp.memory.total < dp.memory.total);
    for (const { memory } of layouts) {
      const { total, parameters, gradients, optimizerState, activations } = memory;
      assert.equal(total, parameters + gradients + optimizerState + activations);
    }
  });

  it('counts fewer activations and more work for a step with checkpoints', () => {
    const make = (step: typeof trainStep): LayoutPlan => {
      const model = modelOf(LAYERS, DIM);
      const args = [model, adamOf(model), randn([64 * ROWS, DIM])];
      const { layouts } = plan(() => ({ trainStep: step, args }), line(2), { layouts: ['dp'] });
      return layouts[0] as LayoutPlan;
    };
    const whole = make(trainStep);
    const checkpointed = make((model, adam, x) => {
      const layers = [...model.children()] as Model[];
      const half = (t: Tensor, from: number): Tensor =>
        layers.slice(from, from + LAYERS).reduce((y, layer) => layer.forward(y), t);
      checkpoint(half, checkpoint(half, x, 0), LAYERS)
        .sum()
        .backward();
      adam.step();
      adam.zeroGrad();
    });
    assert.ok(checkpointed.memory.activations < whole.memory.activations);
    assert.ok(checkpointed.seconds > whole.seconds);
    assert.deepEqual(checkpointed.communication, whole.communication);
  });

  it('plans 4,096 ranks, and finds the fastest layout that fits', () => {
    const mesh = { shape: [512, 8], meshDimNames: ['dp', 'tp'] };
    const make = ({ dataRanks }: PlanContext): PlannedStep => {
      const model = modelOf(LAYERS, 4096).to('cuda');
      const rows = 2 ** 22 / dataRanks;
      return { trainStep, args: [model, adamOf(model), randn([rows, 4096], { device: 'cuda' })] };
    };
    const all = plan(make, mesh, { device: 'cuda' });
    assert.deepEqual(
      all.layouts.map(({ layout, dataRanks }) => [layout, dataRanks]),
      [
        ['dp', 4096],
        ['fsdp', 4096],
        ['tp', 512],
        ['fsdp x tp', 512],
      ],
    );
    assert.ok(all.layouts.every(({ fits, seconds }) => fits && seconds > 0));
    const byTime = [...all.layouts].sort((a, b) => a.seconds - b.seconds);
    assert.equal(all.fastest, byTime[0]);
    const [dp, fsdp, tp, both] = all.layouts as [LayoutPlan, LayoutPlan, LayoutPlan, LayoutPlan];
    assert.deepEqual(Object.keys(dp.communication), ['world']);
    assert.ok(tp.communication['dp']!.sentBytes < dp.communication['world']!.sentBytes / 7);
    assert.ok(both.memory.total < tp.memory.total && fsdp.memory.total < dp.memory.total);
    const memoryBytes = dp.memory.total - 1;
    const limited = plan(make, mesh, { device: 'cuda', memoryBytes, layouts: ['dp', 'fsdp'] });
    assert.deepEqual(
      limited.layouts.map(({ fits }) => fits),
      [false, true],
    );
    assert.equal(limited.fastest?.layout, 'fsdp');
    assert.equal(plan(make, mesh, { device: 'cuda', memoryBytes: 1 }).fastest, null);
  });

  it('shows layouts as a table', () => {
    const text = String(
      plan(makeStep, { shape: [2, 2], meshDimNames: ['dp', 'tp'] }, { memoryBytes: 2 ** 17 }),
    );
    assert.match(text, /^A step on \(dp=2, tp=2\) with 128 KiB a rank\n/);
    assert.match(text, /layout +step +kernels +collectives +exposed +memory/);
    assert.match(text, /\nfsdp x tp +\d/);
    assert.match(text, /world: 6\.38 KiB in 1 call(;|\s)/);
    assert.match(text, /in \d+ calls/);
    assert.match(text, /\nThe fastest that fits is dp: /);
    assert.match(
      String(plan(makeStep, line(2), { memoryBytes: 1 })),
      /\(too much\)[\s\S]*\nNo layout fits$/,
    );
  });

  it('shards the parameters that it is told to, and reports a layout that cannot run', () => {
    const shardParameter = (name: string): number | null => (name === '0.weight' ? 0 : null);
    const { memory } = layoutOf('tp', line(4), { shardParameter });
    assert.equal(memory.parameters, MODEL_BYTES - (DIM * DIM * FLOAT * 3) / 4);
    assert.throws(
      () => layoutOf('tp', line(4), { shardParameter: () => 3 }),
      /a dim of 0\.weight that 4 ranks share evenly, got 3 for shape \[16, 16\]/,
    );
    assert.throws(() => layoutOf('tp', line(5), { shardParameter: () => 0 }), ArgumentError);
    const refused = (): void => {
      throw new ShardingError('no rule for shards');
    };
    const make = (context: PlanContext): PlannedStep => ({
      ...makeStep(context),
      ...(context.tensorRanks > 1 ? { trainStep: refused } : {}),
    });
    const found = plan(make, line(2), { layouts: ['dp', 'tp'] });
    assert.equal(found.layouts[1]?.problem, 'no rule for shards');
    assert.equal(found.fastest?.layout, 'dp');
    assert.match(String(found), /\ntp cannot run: no rule for shards\n/);
    const alone = plan(make, line(2), { layouts: ['tp'] });
    assert.match(String(alone), /\nNo layout can run$/);
  });

  it('refuses what is no step, no mesh and no option, and a world of ranks', async () => {
    const bad = (message: RegExp, ...args: unknown[]): void =>
      assert.throws(
        () => (plan as (...args: unknown[]) => unknown)(...args),
        (error: Error) => error instanceof ArgumentError && message.test(error.message),
      );
    bad(/makeStep/, trainStep.name, line(2));
    bad(/returns \{ trainStep, args \}/, () => 3, line(2));
    bad(/expected mesh to be an object with shape and meshDimNames/, makeStep, [2]);
    bad(/mesh\.shape/, makeStep, { shape: [0], meshDimNames: ['dp'] });
    bad(/expected mesh\.shape to be .* got undefined/, makeStep, { meshDimNames: ['dp'] });
    bad(/expected mesh\.shape to be .* got \[\]/, makeStep, { shape: [], meshDimNames: [] });
    bad(/expected mesh\.meshDimNames to be .* got undefined/, makeStep, { shape: [8] });
    bad(/2 different names/, makeStep, { shape: [2, 2], meshDimNames: ['dp', 'dp'] });
    bad(/no option "memory"/, makeStep, line(2), { memory: 1 });
    bad(/plan: mesh: there is no option "dimNames"/, makeStep, { ...line(2), dimNames: ['a'] });
    const more = () => ({ trainStep, args: [], device: 'cuda' });
    bad(/plan: the result of makeStep: there is no option "device"/, more, line(2));
    const cpu = { name: 'a', flops: { float32: 1 }, memory: 1, launch: 1 };
    const links = [{ ranks: Infinity, latency: 1, bandwidth: 1, bandwith: 2 }];
    bad(/rates\.links: there is no option "bandwith"/, makeStep, line(2), {
      rates: { ...cpu, links },
    });
    bad(/rates\.links: .*got null/, makeStep, line(2), { rates: { ...cpu, links: [null] } });
    bad(/at most 1048576 ranks, got \[1000000, 1000000\]/, makeStep, {
      shape: [1e6, 1e6],
      meshDimNames: ['a', 'b'],
    });
    bad(/at most 1048576 ranks/, makeStep, line(2 ** 53 - 1));
    bad(/memoryBytes/, makeStep, line(2), { memoryBytes: 0 });
    bad(/bucketSizeMb/, makeStep, line(2), { bucketSizeMb: -1 });
    bad(/layouts/, makeStep, line(2), { layouts: ['pp'] });
    bad(/needs a mesh of two dims or more/, makeStep, line(2), { layouts: ['fsdp x tp'] });
    bad(/device/, makeStep, line(2), { device: 'tpu' });
    bad(/rates/, makeStep, line(2), { rates: 'b200' });
    bad(/shardParameter/, makeStep, line(2), { shardParameter: {} });
    bad(/groupOf/, makeStep, line(2), { groupOf: null });
    bad(/paramDtype.*floating/, makeStep, line(2), { paramDtype: 'int64' });
    bad(/reduceDtype.*floating/, makeStep, line(2), { reduceDtype: 'bool' });
    const readsValues = (): PlannedStep => ({
      trainStep: (model: Model, x: Tensor) => model(x).sum().item(),
      args: [modelOf(1, 4), randn([2, 4])],
    });
    assert.throws(() => plan(readsValues, line(2)), CompileError);
    // The worlds of plans that failed are gone.
    assert.equal(layoutOf('dp', line(2)).problem, null);
    await onRanks(2, () => {
      assert.throws(() => layoutOf('dp', line(2)), DistributedError);
    });
  });
});
