/** Hooks of original parameters run when FullyShardedDataParallel has given them their gradient. */
import assert from 'node:assert/strict';
import { FullyShardedDataParallel, ShardingStrategy } from '../../../lib/distributed.js';
import { manualSeed, type nn, type Tensor } from '../../../lib/index.js';
import { withRanks } from '../../../lib/testing/index.js';
import { batchOf, Model, shardOf, stepInHooks } from '../data-parallel/models.js';

type Net = nn.Module<[x: Tensor], Tensor>;

function modelOf(): Model {
  manualSeed(0);
  return new Model().double();
}

async function trained(model: Net, shard: (x: Tensor) => Tensor): Promise<number[]> {
  for (let step = 0; step < 4; step++) {
    model(shard(batchOf(step)))
      .square()
      .mean()
      .backward();
    assert.ok([...model.parameters()].every(({ grad }) => grad === null));
  }
  return [...(await model(batchOf(9)).reshape([-1]).read())] as number[];
}

describe('optimizers that step in hooks under FullyShardedDataParallel', () => {
  for (const shardingStrategy of Object.values(ShardingStrategy).filter(
    (strategy) => !strategy.includes('HYBRID'),
  ))
    for (const useOrigParams of [true, false])
      for (const ranks of [1, 2, 3])
        it(
          `train like one device: ${shardingStrategy}, useOrigParams: ${useOrigParams}, ranks: ` +
            `${ranks}`,
          withRanks(ranks, async (rank) => {
            const inner = modelOf();
            const options = { shardingStrategy, useOrigParams };
            const first = new FullyShardedDataParallel(inner.first, options);
            (inner as { first: unknown }).first = first;
            const model = new FullyShardedDataParallel(inner, options);
            stepInHooks(model);
            const found = await trained(model, (x) => shardOf(x, rank, ranks));
            const alone = modelOf();
            stepInHooks(alone);
            const expected = await trained(alone, (x) => x);
            found.forEach((value, i) => {
              assert.ok(Math.abs(value - (expected[i] as number)) < 1e-9, `${i}: ${value}`);
            });
          }),
        );
});
