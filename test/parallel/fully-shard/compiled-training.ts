/** Training of a sharded model, compiled or not, and what a rank sees of it. */
import assert from 'node:assert/strict';
import {
  applyActivationCheckpointing,
  CollectiveError,
  checkpoint,
  DTensor,
  fullyShard,
  getRank,
  launch,
} from '../../../lib/distributed.js';
import { manualSeed, type nn, noGrad, randn, type Tensor } from '../../../lib/index.js';
import { Model } from '../compiled-model.js';
import {
  assertTrainsAsUncompiled,
  type Compiled,
  callsOf,
  type Parallel,
  train,
} from '../compiled-training.js';
import { blocksOf, freezesMiddle, type Sharded, type Variant } from './compiled-variants.js';

function shardedModel(variant: Variant): Sharded {
  const { options = () => ({}), width = 12, use = (block, x) => block(x), checkpoints } = variant;
  const model = new Model(width, checkpoints === 'in forward' ? checkpoint : use);
  const given = options();
  variant.prepare?.(model, given);
  const blocks = new Set<nn.AnyModule>(model.blocks);
  if (checkpoints === 'wrappers')
    applyActivationCheckpointing(model, { checkFn: (module) => blocks.has(module) });
  for (const block of model.blocks) fullyShard(block, given);
  const sharded = fullyShard(model, given) as Sharded;
  variant.after?.(sharded);
  return sharded;
}

/** A model, and what calls it and its backward. */
export function modelOf(variant: Variant, compiled: Compiled | null) {
  manualSeed(1);
  return callsOf(shardedModel(variant), variant, compiled);
}

type Made = ReturnType<typeof modelOf>;

/** The shards of this rank by name, with their placements. */
async function valuesOf(
  model: Sharded,
  of: (p: nn.Parameter) => Tensor | null,
): Promise<Record<string, unknown>> {
  const values: Record<string, unknown> = {};
  for (const [name, parameter] of model.namedParameters()) {
    const t = of(parameter);
    assert.ok(t === null || t instanceof DTensor, name);
    values[name] = t && {
      placements: t.placements.map(String),
      values: Array.from(await t.toLocal().detach().contiguous().read(), Number),
    };
  }
  return values;
}

const sharded: Parallel<Sharded, Variant> = {
  make: shardedModel,
  setThrows: (model, throws) => {
    model.throws = throws;
  },
  valuesOf,
  check: (model) => {
    for (const [name, p] of model.namedParameters()) assert.ok(p instanceof DTensor, name);
  },
  movesCollectives: true,
};

/** Trains both on this rank. A difference names its step and what differs. */
export const assertAsUncompiled = (variant: Variant, compiled: Compiled): Promise<void> =>
  assertTrainsAsUncompiled(
    sharded,
    { ...variant, needsEngine: variant.checkpoints !== undefined },
    compiled,
  );

/** The memory of the whole parameters of the blocks, and of the root. */
export function wholeMemory({ model, uncompiled }: Made): { blocks: Size[]; root: Size[] } {
  const blocks = new Set<Size>();
  const root = new Set<Size>();
  const watch = (layer: nn.Linear, into: Set<Size>): { remove(): void } =>
    layer.registerForwardPreHook((each) => {
      into.add((each as nn.Linear).weight.untypedStorage());
    });
  const handles = [
    ...blocksOf(model).flatMap(({ up, down }) => [watch(up, blocks), watch(down, blocks)]),
    ...[model.first, model.last].map((layer) => watch(layer, root)),
  ];
  noGrad(() => uncompiled(randn([5, 4])));
  for (const handle of handles) handle.remove();
  return { blocks: [...blocks], root: [...root] };
}

export type Size = { size(): number };

/** What rank 1 alone does, and what the error names: the first call in which the ranks differ. */
export const DIFFERENCES: Readonly<
  Record<string, [change: (model: Sharded) => void, pattern: RegExp]>
> = {
  'only accumulates': [(model) => model.setRequiresGradientSync(false), /reduceScatter/],
  'freezes a block': [freezesMiddle, /allGather.*blocks\.1/s],
  'leaves a block out': [
    (model) => {
      model.isWhole = false;
    },
    /allGather.*blocks\.[12]/s,
  ],
};

/** The error of a rank: not that of one that waited until its timeout. */
export async function errorOf(
  change: (model: Sharded) => void,
  compiled: Compiled | null,
): Promise<CollectiveError> {
  const after = (model: Sharded): void => {
    if (getRank() === 1) change(model);
  };
  const failed = launch(2, () => train(sharded, { after }, compiled).then(() => null), {
    backend: 'shm',
    timeoutMs: 5_000,
  });
  const error = await failed.then(
    () => assert.fail('expected an error'),
    (thrown: Error) => (thrown.cause ?? thrown) as Error,
  );
  assert.ok(error instanceof CollectiveError, String(error));
  return error;
}
