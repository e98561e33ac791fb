/** Ranks that call equal layers in another order after the first pass get an error, not weights. */
import assert from 'node:assert/strict';
import { FullyShardedDataParallel, fullyShard, getRank, launch } from '../../../lib/distributed.js';
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

describe('ranks that call equal layers in another order', () => {
  for (const [name, shard] of Object.entries(SHARD)) {
    it(`are told in a later forward: ${name}`, async () => {
      const run = launch(2, async () => {
        manualSeed(3);
        const m = new Layers();
        const model = shard(m);
        for (let pass = 0; pass < 3; pass++) {
          if (getRank() === 0 && pass === 2) m.order = [0, 2, 1];
          await model(eye(4)).sum().read();
        }
      });
      await assert.rejects(run, told);
    });

    it(`are told if a rank calls a layer twice in place of another: ${name}`, async () => {
      const run = launch(2, async () => {
        manualSeed(3);
        const m = new Layers();
        const model = shard(m);
        for (let pass = 0; pass < 3; pass++) {
          if (getRank() === 0 && pass === 2) m.order = [0, 1, 1];
          const loss = model(ones([2, 4]))
            .square()
            .mean();
          loss.backward();
          await loss.read();
        }
      });
      await assert.rejects(run, told);
    });
  }
});
