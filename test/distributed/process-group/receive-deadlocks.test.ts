/**
 * Local ranks that receive from each other before they send: reported at once, not after the
 * timeout.
 */
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { barrier, DistributedError, irecv, isend, recv, send } from '../../../lib/distributed.js';
import { ones, zeros } from '../../../lib/index.js';
import { describeOverEngines, errorOf, onRanks } from '../support/on-ranks.js';

const site = 'receive-deadlocks\\.test\\.[jt]s:\\d+(:\\d+)?\\)?';
const waits = (rank: number, from: number, name = 'recv'): string =>
  `rank ${rank} waits in ${name} for rank ${from} \\(.*${site}`;

describeOverEngines('a cycle of ranks that receive before they send', () => {
  it('is reported at once with both call sites, for two ranks', async () => {
    const begin = Date.now();
    const error = await errorOf(
      onRanks(
        2,
        async (rank) => {
          const x = zeros([2]);
          recv(x, 1 - rank);
          await x.read();
        },
        { timeoutMs: 60_000 },
      ),
    );
    assert.ok(Date.now() - begin < 5000);
    assert.ok(error.cause instanceof DistributedError);
    assert.match(
      error.message,
      new RegExp(
        `^rank 1 failed: recv: this call can never complete: ${waits(1, 0)}.*${waits(0, 1)}.*let one of the ranks send first`,
      ),
    );
  });

  it('is reported to all of its ranks, which can catch it and continue', async () => {
    const begin = Date.now();
    const heard = await onRanks(
      2,
      async (rank) => {
        await barrier(); // over gloo a rank that has not joined yet says less
        const x = zeros([2]);
        const error = await errorOf(
          (async () => {
            recv(x, 1 - rank);
            await x.read();
          })(),
        );
        // What was called before the failure is heard of is skipped, which on a busy machine may be
        // more than once.
        const values = async (): Promise<number[]> => [
          ...((await ones([2]).add(rank).read()) as Float32Array),
        ];
        for (;;) {
          await sleep(50);
          const seen = await values().catch(() => null);
          if (seen !== null || Date.now() - begin > 5000) return [error.message, seen];
        }
      },
      { timeoutMs: 60_000 },
    );
    assert.deepEqual(
      heard.map(([, values]) => values),
      [
        [1, 1],
        [2, 2],
      ],
    );
    for (const [message] of heard)
      assert.match(
        message as string,
        new RegExp(`this call can never complete: (.*${waits(1, 0)}|.*${waits(0, 1)}){2}`),
      );
    assert.ok(Date.now() - begin < 5000);
  });

  it('is reported for three ranks, also if sends are called after the receives', async () => {
    const run = onRanks(
      3,
      async (rank) => {
        const work = irecv(zeros([2]), (rank + 2) % 3);
        isend(ones([2]), (rank + 1) % 3);
        await work.wait();
      },
      { timeoutMs: 60_000 },
    );
    await assert.rejects(
      run,
      new RegExp(
        `irecv: this call can never complete: (.*${waits(0, 2, 'irecv')}|.*${waits(2, 1, 'irecv')}){2}`,
      ),
    );
  });

  it('is not reported if one rank sends first, in any order of calls, and after earlier messages', async () => {
    const seeds: (number | null)[] = [null, 1, 2, 3];
    for (const seed of seeds) {
      const values = await onRanks(
        3,
        async (rank) => {
          const [x, y] = [zeros([2]), zeros([2])];
          for (let i = 0; i < 3; i++) {
            if (rank === 0) send(ones([2]), 1);
            recv(x, (rank + 2) % 3);
            if (rank !== 0) send(x, (rank + 1) % 3);
            if (rank < 2) {
              if (rank === 1) recv(y, 0);
              send(ones([2]), 1 - rank);
              if (rank === 0) recv(y, 1);
            }
          }
          await barrier();
          return [...(await x.read())];
        },
        seed === null ? {} : { seed },
      );
      assert.deepEqual(values, Array(3).fill([1, 1]));
    }
  });
});
