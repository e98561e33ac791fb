/** The end of local ranks after a failure: which error is reported, and which ranks are named. */
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  allReduce,
  barrier,
  CollectiveError,
  type DistributedError,
  newGroup,
  type ProcessGroup,
} from '../../../lib/distributed.js';
import { ones } from '../../../lib/index.js';
import { withRanks } from '../../../lib/testing/index.js';
import { describeOverEngines, errorOf, onRanks } from '../support/on-ranks.js';

function cannotBeLeft(group: ProcessGroup): ProcessGroup {
  group.leave = () => {
    throw new Error('this group cannot be left');
  };
  return group;
}

describeOverEngines('local ranks after one has failed', () => {
  it('report its error, not a later failure to leave groups', async () => {
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

  it('let the other ranks of a schedule continue, whatever fails meanwhile', async () => {
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

  it('name the failed rank to ranks that wait for it, also if it has called nothing', async () => {
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

  it('say that the failed rank is not in a group without it', async () => {
    const seen: string[] = [];
    const run = onRanks(3, async (rank) => {
      const pair = newGroup([0, 1]);
      if (rank === 2) {
        await sleep(50);
        throw new Error('boom');
      }
      if (rank === 1) return void (await sleep(1000)); // it is still there when rank 2 has failed
      const x = ones([2]);
      allReduce(x, { group: pair });
      await x.read().catch((error: Error) => seen.push(error.message));
    });
    await assert.rejects(run, /rank 2 failed: boom/);
    assert.match(
      seen[0] as string,
      /rank 0 aborted the group: rank 2 failed: boom \(which is not in this group\)/,
    );
  });
});

describe('ranks of which one never ends, in a process that stays alive,', () => {
  const never = (): Promise<never> => new Promise(() => {});
  let alive: NodeJS.Timeout;
  before(() => {
    alive = setInterval(() => {}, 1000);
  });
  after(() => clearInterval(alive));
  const rounds = async (): Promise<number[]> => {
    const x = ones([1]);
    allReduce(x);
    return [...(await x.read())] as number[];
  };

  it('end with the error of another rank, and name the rank that did not end', async () => {
    const cause = new Error('boom');
    const run = onRanks(
      3,
      async (rank) =>
        void (rank === 0 ? await Promise.reject(cause) : rank === 1 ? await never() : null),
      { timeoutMs: 200 },
    );
    const error = (await errorOf(run)) as DistributedError;
    assert.match(
      error.message,
      /^rank 0 failed: boom\n {2}rank 1 had not ended 200 ms later, and was abandoned$/,
    );
    assert.equal(error.cause, cause);
    assert.deepEqual([error.details['rank'], error.details['leftBehind']], [0, [1]]);
    assert.deepEqual(await onRanks(2, rounds), [[2], [2]]);
  });

  it('end after a rank has waited in a collective, also with a seed', async () => {
    const waits = async (rank: number): Promise<unknown> => (rank === 1 ? never() : rounds());
    const free = await errorOf(onRanks(2, waits, { timeoutMs: 200 }));
    assert.match(
      free.message,
      /^rank 0 failed: .*rank 1 has not joined group "world" \(timeout.*\n {2}rank 1 had not ended 200 ms later/s,
    );
    for (const seed of [1, 2, 3, 4]) {
      const { message } = await errorOf(onRanks(2, waits, { timeoutMs: 200, seed }));
      assert.match(
        message,
        /^rank 0 failed \(in the order drawn from seed \d\): .*(rank 1 has not joined|rank 1 has had its turn for 200 ms).*\n {2}rank 1 had not ended/s,
      );
    }
    assert.deepEqual(await onRanks(2, rounds), [[2], [2]]);
  });

  it('can continue later without harm, whatever they call', async () => {
    let open!: () => void;
    const late = new Promise<void>((resolve) => {
      open = resolve;
    });
    const seen: unknown[] = [];
    const goesOn = async (rank: number): Promise<void> => {
      const own = ones([2]);
      if (rank === 0) throw new Error('boom');
      await late;
      seen.push((await own.add(1).read())[0], (await errorOf(barrier())).message);
      allReduce(own, { group: newGroup() }); // of nobody else
      seen.push((await errorOf(own.read())).message);
      throw new Error('nobody hears of this');
    };
    await assert.rejects(onRanks(2, goesOn, { timeoutMs: 100 }), /rank 1 had not ended/);
    const next = onRanks(2, async () => [await rounds(), await sleep(300), await rounds()]);
    open();
    assert.deepEqual(await next, [
      [[2], undefined, [2]],
      [[2], undefined, [2]],
    ]);
    assert.equal(seen[0], 2);
    assert.match(String(seen[1]), /group "world" has ended: rank 0 failed: boom/);
    assert.match(String(seen[2]), /rank 0 has left group "world" before it joined group "group0"/);
  });

  it('do not end the others if a rank was lost by an injected fault', async () => {
    let ended = false;
    const run = onRanks(
      2,
      async (rank) => {
        await ones([1]).read();
        if (rank === 0) await sleep(400);
        ended ||= rank === 0;
      },
      { timeoutMs: 100, faults: [{ rank: 1, at: 1, kind: 'lose' }] },
    );
    await assert.rejects(run, /rank 1 was lost here/);
    assert.ok(ended);
  });

  it('are named by withRanks before the test runner ends the test', async () => {
    const test = withRanks(
      2,
      async (rank) => (rank === 0 ? Promise.reject(new Error('boom')) : never()),
      { timeoutMs: 200 },
    );
    await assert.rejects(test, /^Error: rank 0: boom \(still running: rank 1\)$/);
  });
});
