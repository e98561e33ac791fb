import {
  DistributedDataParallel,
  type DistributedDataParallelOptions,
  fp16CompressHook,
  getRank,
} from '../../../lib/distributed.js';
import { nn, noGrad, ones, type Tensor, zeros } from '../../../lib/index.js';
import { Model, type Use } from '../compiled-model.js';
import type { Parallel, TrainingVariant } from '../compiled-training.js';

/** Buffers that differ from rank to rank: forward changes one, multiplies by one, and leaves one. */
class Buffered extends nn.Module<[x: Tensor], Tensor> {
  inner: Model;
  constructor(inner: Model) {
    super();
    this.inner = inner;
    this.registerBuffer('mean', zeros([3]));
    this.registerBuffer('scale', ones([3]).mul(getRank() + 1));
    this.registerBuffer('unused', ones([2]).mul(getRank()));
  }
  forward(x: Tensor): Tensor {
    const y = (this.inner as unknown as (x: Tensor) => Tensor)(x);
    const mean = this.getBuffer('mean');
    if (this.training) noGrad(() => mean.mul_(0.5).add_(y.detach().sum(0)));
    return y.sub(mean.clone()).mul(this.getBuffer('scale'));
  }
}

export type Replicated = DistributedDataParallel<[x: Tensor], Tensor>;

export interface Variant extends TrainingVariant<Replicated> {
  readonly options?: DistributedDataParallelOptions;
  readonly use?: Use;
  readonly width?: number;
  readonly hasBuffers?: boolean;
  /** Called before the model is wrapped, and after it. */
  readonly prepare?: (model: Model) => void;
  readonly after?: (model: Replicated) => void;
}

/** The model below the wrappers. */
export const modelIn = ({ module }: Replicated): Model =>
  module instanceof Buffered ? module.inner : (module as unknown as Model);

/** All passes but the last of a step accumulate. */
const accumulates =
  (passes: number): Variant['around'] =>
  (model, _, pass, run) => {
    if (pass === passes - 1) run();
    else model.noSync(run);
  };

/** Several buckets for a small model. */
const small = { bucketCapMb: 0.0002 } as const;

const leavesBlockOut = (model: Replicated, step: number): void => {
  modelIn(model).isWhole = step % 2 === 0;
};

export const VARIANTS: Readonly<Record<string, Variant>> = {
  'default options': {},
  'a first step that is not compiled': { isEager: (step) => step === 0 },
  'every other step compiled': { isEager: (step) => step % 2 === 1, options: small },
  'a function that calls it': { compiles: 'function' },
  'model.compile()': { compiles: 'in place' },
  'several buckets': { options: small },
  'three ranks': { ranks: 3, options: small },
  'gradientAsBucketView: false': { options: { ...small, gradientAsBucketView: false } },
  'a compressing hook': {
    options: small,
    after: (model) => model.registerCommHook(null, fp16CompressHook),
  },
  'blocks that run twice': { options: small, use: (block, x) => block(block(x)) },
  'evaluation in between': { evaluates: true, options: small, frames: [2, 1] },
  'batches of several sizes': { rows: (step) => 3 + 2 * step, frames: [2, 4] },

  buffers: { hasBuffers: true },
  'buffers that are not copied': { hasBuffers: true, options: { broadcastBuffers: false } },
  'buffers in passes without a reduction': {
    hasBuffers: true,
    passes: 3,
    around: accumulates(3),
    frames: [3, 3], // behind a pass that reduces, behind one that does not, and one that reduces
  },
  'buffers and evaluation in between': { hasBuffers: true, evaluates: true, frames: [3, 2] },

  'passes without a reduction': {
    options: small,
    passes: 3,
    around: accumulates(3),
    frames: [2, 3],
  },
  'passes without a reduction, after a step with one pass': {
    passes: 2,
    around: (model, step, pass, run) => {
      if (step === 0 || pass === 1) run();
      else model.noSync(run);
    },
    frames: [2, 4],
  },
  'a step without a reduction between others': {
    around: (model, step, _, run) => {
      if (step === 1) model.noSync(run);
      else run();
    },
    frames: [2, 3],
  },
  'passes that reduce each': { options: small, passes: 2, frames: [1, 2] },
  'passes without a reduction and copied gradients': {
    options: { ...small, gradientAsBucketView: false },
    passes: 2,
    around: accumulates(2),
    frames: [2, 2],
  },

  'parameters that are unused in some steps': {
    options: { ...small, findUnusedParameters: true },
    before: leavesBlockOut,
    frames: [2, 2],
  },
  'parameters that some ranks leave out': {
    options: { ...small, findUnusedParameters: true },
    before: (model, step) => {
      modelIn(model).isWhole = (step + getRank()) % 2 === 0;
    },
    frames: [2, 2],
  },
  'unused parameters and passes that reduce each': {
    options: { ...small, findUnusedParameters: true },
    before: leavesBlockOut,
    passes: 2,
    frames: [2, 4],
  },
  'a static graph': { options: { ...small, staticGraph: true } },
  'a static graph with unused parameters': {
    options: { ...small, staticGraph: true },
    prepare: (model) => {
      model.isWhole = false;
    },
    frames: [1, 2], // the first step decides the order of buckets
  },
  'a static graph and a first step that is not compiled': {
    options: { ...small, staticGraph: true },
    prepare: (model) => {
      model.isWhole = false;
    },
    isEager: (step) => step === 0,
  },

  'frozen parameters': {
    options: small,
    prepare: (model) => {
      for (const p of model.blocks.at(1)?.parameters() ?? []) p.requiresGrad_(false);
    },
  },
  'parameters that are frozen after two steps': {
    options: small,
    before: (model, step) => {
      if (step === 2)
        for (const p of modelIn(model).blocks.at(1)?.parameters() ?? []) p.requiresGrad_(false);
    },
    frames: [2, 2],
  },
  'parameters that hooks change in backward': {
    after: (model) => {
      for (const p of model.parameters())
        p.registerPostAccumulateGradHook((t) => {
          noGrad(() => t.sub_((t.grad as Tensor).mul(0.05)));
        });
    },
  },

  'an error of forward at the capture': { fails: { 0: 'JavaScript' } },
  'an error of forward at a recapture': { fails: { 1: 'JavaScript' } },
  'an error in the middle of the first forward': { fails: { 0: 'forward' } },
  'an error in the middle of forward': { fails: { 1: 'forward' }, options: small },
  'an error in the middle of the first backward': { fails: { 0: 'backward' } },
  'an error in the middle of backward': { fails: { 1: 'backward' }, options: small },
};

/** What the rank has of parameters and of buffers. */
async function valuesOf(
  model: Replicated,
  of: (p: nn.Parameter) => Tensor | null,
): Promise<Record<string, unknown>> {
  const values: Record<string, unknown> = {};
  const read = async (t: Tensor): Promise<number[]> =>
    Array.from(await t.detach().contiguous().read(), Number);
  for (const [name, parameter] of model.namedParameters()) {
    const t = of(parameter);
    values[name] = t && { strides: t.stride(), values: await read(t) };
  }
  for (const [name, buffer] of model.namedBuffers()) values[name] = await read(buffer);
  return values;
}

export const replicated: Parallel<Replicated, Variant> = {
  make({ options = {}, width = 12, use = (block, x) => block(x), hasBuffers, prepare, after }) {
    const model = new Model(width, use);
    prepare?.(model);
    const whole = hasBuffers ? new Buffered(model) : (model as unknown as nn.Module);
    const ddp = new DistributedDataParallel<[x: Tensor], Tensor>(whole as never, options);
    after?.(ddp);
    return ddp;
  },
  setThrows: (model, throws) => {
    modelIn(model).throws = throws;
  },
  valuesOf,
  check: () => {},
  movesCollectives: false,
};
