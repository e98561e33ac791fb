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
  type Tensor,
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
  /**
   * The dtype of all values; float32 by default. Adam divides gradients by their size, so a gradient
   * near 0 moves its parameter by as much of the learning rate, 0.01, as its rounding is of it:
   * models with many parameters have such gradients, and are compared in float64.
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
  } = more;
  const model = modelOf(layers, dim).to(device).to(dtype);
  const ddp = new DistributedDataParallel(
    modelOf(layers, dim).to(device).to(dtype) as never,
  ) as unknown as Model;
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
  let before = await valuesOf(ddp, ddpOptimizer);
  for (let i = 0; i < iterations; i++) {
    const batch = batchOf().mul(rank + 1);
    if (i < iterations - 1) step(model, optimizer, batch);
    else step(model, optimizer, batch, { lastTrainStep: true });
    ddpStep(ddp, ddpOptimizer, batch);
    const found = await valuesOf(model, optimizer);
    const wanted = await valuesOf(ddp, ddpOptimizer);
    const isLast = i === iterations - 1;
    const expected = wanted.map((state, k) =>
      lags(found[k]?.name ?? '') && !isLast ? (before[k] as State) : state,
    );
    assertSame(found, expected, `step ${i}`);
    before = wanted;
  }
  for (const p of model.parameters()) assert.equal(p.grad, null);
  return step;
}

/** The values of a parameter, or of a tensor of its optimizer state. */
interface State {
  /** The name of the parameter. */
  readonly name: string;
  readonly what: string;
  readonly values: Float32Array | Float64Array;
}

/** Parameters and optimizer state. */
async function valuesOf(model: Model, optimizer: optim.Adam): Promise<State[]> {
  const found: State[] = [];
  for (const [name, p] of model.namedParameters())
    for (const [what, t] of Object.entries({ value: p, ...optimizer.state.get(p) }))
      found.push({ name, what, values: (await (t as Tensor).detach().read()) as State['values'] });
  return found;
}

function assertSame(found: readonly State[], expected: readonly State[], when: string): void {
  assert.equal(found.length, expected.length);
  found.forEach(({ name, what, values }, i) => {
    const { values: wanted } = expected[i] as State;
    assert.equal(values.length, wanted.length);
    for (let k = 0; k < values.length; k++) {
      const [seen, value] = [values[k] as number, wanted[k] as number];
      if (!(Math.abs(seen - value) <= TOLERANCE + 1.3e-6 * Math.abs(value)))
        assert.fail(
          `${when}: element ${k} of ${what} of ${name} is ${seen}, and ${value} with DDP`,
        );
    }
  });
}
