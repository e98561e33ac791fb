import {
  type FSDPOptions,
  FullyShardedDataParallel,
  initDeviceMesh,
  MixedPrecision,
} from '../../../lib/distributed.js';
import { type nn, noGrad, type Tensor } from '../../../lib/index.js';
import { Block, Model, type Use } from '../compiled-model.js';
import type { Parallel, TrainingVariant } from '../compiled-training.js';

export type Flat = FullyShardedDataParallel<[x: Tensor], Tensor>;

export interface Variant extends TrainingVariant<Flat> {
  /** Called on each rank, as a mesh is made there. */
  readonly options?: () => FSDPOptions;
  readonly use?: Use;
  /** Whether only the root is wrapped. */
  readonly isOne?: boolean;
  /** Called before the model is wrapped, and after it. */
  readonly prepare?: (model: Model) => void;
  readonly after?: (model: Flat) => void;
}

export const modelIn = (model: Flat): Model => model.module as unknown as Model;

const accumulates =
  (passes: number): Variant['around'] =>
  (model, _, pass, run) => {
    if (pass === passes - 1) run();
    else model.noSync(run);
  };

const mesh = () => initDeviceMesh('cpu', [2, 2], { meshDimNames: ['replicate', 'shard'] });
const mixed = (): FSDPOptions => ({
  mixedPrecision: new MixedPrecision({ paramDtype: 'bfloat16', reduceDtype: 'float32' }),
});
const original = (): FSDPOptions => ({ useOrigParams: true });
const freezesMiddle = (model: Model): void => {
  for (const p of model.blocks.at(1)?.parameters() ?? []) p.requiresGrad_(false);
};

export const VARIANTS: Readonly<Record<string, Variant>> = {
  FULL_SHARD: {},
  SHARD_GRAD_OP: { options: () => ({ shardingStrategy: 'SHARD_GRAD_OP' }) },
  NO_SHARD: { options: () => ({ shardingStrategy: 'NO_SHARD' }) },
  HYBRID_SHARD: {
    ranks: 4,
    options: () => ({ shardingStrategy: 'HYBRID_SHARD', deviceMesh: mesh() }),
  },
  _HYBRID_SHARD_ZERO2: {
    ranks: 4,
    options: () => ({ shardingStrategy: '_HYBRID_SHARD_ZERO2', deviceMesh: mesh() }),
  },
  'one wrapper': { isOne: true },
  'three ranks': { ranks: 3 },
  useOrigParams: { options: original },
  'useOrigParams and SHARD_GRAD_OP': {
    options: () => ({ ...original(), shardingStrategy: 'SHARD_GRAD_OP' }),
  },
  'useOrigParams and NO_SHARD': {
    options: () => ({ ...original(), shardingStrategy: 'NO_SHARD' }),
  },
  'a first step that is not compiled': { isEager: (step) => step === 0 },
  'every other step compiled': { isEager: (step) => step % 2 === 1, options: original },
  'a function that calls it': { compiles: 'function' },
  'model.compile()': { compiles: 'in place' },
  'mixed precision': { options: mixed },
  'mixed precision and useOrigParams': { options: () => ({ ...mixed(), ...original() }) },
  'gradients that stay in bfloat16': {
    options: () => ({
      mixedPrecision: new MixedPrecision({ paramDtype: 'bfloat16', keepLowPrecisionGrads: true }),
    }),
  },
  'prefetch in forward': { options: () => ({ forwardPrefetch: true }) },
  'prefetch behind backward': { options: () => ({ backwardPrefetch: 'BACKWARD_POST' }) },
  'no prefetch in backward': { options: () => ({ backwardPrefetch: null }) },
  'blocks that run twice': { use: (block, x) => block(block(x)) },
  'blocks that run in some steps': {
    before: (model, step) => {
      modelIn(model).isWhole = step % 2 === 0;
    },
    frames: [2, 2],
  },
  'evaluation in between': { evaluates: true, frames: [2, 1] },
  'batches of several sizes': { rows: (step) => 3 + 2 * step, frames: [2, 4] },

  'passes without a reduction': { passes: 3, around: accumulates(3), frames: [2, 3] },
  'passes without a reduction and useOrigParams': {
    options: original,
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
    frames: [3, 4],
  },
  'passes without a reduction over replicas': {
    ranks: 4,
    options: () => ({ shardingStrategy: 'HYBRID_SHARD', deviceMesh: mesh() }),
    passes: 2,
    around: accumulates(2),
    frames: [2, 2],
  },
  'passes that reduce each': { passes: 2, frames: [1, 2] },

  'clipped gradients': { beforeOptimizer: (model) => void model.clipGradNorm_(0.1) },
  'clipped gradients and useOrigParams': {
    options: original,
    beforeOptimizer: (model) => void model.clipGradNorm_(0.1),
  },
  'whole parameters that change between steps': {
    before: (model) => {
      FullyShardedDataParallel.summonFullParams(model, () => {
        noGrad(() => {
          for (const p of model.parameters()) p.mul_(0.9);
        });
      });
    },
  },
  'whole parameters that change between steps, and useOrigParams': {
    options: original,
    before: (model) => {
      FullyShardedDataParallel.summonFullParams(model, () => {
        noGrad(() => {
          for (const p of model.parameters()) p.mul_(0.9);
        });
      });
    },
  },
  'original parameters that get other memory between steps': {
    options: original,
    before: (model) => {
      for (const p of model.parameters()) p.data = p.detach().mul(0.9);
    },
    frames: [4, 4], // taken over before a capture, as they may have another dtype
  },
  'a state dict between steps': {
    before: (model) => {
      model.loadStateDict(model.stateDict());
    },
  },

  'frozen wrappers': { prepare: freezesMiddle },
  'parameters that are frozen, with useOrigParams': { options: original, prepare: freezesMiddle },
  'parameters that are frozen after two steps': {
    options: original,
    before: (model, step) => {
      if (step !== 2) return;
      for (const p of modelIn(model).blocks.at(1)?.parameters() ?? []) p.requiresGrad_(false);
    },
    frames: [2, 2],
  },

  'an error of forward at the capture': { fails: { 0: 'JavaScript' } },
  'an error of forward at a recapture': { fails: { 1: 'JavaScript' } },
  'an error in the middle of the first forward': { fails: { 0: 'forward' } },
  'an error in the middle of forward': { fails: { 1: 'forward' } },
  'an error in the middle of the first backward': { fails: { 0: 'backward' } },
  'an error in the middle of backward': { fails: { 1: 'backward' }, options: original },
};

async function valuesOf(
  model: Flat,
  of: (p: nn.Parameter) => Tensor | null,
): Promise<Record<string, unknown>> {
  const values: Record<string, unknown> = {};
  for (const [name, parameter] of model.namedParameters()) {
    const t = of(parameter);
    values[name] = t && {
      dtype: t.dtype.name,
      values: Array.from(await t.detach().contiguous().read(), Number),
    };
  }
  return values;
}

export const flat: Parallel<Flat, Variant> = {
  make({ options = () => ({}), use = (block, x) => block(x), isOne = false, prepare, after }) {
    const model = new Model(12, use);
    prepare?.(model);
    const made = new FullyShardedDataParallel<[x: Tensor], Tensor>(model as never, {
      ...(isOne ? {} : { autoWrapPolicy: (module) => module instanceof Block }),
      ...options(),
    });
    after?.(made);
    return made;
  },
  setThrows: (model, throws) => {
    modelIn(model).throws = throws;
  },
  valuesOf,
  check: () => {},
  movesCollectives: true,
};
