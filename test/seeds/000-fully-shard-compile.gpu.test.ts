/** Compiled models that fullyShard shards, on GPUs: as test_fully_shard_compile.py has them. */
import { CASES, RANKS } from './000-compiled-models.js';
import { describeOnGpus } from './worlds.js';

describeOnGpus('a compiled model that fullyShard shards', (world) => {
  for (const { title, run } of CASES)
    it(title, async () => {
      const { device } = world;
      await world.onRanks(RANKS, (rank, ranks) => run({ rank, ranks, device, isProcess: false }));
    });
});
