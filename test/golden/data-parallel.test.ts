/**
 * Ten steps of DDP, of flat parameters and of `fullyShard` on 1 to 4 ranks have the losses, norms,
 * parameters and shards of PyTorch's over gloo.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'mocha';
import {
  allReduce,
  DistributedDataParallel,
  DTensor,
  FullyShardedDataParallel,
  fullyShard,
  MixedPrecision,
  MixedPrecisionPolicy,
} from '../../lib/distributed.js';
import { bfloat16, cat, float32, nn, optim, stack, type Tensor, tensor } from '../../lib/index.js';
import { withRanks } from '../../lib/testing/index.js';
import { assertNear } from './compare.js';
import { BATCH, lossOf, type ModelName, newModel, wrapBlocks } from './data-parallel-models.js';
import { type Fixture, withFixture } from './read-fixture.js';
import type { Described } from './seeded-weights.js';
import { expected, makeTensor } from './tensors.js';

interface Setting {
  name: 'setting';
  seed: number;
  params: Record<ModelName, Described>;
  /** [2, rows of all ranks, ...]: two batches that take turns. */
  batches: Record<ModelName, string>;
  /** Of all elements of the parameters, one of so many is recorded. */
  every: Record<ModelName, number>;
  maxNorm: Record<ModelName, number>;
  clippedStep: number;
  optimizers: { AdamW: optim.AdamOptions; SGD: optim.SGDOptions };
}

interface Run {
  name: string;
  model: ModelName;
  wrapper:
    | 'fullyShard'
    | 'FullyShardedDataParallel'
    | 'FullyShardedDataParallel with useOrigParams'
    | 'DistributedDataParallel';
  optimizer: 'AdamW' | 'SGD';
  computation: 'float32' | 'bfloat16';
  world: number;
  losses: string;
  norm: number;
  values: string;
  /** Sum of the magnitudes of each parameter. */
  sums: string;
  /** Largest difference between PyTorch's parameters and those of one device in float64. */
  drift: number;
  /** What each rank holds of each parameter, or of each flat one. */
  shards?: Record<string, number[][]>;
}

type Trained = nn.Module<[x: Tensor], Tensor>;

/** A wrapped model, and how its gradients are clipped. */
function wrapped(run: Run, setting: Setting): Trained {
  const model = newModel(run.model, setting.params[run.model], setting.seed);
  const dtypes =
    run.computation === 'bfloat16' ? { paramDtype: bfloat16, reduceDtype: float32 } : {};
  if (run.wrapper === 'DistributedDataParallel') return new DistributedDataParallel(model);
  if (run.wrapper === 'fullyShard') {
    const mpPolicy = new MixedPrecisionPolicy(dtypes);
    wrapBlocks(model, (block) => fullyShard(block, { mpPolicy }));
    return fullyShard(model, { mpPolicy });
  }
  const useOrigParams = run.wrapper !== 'FullyShardedDataParallel';
  const options = { useOrigParams, mixedPrecision: new MixedPrecision(dtypes) };
  wrapBlocks(model, (block) => new FullyShardedDataParallel(block, options));
  return new FullyShardedDataParallel(model as Trained, options);
}

async function clipped(model: Trained, maxNorm: number): Promise<number> {
  const norm =
    model instanceof FullyShardedDataParallel
      ? model.clipGradNorm_(maxNorm)
      : nn.utils.clipGradNorm_(model.parameters(), maxNorm);
  const whole = norm instanceof DTensor ? norm.fullTensor() : norm;
  return Number((await whole.reshape([1]).read())[0]);
}

/** Whole parameters in the order of the fixture. */
async function parametersOf(model: Trained, described: Described): Promise<Tensor[]> {
  const state = model.stateDict();
  const of = (name: string): Tensor => {
    const found = (state[name] ?? state[`module.${name}`]) as Tensor;
    const whole = found instanceof DTensor ? found.fullTensor() : found;
    return whole.detach().reshape([-1]);
  };
  return Object.keys(described).map(of);
}

/** The shapes that this rank holds of the parameters that the optimizer gets, in their order. */
const heldShapes = (model: Trained): number[][] =>
  [...model.parameters()].map((p) => [...(p instanceof DTensor ? p.toLocal() : p).shape]);

/** A factor for relative errors, and the absolute error that is let pass. */
interface Tolerance {
  rtol: number;
  atol: number;
}

/**
 * In bfloat16, losses and norms have the tolerance of assert_close. A parameter may differ by what
 * PyTorch itself is off: AdamW makes steps of one size of gradients of any size, so one that is
 * rounded to the other side of zero moves a parameter far.
 */
const tolerances: Record<Run['computation'], (run: Run) => Record<'loss' | 'values', Tolerance>> = {
  float32: () => ({ loss: { rtol: 1e-5, atol: 0 }, values: { rtol: 1e-5, atol: 1e-6 } }),
  bfloat16: ({ drift }) => ({
    loss: { rtol: 1.6e-2, atol: 1e-5 },
    values: { rtol: 0, atol: 2 * drift },
  }),
};

async function assertValues(
  actual: Tensor,
  wanted: ArrayLike<number>,
  { rtol, atol }: Tolerance,
  what: string,
): Promise<void> {
  const values = [...((await actual.contiguous().read()) as Iterable<number>)];
  assert.equal(values.length, wanted.length, what);
  values.forEach((value, i) => {
    assertNear(value, wanted[i] as number, rtol, atol, `${what}[${i}]`);
  });
}

const distance = (a: ArrayLike<number>, b: ArrayLike<number>): number =>
  Math.hypot(...Array.from(a, (value, i) => value - (b[i] as number)));

async function checkRun(fixture: Fixture<Setting | Run>, run: Run, rank: number): Promise<void> {
  const setting = fixture.cases[0] as Setting;
  const described = setting.params[run.model];
  const model = wrapped(run, setting);
  if (run.shards !== undefined)
    assert.deepEqual(
      heldShapes(model),
      Object.values(run.shards).map((ofRanks) => ofRanks[rank]),
    );
  const stepper =
    run.optimizer === 'SGD'
      ? new optim.SGD(model.parameters(), setting.optimizers.SGD)
      : new optim.AdamW(model.parameters(), setting.optimizers.AdamW);
  const batches = makeTensor(fixture.entry(setting.batches[run.model]), 'cpu');
  const { loss: lossTolerance, values: tolerance } = tolerances[run.computation](run);
  const each = BATCH / run.world;
  const losses: Tensor[] = [];
  for (let step = 0; step < 10; step++) {
    const batch = batches.select(0, step % 2).narrow(0, rank * each, each);
    const loss = lossOf(model, run.model, batch);
    loss.backward();
    if (step === setting.clippedStep) {
      const norm = await clipped(model, setting.maxNorm[run.model]);
      assertNear(norm, run.norm, lossTolerance.rtol, lossTolerance.atol, 'norm');
    }
    stepper.step();
    stepper.zeroGrad();
    losses.push(loss.detach());
  }
  const mean = stack(losses);
  allReduce(mean, { op: 'avg' });
  const wanted = (key: string): ArrayLike<number> =>
    expected(fixture.entry(key)).values as ArrayLike<number>;
  await assertValues(mean, wanted(run.losses), lossTolerance, 'loss');
  const params = await parametersOf(model, described);
  const whole = [...((await cat(params).read()) as Iterable<number>)];
  const sampled = whole.filter((_, i) => i % setting.every[run.model] === 0);
  await assertValues(tensor(sampled), wanted(run.values), tolerance, 'parameters');
  if (run.computation === 'bfloat16') {
    const exact = (fixture.cases as Run[]).find(
      (each) => each.name === run.name.replace('bfloat16', 'float32'),
    ) as Run;
    const allowed = 2 * distance(wanted(exact.values), wanted(run.values));
    assert.ok(
      distance(sampled, wanted(run.values)) <= allowed,
      `parameters: norm above ${allowed}`,
    );
  }
  const sums = stack(params.map((p) => p.abs().sum()));
  const most = Math.max(...params.map((p) => p.numel()));
  const summed = { ...tolerance, atol: tolerance.atol * most };
  await assertValues(sums, wanted(run.sums), summed, 'sums');
}

describe('data parallel training', () => {
  withFixture<Setting | Run>('data-parallel', (fixture) => {
    for (const run of fixture.cases.slice(1) as Run[])
      it(
        `has PyTorch's results: ${run.name} ranks`,
        withRanks(run.world, (rank) => checkRun(fixture, run, rank)),
      );
  });
});
