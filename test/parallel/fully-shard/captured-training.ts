/** Training by captured whole steps of a sharded model, beside the uncompiled steps. */
import assert from 'node:assert/strict';
import { type CapturedStep, captureStep } from '../../../lib/compile/index.js';
import { CommDebugMode } from '../../../lib/distributed.js';
import { manualSeed, type nn, optim, randn, type Tensor } from '../../../lib/index.js';
import { modelOf } from './compiled-training.js';
import type { Sharded, Variant } from './compiled-variants.js';

export type Step = (x: Tensor) => Tensor;

export const STEPS = 4;

/** A model with its optimizer, and steps of it, which run it by `run`. */
export function trainingOf<M extends nn.AnyModule>(model: M, run: Step) {
  const optimizer = new optim.AdamW(model.parameters(), { lr: 0.05, capturable: true });
  const accumulate: Step = (x) => {
    const loss = run(x).square().mean();
    loss.backward();
    return loss.detach();
  };
  const step: Step = (x) => {
    const loss = accumulate(x);
    optimizer.step();
    optimizer.zeroGrad();
    return loss;
  };
  return { model, optimizer, accumulate, step };
}

export type Training<M extends nn.AnyModule = nn.AnyModule> = ReturnType<typeof trainingOf<M>>;

export function training(variant: Variant = {}): Training<Sharded> {
  const { model } = modelOf(variant, null);
  return trainingOf(model, (x) => model(x));
}

export const batch = (i: number): Tensor => {
  manualSeed(10 + i);
  return randn([5, 4]);
};

const read = async (t: Tensor): Promise<number[]> =>
  Array.from(await (t.sharding?.local ?? t).detach().contiguous().read(), Number);

/** Shards, gradients and the state of the optimizer. */
async function stateOf({ model, optimizer }: Training): Promise<unknown> {
  const seen: unknown[] = [];
  for (const [name, p] of model.namedParameters()) {
    const state = Object.entries(optimizer.state.get(p) ?? {});
    const values = await Promise.all(
      state.map(async ([key, value]) => [key, await read(value as Tensor)]),
    );
    seen.push([name, await read(p), p.grad && (await read(p.grad)), values]);
  }
  return seen;
}

/** The results and the collectives of a call. */
async function seenOf(run: () => Tensor): Promise<unknown> {
  const mode = new CommDebugMode();
  const loss = mode.run(run);
  return [await read(loss), mode.events.map((e) => `${e.kind} ${e.bytes} ${e.group}`)];
}

type Captured = CapturedStep<[x: Tensor], Tensor>;

/** Takes the same steps by both, and compares what a rank sees of each. */
export async function assertAlike<T extends Training>(
  eager: T,
  other: T,
  takes: (training: T, step: number) => Step,
  { steps = STEPS, batchOf = batch } = {},
): Promise<void> {
  for (let i = 0; i < steps; i++) {
    const expected = await seenOf(() => takes(eager, i)(batchOf(i)));
    const found = await seenOf(() => takes(other, i)(batchOf(i)));
    assert.deepEqual(found, expected, `step ${i}`);
    assert.deepEqual(await stateOf(other), await stateOf(eager), `after step ${i}`);
  }
}

/** The step itself for `eager`; for others a graph of it, captured at the first call. */
export function capturing(eager: Training): (training: Training, step: Step) => Step {
  const captures = new Map<Step, Captured>();
  return (training, step) => {
    if (training === eager) return step;
    return (x) => {
      const captured = captures.get(step) ?? captureStep(step, [x]);
      captures.set(step, captured);
      return captured.run(x);
    };
  };
}
