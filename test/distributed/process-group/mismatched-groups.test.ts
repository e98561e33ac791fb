/**
 * Groups that ranks create of different ranks are an error at creation, with both lists and call
 * sites.
 */
import assert from 'node:assert/strict';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { allReduce, type CollectiveError, newGroup } from '../../../lib/distributed.js';
import { ones } from '../../../lib/index.js';
import { describeOverEngines, errorOf, onRanks } from '../support/on-ranks.js';

const here = `mismatched-groups\\.test${path.extname(import.meta.url)}:\\d+`;

describeOverEngines('a group that ranks create of different ranks', () => {
  it('is an error of the later rank, which names both lists and call sites', async () => {
    const begin = Date.now();
    const error = await errorOf(
      onRanks(3, async (rank) => {
        newGroup([2, 1]);
        if (rank === 1) await sleep(30);
        newGroup(rank === 1 ? [0, 2] : [0, 1]);
        if (rank !== 1) await sleep(10);
      }),
    );
    assert.match(
      error.message,
      new RegExp(
        `rank 1 failed: newGroup \\(group creation 2 of group "world"\\): rank [02] created group "group1" of the ranks \\[0, 1\\] at .*${here}.*, this rank of \\[0, 2\\] at .*${here}.*All ranks make their groups of the same`,
      ),
    );
    const { details } = error.cause as CollectiveError;
    assert.deepEqual(
      [details.group, details.sequence, details.ranks?.length, details.calls?.map(({ op }) => op)],
      ['group1', 2, 1, ['newGroup', 'newGroup']],
    );
    assert.ok(Date.now() - begin < 2_000);
  });

  it('is an error also of ranks that already wait in it, whatever the other rank does then', async () => {
    const begin = Date.now();
    const [first] = await onRanks(2, async (rank) => {
      if (rank === 1) {
        await sleep(100);
        assert.throws(
          () => newGroup([1, 0]),
          /rank 0 created group "group0" of the ranks \[0, 1\]/,
        );
        await sleep(500);
        return null;
      }
      const x = ones([2]);
      allReduce(x, { group: newGroup([0, 1]) });
      const error = (await errorOf(x.read())) as CollectiveError;
      assert.ok(Date.now() - begin < 550, 'it waited until the other had left');
      return error;
    });
    assert.match(
      first?.message ?? '',
      new RegExp(
        `allReduce.* at .*${here}.*newGroup \\(group creation 1 of group "world"\\): rank 1 created group "group0" of the ranks \\[1, 0\\] at .*${here}.*, rank 0 of \\[0, 1\\] at .*${here}`,
      ),
    );
    assert.deepEqual(
      [
        first?.details.sequence,
        first?.details.ranks,
        first?.details.calls?.map(({ op }) => op).sort(),
      ],
      [1, [1], ['allReduce', 'newGroup']],
    );
  });

  it('is no error if all ranks create the same groups, however far one is ahead', async () => {
    await onRanks(3, async (rank) => {
      if (rank === 2) await sleep(50);
      for (let i = 0; i < 100; i++)
        newGroup(i % 3 === 0 ? [0, i % 2].slice(0, 1 + (i % 2)) : [2, 1]);
      newGroup();
    });
  });
});
