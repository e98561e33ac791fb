import {
  type FSDPModule,
  fullyShard,
  initDeviceMesh,
  MixedPrecisionPolicy,
  Shard,
} from '../../../lib/distributed.js';
import { bfloat16, noGrad, type Tensor } from '../../../lib/index.js';
import type { Block, Model, Use } from '../compiled-model.js';
import type { TrainingVariant } from '../compiled-training.js';

export type ShardOptions = NonNullable<Parameters<typeof fullyShard>[1]>;
export type Sharded = Model & FSDPModule;
type ShardedBlock = Block & FSDPModule;
export const blocksOf = (model: Sharded): ShardedBlock[] => [...model.blocks] as ShardedBlock[];

export interface Variant extends TrainingVariant<Sharded> {
  /** Called on each rank, as a mesh is made there. */
  readonly options?: () => ShardOptions;
  readonly width?: number;
  readonly use?: Use;
  /** What checkpoints the blocks. */
  readonly checkpoints?: 'wrappers' | 'in forward';
  /** Called before the model is sharded, and after it. */
  readonly prepare?: (model: Model, options: ShardOptions) => void;
  readonly after?: (model: Sharded) => void;
}

/** Sync only in the last pass of a step. */
const passesOf = (model: Sharded, pass: number, passes: number): void =>
  model.setRequiresGradientSync(pass === passes - 1);
const freeze = (block: Block | undefined): void => {
  for (const p of block?.parameters() ?? []) p.requiresGrad_(false);
};
export const freezesMiddle = (model: Model): void => freeze([...model.blocks][1]);
const twice: Use = (block, x) => block(block(x));
const hybrid = (): ShardOptions => ({
  mesh: initDeviceMesh('cpu', [2, 2], { meshDimNames: ['replicate', 'shard'] }),
});
const mixed = (): ShardOptions => ({
  mpPolicy: new MixedPrecisionPolicy({ paramDtype: 'bfloat16', reduceDtype: 'float32' }),
});
const prefetches = (model: Sharded): void => {
  const blocks = blocksOf(model);
  for (const [i, block] of blocks.entries()) {
    block.setModulesToForwardPrefetch(blocks.slice(i + 1, i + 3));
    block.setModulesToBackwardPrefetch(blocks.slice(Math.max(0, i - 2), i).reverse());
  }
};

export const VARIANTS: Readonly<Record<string, Variant>> = {
  'default options': {},
  'a first step that is not compiled': { isEager: (step) => step === 0 },
  'every other step compiled': { isEager: (step) => step % 2 === 1 },
  'every other step compiled, in checkpoints': {
    isEager: (step) => step % 2 === 1,
    checkpoints: 'wrappers',
  },
  'a function that calls it': { compiles: 'function' },
  'model.compile()': { compiles: 'in place' },
  'reshardAfterForward: false': { options: () => ({ reshardAfterForward: false }) },
  'reshardAfterForward: 2 of 4 ranks': { ranks: 4, options: () => ({ reshardAfterForward: 2 }) },
  'shards along other dims': {
    options: () => ({ shardPlacementFn: (p) => (p.dim() === 2 ? Shard(1) : null) }),
  },
  'large parameters': { width: 4096 },
  'mixed precision': { options: mixed },
  replicas: { ranks: 4, options: hybrid },
  'wrappers that checkpoint': { checkpoints: 'wrappers' },
  'checkpoints in forward': { checkpoints: 'in forward' },
  'blocks that run twice': { use: twice },
  'a group that runs in some steps': {
    before: (model, step) => {
      model.isWhole = step % 2 === 0;
    },
    frames: [2, 2],
  },
  'explicit prefetch': { after: prefetches },
  'prefetch from the second step on': {
    before: (model, step) => {
      if (step === 1) prefetches(model);
    },
    frames: [2, 2],
  },
  'evaluation in between': { evaluates: true, frames: [2, 1] },
  'batches of several sizes': { rows: (step) => 3 + 2 * step, frames: [2, 4] },

  'passes without a reduction': {
    passes: 3,
    before: (model, _, pass) => passesOf(model, pass, 3),
    frames: [2, 2],
  },
  'passes without a reduction, after a step with one pass': {
    passes: 2,
    before: (model, step, pass) => model.setRequiresGradientSync(step === 0 || pass === 1),
    frames: [3, 4], // a pass that reduces alone, one before it, and one behind that
  },
  'passes that reduce each': { passes: 2, frames: [1, 2] },
  'passes without a reduction of one block': {
    passes: 2,
    before: (model, _, pass) => blocksOf(model)[1]?.setRequiresGradientSync(pass === 1),
    frames: [2, 2],
  },
  'passes without a reduction over replicas': {
    ranks: 4,
    options: hybrid,
    passes: 2,
    before: (model, _, pass) => model.setRequiresAllReduce(pass === 1),
    frames: [2, 2],
  },
  'passes of which one is the last': {
    passes: 2,
    before: (model, _, pass) => model.setIsLastBackward(pass === 1),
    frames: [1, 2],
  },
  'accumulation with mixed precision and checkpoints': {
    options: mixed,
    checkpoints: 'wrappers',
    passes: 2,
    before: (model, _, pass) => passesOf(model, pass, 2),
    frames: [2, 2],
  },

  'setReshardAfterForward between steps': {
    before: (model, step) => model.setReshardAfterForward(step !== 1),
    frames: [2, 2],
  },
  'setReshardAfterBackward(false)': { after: (model) => model.setReshardAfterBackward(false) },
  'setUnshardInBackward(false) of the first layer': {
    prepare: (model, options) => void fullyShard(model.first, options).setUnshardInBackward(false),
  },
  'a block that is gathered before forward': {
    before: (model, step) => {
      if (step > 0) blocksOf(model)[1]?.unshard({ asyncOp: true }); // the root runs first
    },
  },
  'parameters of two dtypes': {
    prepare: (model) => {
      for (const { scale } of model.blocks) scale.data = scale.data.to(bfloat16);
    },
  },
  'two layers as one group': {
    prepare: (model, options) => void fullyShard([model.first, model.last], options),
  },
  'two layers as one group, mixed precision and every other step compiled': {
    options: mixed,
    isEager: (step) => step % 2 === 1,
    prepare: (model, options) => void fullyShard([model.first, model.last], options),
  },
  'two layers as one group that keeps rows': {
    ranks: 4,
    options: () => ({ reshardAfterForward: 2 }),
    prepare: (model, options) => void fullyShard([model.first, model.last], options),
  },
  'two frozen layers as one group': {
    prepare: (model, options) => {
      for (const layer of fullyShard([model.first, model.last], options))
        for (const p of layer.parameters()) p.requiresGrad_(false);
    },
  },
  'parameters that hooks change in backward': {
    after: (model) => {
      for (const p of model.parameters())
        p.registerPostAccumulateGradHook((t) => {
          noGrad(() => t.sub_((t.grad as Tensor).mul(0.05)));
          t.grad = null;
        });
    },
  },
  'parameters that are read between steps': {
    before: (model) => {
      model.unshard();
      model.reshard();
    },
  },

  'a frozen group': { prepare: freezesMiddle },
  'a frozen group that runs twice': { prepare: freezesMiddle, use: twice },
  'a frozen group in a checkpoint': { prepare: freezesMiddle, checkpoints: 'in forward' },
  'frozen groups at the start': {
    prepare: (model) => {
      for (const p of model.parameters()) p.requiresGrad_(false);
      for (const p of [...model.blocks][2]?.parameters() ?? []) p.requiresGrad_(true);
    },
  },
  'a group that is frozen after two steps': {
    before: (model, step) => {
      if (step === 2) freezesMiddle(model);
    },
    frames: [2, 2],
  },

  'an error of forward at the capture': { fails: { 0: 'JavaScript' } },
  'an error of forward at a recapture': { fails: { 1: 'JavaScript' } },
  'an error in the middle of the first forward': { fails: { 0: 'forward' } },
  'an error in the middle of forward': { fails: { 1: 'forward' } },
  'an error in the middle of the first backward': { fails: { 0: 'backward' } },
  'an error in the middle of backward': { fails: { 1: 'backward' } },
  'errors in passes without a reduction': {
    passes: 2,
    before: (model, _, pass) => passesOf(model, pass, 2),
    fails: { 1: 'backward', 2: 'forward' },
    frames: [2, 2],
  },
  'errors in a frozen group': {
    prepare: freezesMiddle,
    fails: { 1: 'backward', 2: 'forward' },
  },
};
