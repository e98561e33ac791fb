/**
 * `barrier`, `broadcastObjectList` and `recv` with `timeoutMs`: a rank may be idle for longer than
 * the timeout of its world, and one that throws or leaves ends the wait at once.
 */
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  allReduce,
  barrier,
  broadcastObjectList,
  irecv,
  isend,
  newGroup,
  recv,
  send,
} from '../../../lib/distributed.js';
import { ones, tensor, zeros } from '../../../lib/index.js';
import { describeOverEngines, errorOf, onRanks, valuesOf } from '../support/on-ranks.js';

const patient = { timeoutMs: Number.POSITIVE_INFINITY };
const LIMIT_MS = 250;
const idle = (): Promise<void> => sleep(2.5 * LIMIT_MS);

/** What each rank does to wait for rank 0, which comes to it late. */
const waits: Record<string, (rank: number, options: object) => Promise<unknown>> = {
  barrier: (_, options) => barrier(options),
  broadcastObjectList: async (rank, options) => {
    const list = [rank === 0 ? { prompt: 'a whale' } : null];
    await broadcastObjectList(list, 0, options);
    assert.deepEqual(list, [{ prompt: 'a whale' }]);
  },
  recv: async (rank, options) => {
    if (rank === 0) for (const to of [1, 2]) send(tensor([to]), to);
    const t = zeros([1]);
    if (rank > 0) recv(t, 0, options);
    assert.deepEqual(await valuesOf(t), [rank]);
  },
  irecv: async (rank, options) => {
    if (rank === 0) for (const to of [1, 2]) await isend(tensor([to]), to).wait();
    if (rank > 0) await irecv(zeros([1]), 0, options).wait();
  },
};

describeOverEngines('a wait with a limit of its own', () => {
  for (const [name, wait] of Object.entries(waits)) {
    it(`goes on for as long as a rank is idle: ${name}`, async () => {
      await onRanks(
        3,
        async (rank) => {
          if (rank === 0) await idle(); // also before the first call of all
          await wait(rank, patient);
          if (rank === 0) await idle();
          await wait(rank, { timeoutMs: 20 * LIMIT_MS });
        },
        { timeoutMs: LIMIT_MS },
      );
    });

    it(`ends at once if the rank throws: ${name}`, async () => {
      const seen: string[] = [];
      await errorOf(
        onRanks(3, async (rank) => {
          await barrier();
          if (rank === 0) {
            await sleep(50);
            throw new RangeError('boom');
          }
          seen.push((await errorOf(wait(rank, patient))).message);
        }),
      );
      assert.ok(
        seen.length === 2 && seen.every((text) => /rank 0 failed: boom/.test(text)),
        seen[0],
      );
    });

    it(`ends if the rank leaves: ${name}`, async () => {
      const seen = await onRanks(3, async (rank) => {
        await barrier();
        return rank === 0 ? '' : (await errorOf(wait(rank, patient))).message;
      });
      for (const text of seen.slice(1)) assert.match(text, /rank 0 .*(left|ended)/);
    });
  }

  it('is one in a group whose ranks meet there for the first time', async () => {
    await onRanks(
      2,
      async (rank) => {
        const group = newGroup([0, 1]);
        if (rank === 0) await idle();
        await barrier({ ...patient, group });
      },
      { timeoutMs: LIMIT_MS },
    );
  });

  it('leaves the limit of other calls as it is', async () => {
    const [, seen] = await onRanks(
      2,
      async (rank) => {
        await barrier(patient);
        if (rank === 0) return idle();
        const t = ones([1]);
        allReduce(t);
        return (await errorOf(t.read())).message;
      },
      { timeoutMs: LIMIT_MS },
    );
    assert.match(String(seen), /rank 0 has not come.* \(timeout after \d+ ms\)/s);
  });

  it('is refused if it is no time', async () => {
    await onRanks(2, async (rank) => {
      for (const timeoutMs of [0, -1, Number.NaN, '5' as never])
        await assert.rejects(
          barrier({ timeoutMs }),
          /barrier: expected timeoutMs to be milliseconds from 1/,
        );
      assert.throws(() => recv(zeros([1]), 1 - rank, { timeoutMs: 0 }), /recv: expected timeoutMs/);
      assert.throws(
        () => send(zeros([1]), 1 - rank, { timeoutMs: 5 } as never),
        /no option "timeoutMs"/,
      );
    });
  });
});
