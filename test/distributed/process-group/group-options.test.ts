/** Options of newGroup. */
import assert from 'node:assert/strict';
import { allReduce, getRank, newGroup } from '../../../lib/distributed.js';
import { ArgumentError, ones } from '../../../lib/index.js';
import { reusedRanks } from '../support/reused-ranks.js';

describe('newGroup with options', () => {
  const ranks = reusedRanks(2);

  it('accepts maxCtas, which engines of the CPU ignore', async () => {
    const sums = await ranks.run(async () => {
      const [all, own] = [newGroup(null, { maxCtas: 16 }), newGroup([1, 0], { maxCtas: 1 })];
      const [x, y] = [ones([2]), ones([1])];
      allReduce(x, { group: all });
      allReduce(y, { group: own });
      await y.read();
      return [all.rank === getRank(), own.ranks, Array.from(await x.read(), Number)];
    });
    assert.deepEqual(sums[0], [true, [1, 0], [2, 2]]);
  });

  it('refuses a maxCtas that NCCL does not have, and unknown options', async () => {
    await ranks.run(() => {
      for (const maxCtas of [0, -1, 1.5, 65, Number.NaN, '16'])
        assert.throws(
          () => newGroup(null, { maxCtas: maxCtas as number }),
          (error: Error) =>
            error instanceof ArgumentError &&
            /newGroup: expected maxCtas to be/.test(error.message),
        );
      assert.throws(() => newGroup([0, 1], { minCtas: 2 } as object), ArgumentError);
      assert.throws(() => newGroup([0, 1], 16 as never), ArgumentError);
    });
  });
});
