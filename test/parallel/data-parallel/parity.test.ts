/** Replicated models train as one device does on the whole batch. Reference: PyTorch. */
import assert from 'node:assert/strict';
import {
  allreduceHook,
  checkpointWrapper,
  DistributedDataParallel,
  type DistributedDataParallelOptions,
  type GradBucket,
} from '../../../lib/distributed.js';
import { manualSeed, nn, noGrad, optim, type Tensor, tensor } from '../../../lib/index.js';
import { withRanks } from '../../../lib/testing/index.js';
import { assertSame, batchOf, Model, STEPS, shardOf, valuesOf } from './models.js';

async function trainedByOne(): Promise<number[][]> {
  manualSeed(0);
  const model = new Model().double();
  const adam = new optim.AdamW(model.parameters(), { lr: 0.01 });
  for (let step = 0; step < STEPS; step++) {
    model(batchOf(step)).square().mean().backward();
    adam.step();
    adam.zeroGrad();
  }
  return valuesOf(model);
}

async function trainedByRanks(
  rank: number,
  ranks: number,
  options: DistributedDataParallelOptions = {},
  { setToNone = true, wrap = (model: Model): Model => model } = {},
): Promise<number[][]> {
  manualSeed(rank === 0 ? 0 : 100 + rank); // the parameters of rank 0 count
  const ddp = new DistributedDataParallel(wrap(new Model().double()), {
    bucketCapMb: 0.0005,
    ...options,
  });
  const adam = new optim.AdamW(ddp.parameters(), { lr: 0.01 });
  for (let step = 0; step < STEPS; step++) {
    ddp(shardOf(batchOf(step), rank, ranks))
      .square()
      .mean()
      .backward();
    adam.step();
    adam.zeroGrad({ setToNone });
  }
  return valuesOf(ddp);
}

describe('DistributedDataParallel', () => {
  for (const ranks of [1, 2, 3, 4])
    it(
      `trains ${ranks} ranks as one device trains the whole batch`,
      withRanks(ranks, async (rank) => {
        assertSame(await trainedByRanks(rank, ranks), await trainedByOne());
      }),
    );

  const variants: Record<string, [DistributedDataParallelOptions, object?]> = {
    'gradients apart from buckets': [{ gradientAsBucketView: false }],
    'gradients that are set to zero': [{}, { setToNone: false }],
    'one bucket': [{ bucketCapMb: 25 }],
    findUnusedParameters: [{ findUnusedParameters: true }],
    staticGraph: [{ staticGraph: true }],
    'activation checkpoints': [
      {},
      { wrap: (m: Model) => Object.assign(m, { second: checkpointWrapper(m.second) }) },
    ],
  };

  for (const [name, [options, more]] of Object.entries(variants))
    it(
      `trains the same with ${name}`,
      withRanks(2, async (rank) => {
        assertSame(await trainedByRanks(rank, 2, options, more), await trainedByOne());
      }),
    );

  it(
    'names parameters with the prefix of the module, and has its state',
    withRanks(2, async (rank) => {
      manualSeed(rank);
      const model = new nn.Sequential(new nn.Linear(2, 2), new nn.BatchNorm1d(2));
      const ddp = new DistributedDataParallel(model);
      const names = Object.keys(model.stateDict()).map((name) => `module.${name}`);
      assert.deepEqual(Object.keys(ddp.stateDict()), names);
      const [weight] = await valuesOf(ddp);
      manualSeed(0);
      const [expected] = await valuesOf(new nn.Linear(2, 2));
      assert.deepEqual(weight, expected);
    }),
  );

  it(
    'accumulates without communication in noSync, and reduces the sum afterwards',
    withRanks(2, async (rank) => {
      for (const gradientAsBucketView of [true, false]) {
        manualSeed(0);
        const ddp = new DistributedDataParallel(new Model().double(), { gradientAsBucketView });
        let reductions = 0;
        ddp.registerCommHook(null, (group: null, bucket: GradBucket) => {
          reductions++;
          return allreduceHook(group, bucket);
        });
        const micro = (step: number): void =>
          ddp(shardOf(batchOf(step), rank, 2))
            .square()
            .mean()
            .backward();
        ddp.noSync(() => [0, 1].forEach(micro));
        assert.equal(reductions, 0);
        await ddp.noSync(async () => {
          micro(2);
          await null;
        });
        micro(3);
        assert.equal(reductions, 1);
        manualSeed(0);
        const one = new Model().double();
        for (let step = 0; step < 4; step++) one(batchOf(step)).square().mean().backward();
        const gradsOf = (model: nn.AnyModule) =>
          Promise.all(
            [...model.parameters()].map(
              async (p) => [...(await (p.grad as Tensor).contiguous().read())] as number[],
            ),
          );
        assertSame(await gradsOf(ddp), await gradsOf(one));
        micro(4); // on top of gradients that are reduced already, after buckets were rebuilt
        one(batchOf(4)).square().mean().backward();
        assertSame(await gradsOf(ddp), await gradsOf(one));
      }
    }),
  );

  it(
    'reduces several forward passes in one backward, and nothing without gradients',
    withRanks(2, async (rank) => {
      const ddp = new DistributedDataParallel(new nn.Linear(1, 1, { bias: false }));
      const x = tensor([[rank + 1]]);
      noGrad(() => ddp(x));
      ddp(x)
        .add(ddp(x.mul(2)))
        .sum()
        .backward();
      const { weight } = ddp.module as nn.Linear;
      assert.equal((await (weight.grad as Tensor).read())[0], 4.5);
    }),
  );
});
