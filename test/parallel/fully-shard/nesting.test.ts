/** Kinds of data parallelism in each other are errors with the path and what to do. */
import assert from 'node:assert/strict';
import {
  DistributedDataParallel,
  FullyShardedDataParallel,
  fullyShard,
} from '../../../lib/distributed.js';
import { nn } from '../../../lib/index.js';
import { withRanks } from '../../../lib/testing/index.js';

const kinds = {
  fullyShard: (module: nn.Module) => fullyShard(module) as nn.Module,
  FullyShardedDataParallel: (module: nn.Module) => new FullyShardedDataParallel(module),
  DistributedDataParallel: (module: nn.Module) => new DistributedDataParallel(module),
};

const advice: Record<string, RegExp> = {
  'fullyShard FullyShardedDataParallel': /Use one of both for the outer modules and these/,
  'fullyShard DistributedDataParallel': /Give the module in it, its property module, to fullyShard/,
  'FullyShardedDataParallel fullyShard': /Use one of both/,
  'FullyShardedDataParallel DistributedDataParallel': /Give the module in it/,
  'DistributedDataParallel fullyShard': /Leave Dis.* out: .* pass it a mesh of two dims/,
  'DistributedDataParallel FullyShardedDataParallel': /Leave Dis.* HYBRID_SHARD/,
  'DistributedDataParallel DistributedDataParallel': /Give the module in it/,
};

describe('data parallelism of two kinds', () => {
  for (const [outer, wrap] of Object.entries(kinds))
    for (const [inner, wrapInner] of Object.entries(kinds)) {
      const text = advice[`${outer} ${inner}`];
      if (text === undefined) continue;
      it(
        `is an error with the path: ${outer} of a module with ${inner}`,
        withRanks(2, () => {
          const block = wrapInner(new nn.Linear(2, 2));
          const check = (where: RegExp) => (error: Error & { code?: string }) => {
            assert.equal(error.code, 'ERR_SHARDING');
            assert.match(error.message, where);
            assert.match(error.message, new RegExp(`^${outer}: expected .* with ${inner}\\.`));
            assert.match(error.message, text);
            return true;
          };
          const model = new nn.Sequential(new nn.ReLU(), new nn.Sequential(block));
          assert.throws(() => wrap(model), check(/got "1\.0" \(\w+\) with/));
          assert.throws(() => wrap(block), check(/got the \w+ itself with/));
        }),
      );
    }

  it(
    'is allowed in modules that FullyShardedDataParallel ignores',
    withRanks(2, () => {
      const block = new DistributedDataParallel(new nn.Linear(2, 2));
      const model = new nn.Sequential(new nn.Linear(2, 2), block);
      assert.ok(new FullyShardedDataParallel(model, { ignoredStates: [block] }));
    }),
  );
});
