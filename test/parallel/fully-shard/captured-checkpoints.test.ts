/** Captured whole steps of sharded models with activation checkpoints, beside the uncompiled ones. */
import assert from 'node:assert/strict';
import { Gpt } from '../../../examples/gpt/model.js';
import { captureStep } from '../../../lib/compile/index.js';
import {
  applyActivationCheckpointing,
  checkpoint,
  createSelectiveCheckpointContexts,
  DTensor,
  fullyShard,
  MixedPrecisionPolicy,
} from '../../../lib/distributed.js';
import { int64, manualSeed, nn, randint, type Tensor } from '../../../lib/index.js';
import { withRanks } from '../../../lib/testing/index.js';
import {
  assertAlike,
  batch,
  capturing,
  type Training,
  training,
  trainingOf,
} from './captured-training.js';
import { modelOf } from './compiled-training.js';
import { freezesMiddle, type ShardOptions, VARIANTS, type Variant } from './compiled-variants.js';

type Module = nn.AnyModule & ((x: Tensor) => Tensor);

/** Takes the steps of a model by graphs, and by itself. */
async function assertCaptured(
  make: () => Training,
  before: (training: Training, step: number) => void = () => {},
  batchOf?: (step: number) => Tensor,
): Promise<void> {
  const [eager, other] = [make(), make()];
  const by = capturing(eager);
  await assertAlike(
    eager,
    other,
    (each, i) => {
      before(each, i);
      return by(each, each.step);
    },
    { batchOf },
  );
}

/** Which modules are in one checkpoint, where `modelOf` does not decide it. */
type Run = (model: Module, x: Tensor) => Tensor;

const RUNS: Readonly<Record<string, Run>> = {
  'around the model': (model, x) => checkpoint((t: Tensor) => model(t), x),
  'around the model, that runs to the end': (model, x) =>
    checkpoint((t: Tensor) => model(t), x, { earlyStop: false }),
  'around a checkpoint of the model': (model, x) =>
    checkpoint((t: Tensor) => checkpoint((u: Tensor) => model(u), t).sin(), x),
  'around the model, that keeps products': (model, x) =>
    checkpoint((t: Tensor) => model(t), x, {
      contextFn: () => createSelectiveCheckpointContexts(['matmul']),
    }),
};

/** Options that decide what is in memory between forward and backward. */
const OPTIONS: Readonly<Record<string, ShardOptions>> = {
  'reshardAfterForward: true': { reshardAfterForward: true },
  'reshardAfterForward: false': { reshardAfterForward: false },
};

/** Two checkpoints of two sharded blocks each, between layers of the root. */
class Pairs extends nn.Module {
  first = new nn.Linear(4, 8);
  blocks = new nn.ModuleList(Array.from({ length: 4 }, () => blockOf()));
  last = new nn.Linear(8, 3);
  forward(x: Tensor): Tensor {
    let y = this.first(x);
    const [a, b, c, d] = [...this.blocks] as unknown as [Module, Module, Module, Module];
    y = checkpoint((t: Tensor) => b(a(t)), y);
    return this.last(checkpoint((t: Tensor) => d(c(t)), y));
  }
}

const blockOf = (width = 8): nn.Sequential =>
  new nn.Sequential(
    new nn.Linear(width, 8),
    new nn.Tanh(),
    new nn.Dropout(0.25),
    new nn.Linear(8, 8),
  );

function pairs(options: ShardOptions): Training {
  manualSeed(1);
  const model = new Pairs();
  for (const block of model.blocks) fullyShard(block, options);
  const sharded = fullyShard(model, options) as unknown as Module;
  return trainingOf(sharded, (x) => sharded(x));
}

function gpt(options: ShardOptions): Training {
  manualSeed(1);
  const model = new Gpt({ vocabSize: 13, contextLength: 6, numLayers: 2, numHeads: 2, dModel: 8 });
  const blocks = new Set<nn.AnyModule>(model.blocks);
  applyActivationCheckpointing(model, { checkFn: (module) => blocks.has(module) });
  for (const block of model.blocks) fullyShard(block, options);
  const sharded = fullyShard(model, options) as unknown as Module;
  return trainingOf(sharded, (ids) => sharded(ids));
}

const tokens = (step: number): Tensor => {
  manualSeed(10 + step);
  return randint(0, 13, [3, 6], { dtype: int64 });
};

const hybrid = VARIANTS['replicas'] as Variant;
const MORE: Readonly<Record<string, Variant>> = {
  'mixed precision': {
    options: () => ({
      mpPolicy: new MixedPrecisionPolicy({ paramDtype: 'bfloat16', reduceDtype: 'float32' }),
    }),
  },
  replicas: hybrid,
  'reshardAfterForward: 2 of 4 ranks': VARIANTS['reshardAfterForward: 2 of 4 ranks'] as Variant,
  'explicit prefetch': VARIANTS['explicit prefetch'] as Variant,
  'a frozen group': { prepare: freezesMiddle },
  'a group that is not gathered for backward': VARIANTS[
    'setUnshardInBackward(false) of the first layer'
  ] as Variant,
  'whole parameters between steps': VARIANTS['setReshardAfterBackward(false)'] as Variant,
};

describe('a captured step of a sharded model with checkpoints', () => {
  for (const [option, options] of Object.entries(OPTIONS)) {
    const variant: Variant = { options: () => options };
    for (const checkpoints of ['wrappers', 'in forward'] as const) {
      const where = checkpoints === 'wrappers' ? 'inside of sharded blocks' : 'around them';
      it(
        `trains as the uncompiled step, ${where}, ${option}`,
        withRanks(2, () => assertCaptured(() => training({ ...variant, checkpoints }))),
      );
    }
    for (const [name, run] of Object.entries(RUNS))
      it(
        `trains as the uncompiled step, ${name}, ${option}`,
        withRanks(2, () =>
          assertCaptured(() => {
            const { model } = modelOf(variant, null);
            return trainingOf(model, (x) => run(model as unknown as Module, x));
          }),
        ),
      );
    it(
      `trains as the uncompiled step, around several sharded blocks, ${option}`,
      withRanks(2, () => assertCaptured(() => pairs(options))),
    );
    it(
      `trains a GPT as the uncompiled step, ${option}`,
      withRanks(2, () => assertCaptured(() => gpt(options), undefined, tokens)),
    );
  }

  it(
    'trains as the uncompiled step, around a model that casts what it gets and returns',
    withRanks(2, () =>
      assertCaptured(() => {
        manualSeed(1);
        const mpPolicy = new MixedPrecisionPolicy({
          paramDtype: 'bfloat16',
          outputDtype: 'float32',
        });
        const model = fullyShard(blockOf(4), { mpPolicy });
        return trainingOf(model, (x) => checkpoint((t: Tensor) => model(t).sin(), x));
      }),
    ),
  );

  it(
    'leaves the model as it was where its capture fails in a recomputation',
    withRanks(2, async () => {
      const [eager, other] = [training(), training()];
      let runs = 0;
      const use = (t: Tensor): Tensor => {
        if (runs++ % 2 === 1) throw new RangeError('failed in the second run');
        return other.model(t);
      };
      const failing = trainingOf(other.model, (x) => checkpoint(use, x).sin());
      assert.throws(() => captureStep(failing.step, [batch(0)]), /failed in the second run/);
      for (const p of other.model.parameters()) assert.ok(p instanceof DTensor);
      const by = capturing(eager);
      await assertAlike(eager, other, (each) => by(each, each.step));
    }),
  );

  for (const checkpoints of ['wrappers', 'in forward'] as const)
    for (const [name, variant] of Object.entries(MORE))
      it(
        `trains as the uncompiled step, ${checkpoints}, with ${name}`,
        withRanks(variant.ranks ?? 2, () =>
          assertCaptured(() => training({ ...variant, checkpoints })),
        ),
      );
});
