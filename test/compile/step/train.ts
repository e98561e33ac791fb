/** Train steps that run eagerly or captured, and everything that they change as plain values. */
import { captureStep } from '../../../lib/compile/index.js';
import { manualSeed, nn, optim, randn, Tensor, tensor } from '../../../lib/index.js';

type TrainStep = (x: Tensor) => unknown;

/** A training program: a model, its optimizer and the step. */
export interface Training {
  readonly model: nn.AnyModule;
  readonly optimizer: optim.Optimizer;
  readonly step: TrainStep;
  /** Called between steps, outside of the capture. */
  readonly between?: (i: number) => void;
}

/** A result as plain values. */
function plain(value: unknown): unknown {
  if (value instanceof Tensor) return value.tolist();
  if (Array.isArray(value)) return value.map(plain);
  return value !== null && typeof value === 'object' ? Object.values(value).map(plain) : value;
}

/** Parameters, buffers, gradients, versions and the state of the optimizer. */
export function stateOf({ model, optimizer }: Training): unknown {
  return {
    parameters: [...model.parameters()].map((p) => [
      p.detach().tolist(),
      p.grad?.tolist() ?? null,
      p._version,
    ]),
    buffers: [...model.buffers()].map((b) => b.tolist()),
    state: [...model.parameters()].map((p) =>
      Object.entries(optimizer.state.get(p) ?? {}).map(([name, value]) => [name, plain(value)]),
    ),
  };
}

/**
 * The results of five steps, and what they left. `wrap` gets the step with the first batch, and
 * returns what runs it.
 */
export function trained(
  make: () => Training,
  wrap: (step: TrainStep, x: Tensor) => TrainStep,
): unknown {
  manualSeed(1);
  const training = make();
  let run: TrainStep | null = null;
  const results = [0, 1, 2, 3, 4].map((i) => {
    manualSeed(10 + i);
    const x = randn([3, 4]);
    run ??= wrap(training.step, x);
    const result = plain(run(x));
    training.between?.(i);
    return result;
  });
  return { results, left: stateOf(training) };
}

/** Runs a step as it is. */
export const eager = (step: TrainStep): TrainStep => step;

/** Captures a step and runs its graph. */
export function captured(step: TrainStep, x: Tensor): TrainStep {
  const made = captureStep(step, [x]);
  return (batch) => made.run(batch);
}

/** Linear layers with a batch norm, dropout, and a weight that is used twice. */
export class Net extends nn.Module<[x: Tensor], Tensor> {
  readonly first = new nn.Linear(4, 6);
  readonly norm = new nn.BatchNorm1d(6);
  readonly drop = new nn.Dropout(0.2);
  readonly last = new nn.Linear(6, 4);

  forward(x: Tensor): Tensor {
    const y = this.last(this.drop(this.norm(this.first(x)).gelu()));
    return y.add(nn.functional.linear(x, this.first.weight).sum());
  }
}

type Optimizer = optim.Optimizer;
/** Makes an optimizer of parameters. */
export type MakeOptimizer = (params: Iterable<Tensor>) => Optimizer;
/** Makes the step of a model. */
export type MakeStep = (model: Net, optimizer: Optimizer) => (x: Tensor) => unknown;

/** Capturable optimizers. */
export const optimizers: Record<string, MakeOptimizer> = {
  SGD: (params) => new optim.SGD(params, { lr: 0.1, capturable: true }) as unknown as Optimizer,
  'SGD with momentum': (params) =>
    new optim.SGD(params, {
      lr: 0.1,
      momentum: 0.9,
      dampening: 0.5,
      capturable: true,
    }) as unknown as Optimizer,
  'Adam, fused': (params) =>
    new optim.Adam(params, {
      lr: tensor(0.1),
      capturable: true,
      fused: true,
    }) as unknown as Optimizer,
  'AdamW, foreach': (params) =>
    new optim.AdamW(params, {
      lr: 0.1,
      amsgrad: true,
      capturable: true,
      foreach: true,
    }) as unknown as Optimizer,
  'Adam in plain ops': (params) =>
    new optim.Adam(params, {
      lr: tensor(0.1),
      capturable: true,
      foreach: false,
    }) as unknown as Optimizer,
};

export const adam = optimizers['Adam, fused'] as MakeOptimizer;

/** A step that sets gradients to null at its end. */
export const ending: MakeStep = (model, optimizer) => (x) => {
  const loss = model(x).square().mean();
  loss.backward();
  optimizer.step();
  optimizer.zeroGrad();
  return { loss, x };
};

/** Makes a training of a {@link Net}. */
export const training = (makeOptimizer: MakeOptimizer, makeStep: MakeStep) =>
  function make(): Training {
    const model = new Net();
    const optimizer = makeOptimizer(model.parameters());
    return { model, optimizer, step: makeStep(model, optimizer) };
  };
