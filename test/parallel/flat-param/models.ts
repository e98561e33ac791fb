/** A model, and its training on one device and with flat parameters, for comparison. */
import assert from 'node:assert/strict';
import { type FSDPOptions, FullyShardedDataParallel } from '../../../lib/distributed.js';
import { float64, manualSeed, nn, optim, randn, type Tensor } from '../../../lib/index.js';

export class Net extends nn.Module {
  up = new nn.Linear(6, 10);
  down = new nn.Linear(10, 3);
  norm = new nn.LayerNorm(3);
  forward(x: Tensor): Tensor {
    return this.norm(this.down(this.up(x).relu()));
  }
}

export class Model extends nn.Module {
  first: nn.Module = new Net();
  second = new nn.Linear(3, 6);
  third: nn.Module = new Net();
  forward(x: Tensor): Tensor {
    return this.third(this.second(this.first(x)).relu());
  }
}

/** A model of blocks with a shared weight in the root. */
export class Tied extends nn.Module {
  embed = new nn.Linear(6, 4, { bias: false });
  block: nn.Module = new nn.Linear(4, 6);
  again = new nn.Linear(6, 4, { bias: false });
  constructor() {
    super();
    this.again.weight = this.embed.weight;
  }
  forward(x: Tensor): Tensor {
    return this.again(this.block(this.embed(x)).tanh());
  }
}

export const BATCH = 12;

/** The rows of a rank. */
export function batchOf(step: number, rank: number, ranks: number): Tensor {
  manualSeed(step + 1);
  const each = BATCH / ranks;
  return randn([BATCH, 6], { dtype: float64 }).narrow(0, rank * each, each);
}

export type Values = Map<string, number[]>;

export const valuesOf = async (named: Iterable<readonly [string, Tensor]>): Promise<Values> => {
  const values: Values = new Map();
  for (const [name, t] of named)
    values.set(name, [...((await t.detach().reshape([-1]).read()) as Iterable<number>)]);
  return values;
};

export function makeModel<M extends nn.AnyModule>(kind: new () => M): M {
  manualSeed(0);
  return new kind().double();
}

/** One step of a model. */
export function step(model: nn.AnyModule, adam: optim.Optimizer, x: Tensor): void {
  (model as nn.Module)(x).square().mean().backward();
  adam.step();
  adam.zeroGrad();
}

/** Trains the whole batch on one device. */
export async function oneDevice(
  kind: new () => nn.AnyModule,
  steps: number,
  prepare: (model: nn.AnyModule) => void = () => {},
): Promise<Values> {
  const model = makeModel(kind);
  prepare(model);
  const adam = new optim.AdamW(model.parameters(), { lr: 0.01 });
  for (let i = 0; i < steps; i++) step(model, adam, batchOf(i, 0, 1));
  return valuesOf(model.namedParameters());
}

/** Wraps the children of {@link Model} or {@link Tied} and then the model. */
export function wrap(model: nn.AnyModule, options: FSDPOptions = {}): nn.Module {
  const wrapped = (module: unknown) => new FullyShardedDataParallel(module as nn.Module, options);
  for (const name of ['first', 'third', 'block'])
    if (name in model) Object.assign(model, { [name]: wrapped((model as never)[name]) });
  return wrapped(model);
}

export function assertClose(actual: Values, expected: Values, tolerance = 1e-9): void {
  assert.deepEqual([...actual.keys()], [...expected.keys()]);
  for (const [name, values] of expected)
    values.forEach((wanted, i) => {
      const value = actual.get(name)?.[i] as number;
      assert.ok(
        Math.abs(value - wanted) <= tolerance + tolerance * Math.abs(wanted),
        `${name}[${i}]: ${value}, expected ${wanted}`,
      );
    });
}
