/** A small model, its training on one device, and comparisons, for tests of data parallelism. */
import assert from 'node:assert/strict';
import { DTensor, fullyShard } from '../../../lib/distributed.js';
import {
  type DType,
  float64,
  manualSeed,
  nn,
  optim,
  randn,
  type Tensor,
} from '../../../lib/index.js';

/** Two layers and a norm; sizes that no number of ranks divides. */
export class Net extends nn.Module {
  up = new nn.Linear(6, 10);
  down = new nn.Linear(10, 3);
  norm = new nn.LayerNorm(3);
  forward(x: Tensor): Tensor {
    return this.norm(this.down(this.up(x).relu()));
  }
}

export class Model extends nn.Module {
  first = new Net();
  second = new nn.Linear(3, 6);
  third = new Net();
  forward(x: Tensor): Tensor {
    return this.third(this.second(this.first(x)).relu());
  }
}

type Options = Parameters<typeof fullyShard>[1];

/** Shards the blocks and the root. */
export function sharded<M extends Model>(model: M, options: Options = {}) {
  const first = fullyShard(model.first, options);
  const third = fullyShard(model.third, options);
  return Object.assign(fullyShard(model, options), { first, third });
}

/** Whether the module holds its shards. */
export const isSharded = (model: nn.AnyModule): boolean =>
  [...model.parameters()].every((p) => p instanceof DTensor);

export const BATCH = 12;
export const STEPS = 10;

export function newModel(dtype: DType = float64): Model {
  manualSeed(0);
  return new Model().to(dtype);
}

/** The batch of a step, the same on every rank. */
export function batchOf(step: number, dtype: DType = float64): Tensor {
  manualSeed(step + 1);
  return randn([BATCH, 6], { dtype });
}

/** This rank's part of the batch. */
export function partOf(batch: Tensor, rank: number, ranks: number): Tensor {
  return batch.narrow(0, (rank * BATCH) / ranks, BATCH / ranks);
}

export const lossOf = (model: nn.AnyModule, x: Tensor): Tensor =>
  (model as unknown as (x: Tensor) => Tensor)(x).square().mean();

export const adamOf = (model: nn.AnyModule): optim.AdamW =>
  new optim.AdamW(model.parameters(), { lr: 0.01 });

export type Values = Map<string, number[]>;

/** The whole parameters by name. All ranks call it. */
export async function valuesOf(model: nn.AnyModule): Promise<Values> {
  const values: Values = new Map();
  for (const [name, p] of model.namedParameters()) {
    const whole = p.detach() instanceof DTensor ? p.detach().fullTensor() : p.detach();
    values.set(name, [...(await whole.reshape([-1]).read())].map(Number));
  }
  return values;
}

/** Trains on one device and returns the parameters. */
export async function trainedAlone(
  steps = STEPS,
  model: nn.AnyModule = newModel(),
): Promise<Values> {
  const adam = adamOf(model);
  for (let step = 0; step < steps; step++) {
    lossOf(model, batchOf(step)).backward();
    adam.step();
    adam.zeroGrad();
  }
  return valuesOf(model);
}

/** Trains a sharded model, each rank on its part of the batch. */
export async function trained(
  model: nn.AnyModule,
  rank: number,
  ranks: number,
  steps = STEPS,
): Promise<Values> {
  const adam = adamOf(model);
  for (let step = 0; step < steps; step++) trainStep(model, adam, step, rank, ranks);
  return valuesOf(model);
}

export function trainStep(
  model: nn.AnyModule,
  adam: optim.AdamW,
  step: number,
  rank: number,
  ranks: number,
): void {
  lossOf(model, partOf(batchOf(step), rank, ranks)).backward();
  adam.step();
  adam.zeroGrad();
}

export function assertClose(actual: Values, expected: Values, tolerance = 1e-9): void {
  assert.deepEqual([...actual.keys()], [...expected.keys()]);
  for (const [name, values] of actual) {
    const wanted = expected.get(name) as number[];
    assert.equal(values.length, wanted.length, name);
    values.forEach((value, i) => {
      const limit = tolerance * (1 + Math.abs(wanted[i] as number));
      assert.ok(
        Math.abs(value - (wanted[i] as number)) <= limit,
        `${name}[${i}]: ${value}, expected ${wanted[i]}`,
      );
    });
  }
}
