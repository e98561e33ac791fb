/** How ranks of one process end when one of them fails: what is told, and of whom. */
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { allReduce, barrier, CollectiveError, newGroup, type ProcessGroup } from '../../lib/distributed.js';
import { ones } from '../../lib/index.js';
import { describeOverEngines, errorOf, onRanks } from './on-ranks.js';

function cannotBeLeft(group: ProcessGroup): ProcessGroup {
  group.leave = () => {
    throw new Error('this group cannot be left');
  };
  return group;
}

describeOverEngines('ranks that end since one has failed', () => {
  it('tell its error, not that of groups which cannot be left afterwards', async () => {
    const error = await errorOf(
      onRanks(4, async (rank) => {
        const one = cannotBeLeft(newGroup());
        if (rank >= 2) throw new Error(`the true cause of rank ${rank}`);
        const x = ones([2]);
        allReduce(x, { group: one });
        await x.read();
      }),
    );
    assert.match(error.message, /^rank 2 failed: the true cause of rank 2/);
  });

  it('let the others of a schedule go on, whatever fails meanwhile', async () => {
    const run = onRanks(
      3,
      async (rank) => {
        cannotBeLeft(newGroup());
        if (rank === 2) throw new Error('the true cause');
        await barrier();
      },
      { seed: 1 },
    );
    await assert.rejects(run, /rank 2 failed \(in the order drawn from seed 1\): the true cause/);
  });

  it('name the one that failed to those that wait for it, also where it has called nothing', async () => {
    const seen: CollectiveError[] = [];
    const run = onRanks(3, async (rank) => {
      if (rank === 2) {
        await sleep(50);
        throw new Error('boom');
      }
      const x = ones([2]);
      allReduce(x);
      await x.read().catch((error) => seen.push(error));
    });
    await assert.rejects(run, /rank 2 failed: boom/);
    assert.equal(seen.length, 2);
    for (const error of seen) {
      assert.ok(error instanceof CollectiveError);
      assert.match(error.message, /rank 2 (aborted the group|failed): .*boom/);
      assert.deepEqual(error.details['ranks'], [2]);
    }
  });

  it('say in groups that it is not in that it is a stranger there', async () => {
    const seen: string[] = [];
    const run = onRanks(3, async (rank) => {
      const pair = newGroup([0, 1]);
      if (rank === 2) {
        await sleep(50);
        throw new Error('boom');
      }
      if (rank === 1) return void (await sleep(100));
      const x = ones([2]);
      allReduce(x, { group: pair });
      await x.read().catch((error: Error) => seen.push(error.message));
    });
    await assert.rejects(run, /rank 2 failed: boom/);
    assert.match(seen[0] as string, /rank 0 aborted the group: rank 2 failed: boom \(which is not in this group\)/);
  });
});
