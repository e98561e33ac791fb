/** Ranks that call equal layers in another order after the first pass get an error, not weights. */
import assert from 'node:assert/strict';
import {
  DistributedDataParallel,
  FullyShardedDataParallel,
  fullyShard,
  getRank,
  launch,
} from '../../../lib/distributed.js';
import { eye, manualSeed, nn, ones, type Tensor } from '../../../lib/index.js';

/** Layers of one shape, called in an order that the program chooses. */
class Layers extends nn.Module<[Tensor], Tensor> {
  readonly layers = new nn.ModuleList(
    Array.from({ length: 3 }, () => new nn.Linear(4, 4, { bias: false })),
  );
  order = [0, 1, 2];

  override forward(x: Tensor): Tensor {
    const layers = [...this.layers] as nn.Linear[];
    return this.order.reduce((y, i) => (layers[i] as nn.Linear)(y), x);
  }
}

const SHARD: Record<string, (m: Layers) => (x: Tensor) => Tensor> = {
  fullyShard: (m) => {
    for (const layer of m.layers) fullyShard(layer);
    return fullyShard(m);
  },
  FullyShardedDataParallel: (m) =>
    new FullyShardedDataParallel(m, {
      autoWrapPolicy: (module) => module instanceof nn.Linear,
    }) as unknown as (x: Tensor) => Tensor,
};

const told = /of the parameters of "[^"]*layers\.[12]"[\s\S]*same order on all ranks/;

/** Three passes of `step`, in the last of which rank 0 calls the layers in another order. */
async function assertTold(
  shard: (m: Layers) => (x: Tensor) => Tensor,
  order: number[],
  step: (model: (x: Tensor) => Tensor) => Tensor,
): Promise<void> {
  const run = launch(2, async () => {
    manualSeed(3);
    const m = new Layers();
    const model = shard(m);
    for (let pass = 0; pass < 3; pass++) {
      if (getRank() === 0 && pass === 2) m.order = order;
      await step(model).read();
    }
  });
  await assert.rejects(run, told);
}

describe('ranks that call equal layers in another order', () => {
  for (const [name, shard] of Object.entries(SHARD)) {
    it(`are told in a later forward: ${name}`, () =>
      assertTold(shard, [0, 2, 1], (model) => model(eye(4)).sum()));

    it(`are told if a rank calls a layer twice in place of another: ${name}`, () =>
      assertTold(shard, [0, 1, 1], (model) => {
        const loss = model(ones([2, 4]))
          .square()
          .mean();
        loss.backward();
        return loss;
      }));
  }
});

describe('ranks that use two models of one kind in another order', () => {
  type Model = (x: Tensor) => Tensor;
  const MODELS: Record<string, () => Model> = {
    DistributedDataParallel: () =>
      new DistributedDataParallel(new nn.Linear(2, 2)) as unknown as Model,
    fullyShard: () => fullyShard(new nn.Linear(2, 2)) as unknown as Model,
    FullyShardedDataParallel: () =>
      new FullyShardedDataParallel(new nn.Linear(2, 2)) as unknown as Model,
  };

  for (const [name, make] of Object.entries(MODELS)) {
    it(`are told in backward: ${name}`, async () => {
      const run = launch(2, async (rank) => {
        const losses = [make(), make()].map((model) => model(ones([1, 2])).sum());
        for (const loss of rank === 0 ? losses : losses.toReversed()) loss.backward();
        await losses[0]?.read();
      });
      await assert.rejects(run, /number [12] of its group/);
    });
    if (name === 'DistributedDataParallel') continue; // its forward does not communicate
    it(`are told in a later forward: ${name}`, async () => {
      const run = launch(2, async (rank) => {
        const models = [make(), make()];
        for (const pass of [0, 1])
          for (const model of rank === 0 && pass === 1 ? models.toReversed() : models) {
            const loss = model(ones([1, 2])).sum();
            loss.backward();
            await loss.read();
          }
      });
      await assert.rejects(run, /of the parameters of the root, number [12] of its group/);
    });
  }
});
