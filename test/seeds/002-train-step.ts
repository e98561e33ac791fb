/** The model, the optimizers and the comparison with DDP of the cases of compiled train steps. */
import assert from 'node:assert/strict';
import { DistributedDataParallel } from '../../lib/distributed.js';
import {
  type DType,
  float32,
  manualSeed,
  nn,
  noGrad,
  optim,
  randn,
  scope,
  stack,
  type Tensor,
  withDevice,
} from '../../lib/index.js';
import { compile, type SpmdOptions, type SpmdStep } from '../../lib/spmd/index.js';

type Model = nn.Module<[x: Tensor], Tensor>;
type Step = (model: Model, optimizer: optim.Adam, batch: Tensor) => void;

export interface StepCase {
  readonly layers: number;
  readonly dim: number;
  readonly batchSize: number;
  readonly fused?: boolean;
  readonly iterations?: number;
  readonly world?: number;
  readonly device?: 'cpu' | 'cuda';
  /** The parameters that are one iteration behind DDP, until the last one; by default none. */
  readonly lags?: (name: string) => boolean;
  /** Whether all ranks have equal batches; by default they are of other sizes on each. */
  readonly sameBatches?: boolean;
  /**
   * The dtype of all values; float32 by default. Adam divides gradients by their size, so a gradient
   * near 0 moves its parameter by as much of the learning rate, 0.01, as its rounding is of it:
   * models with many parameters have such gradients, and need float64, or batches whose sums are
   * rounded alike.
   */
  readonly dtype?: DType;
}

/** The difference that elements may have, beside 1.3e-6 of their size. */
const TOLERANCE = 1e-5;

function modelOf(layers: number, dim: number): Model {
  manualSeed(0);
  const modules: nn.Module[] = [];
  for (let i = 0; i < layers; i++) modules.push(new nn.Linear(dim, dim), new nn.ReLU());
  return new nn.Sequential(...(modules as never[])) as unknown as Model;
}

const trainStep: Step = (model, optimizer, batch) => {
  model(batch).sum().backward();
  optimizer.step();
  optimizer.zeroGrad();
};

/**
 * Trains by the compiled step and by DDP, whose averaged gradients are multiplied by the number of
 * ranks, from the same state; compares parameters and optimizer state after each iteration.
 */
export async function assertTrainsAsDdp(
  rank: number,
  options: SpmdOptions,
  { layers, dim, batchSize, ...more }: StepCase,
): Promise<SpmdStep<[Model, optim.Adam, Tensor], void>> {
  const {
    fused = false,
    iterations = 5,
    world = 2,
    device = 'cpu',
    lags = () => false,
    dtype = float32,
    sameBatches = false,
  } = more;
  const newModel = (): Model => withDevice(device, () => modelOf(layers, dim)).to(dtype);
  const model = newModel();
  const ddp = new DistributedDataParallel(newModel() as never) as unknown as Model;
  const batchOf = (): Tensor => randn([batchSize, dim], { device, dtype });
  const adam = (m: Model): optim.Adam =>
    new optim.Adam(m.parameters(), { lr: 0.01, capturable: true, fused, foreach: !fused });
  const [optimizer, ddpOptimizer] = [adam(model), adam(ddp)];
  const ddpStep: Step = (m, o, batch) => {
    m(batch).sum().backward();
    noGrad(() => {
      for (const p of m.parameters()) p.grad?.mul_(world);
    });
    o.step();
    o.zeroGrad();
  };
  // Optimizer state exists before the step is captured.
  const first = batchOf();
  trainStep(model, optimizer, first);
  trainStep(ddp, ddpOptimizer, first);
  const step = compile(options)(trainStep);
  let before = stateOf(ddp, ddpOptimizer).map(copied);
  for (let i = 0; i < iterations; i++) {
    const batch = batchOf().mul(sameBatches ? 1 : rank + 1);
    if (i < iterations - 1) step(model, optimizer, batch);
    else step(model, optimizer, batch, { lastTrainStep: true });
    ddpStep(ddp, ddpOptimizer, batch);
    const found = stateOf(model, optimizer);
    const wanted = stateOf(ddp, ddpOptimizer);
    const isLate = (k: number): boolean => lags((found[k] as State).name);
    const isLast = i === iterations - 1;
    const expected = wanted.map((state, k) =>
      isLate(k) && !isLast ? (before[k] as State) : state,
    );
    await assertSame(found, expected, `step ${i}`);
    before = wanted.map((state, k) => (isLate(k) ? copied(state) : state));
  }
  for (const p of model.parameters()) assert.equal(p.grad, null);
  return step;
}

/** A parameter, or a tensor of its optimizer state. */
interface State {
  /** The name of the parameter. */
  readonly name: string;
  readonly what: string;
  readonly values: Tensor;
}

/** Parameters and optimizer state. */
const stateOf = (model: Model, optimizer: optim.Adam): State[] =>
  [...model.namedParameters()].flatMap(([name, p]) =>
    Object.entries({ value: p, ...optimizer.state.get(p) }).map(([what, t]) => ({
      name,
      what,
      values: (t as Tensor).detach(),
    })),
  );

const copied = (state: State): State => ({ ...state, values: state.values.clone() });

/** Compares where the values are; wide models have too many of them to be read. */
async function assertSame(
  found: readonly State[],
  expected: readonly State[],
  when: string,
): Promise<void> {
  assert.equal(found.length, expected.length);
  const excess = scope(() =>
    stack(found.map(({ values }, i) => excessOf(values, (expected[i] as State).values))),
  );
  for (const [i, most] of [...(await excess.read())].entries()) {
    if (Number(most) <= 0) continue;
    const { name, what } = found[i] as State;
    assert.fail(`${when}: ${what} of ${name} differs by ${most} too much from that of DDP`);
  }
}

/** By how much the largest difference is larger than it may be; NaN for differences of NaN. */
function excessOf(seen: Tensor, wanted: Tensor): Tensor {
  assert.deepEqual(seen.shape, wanted.shape);
  const room = wanted.abs().mul(1.3e-6).add(TOLERANCE);
  return seen.sub(wanted).abs().sub(room).amax().double();
}
