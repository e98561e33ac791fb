/**
 * Collectives that wait for a rank which threw, returned, left or stalled: the others get an error,
 * and none waits forever.
 */
import assert from 'node:assert/strict';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  allGatherIntoTensor,
  allReduce,
  barrier,
  CollectiveError,
  DistributedError,
  destroyProcessGroup,
  newGroup,
} from '../../../lib/distributed.js';
import { IndexError, int64, ones, tensor, zeros } from '../../../lib/index.js';
import {
  describeOverEngines,
  errorOf,
  isOverGloo,
  onRanks,
  valuesOf,
} from '../support/on-ranks.js';
import { signal } from '../support/reused-ranks.js';

const here = `missing-ranks.test${path.extname(import.meta.url)}`;

describeOverEngines('the error of a missing rank', () => {
  it('has the reason if the rank threw, and rejects launch with it', async () => {
    const seen: string[] = [];
    const error = await errorOf(
      onRanks(3, async (rank) => {
        if (rank === 1) throw new RangeError('boom');
        const x = ones([2]);
        allReduce(x);
        seen.push((await errorOf(x.read())).message);
      }),
    );
    assert.ok(error instanceof DistributedError && error.cause instanceof RangeError);
    assert.match(error.message, /rank 1 failed: boom/);
    assert.ok(seen.length === 2 && seen.every((text) => /rank 1 failed: boom/.test(text)), seen[0]);
  });

  it('has the reason also if the rank threw before its first call in the group', async () => {
    const seen: CollectiveError[] = [];
    const busy = (): void => {
      for (const end = Date.now() + 200; Date.now() < end; ) Math.random();
    };
    await errorOf(
      onRanks(3, async (rank) => {
        const group = newGroup([2, 1, 0]);
        if (rank === 1) {
          await sleep(100);
          setImmediate(busy); // nothing else ends the groups of the others meanwhile
          throw new RangeError('boom');
        }
        const x = ones([2]);
        allReduce(x, { group });
        seen.push((await errorOf(x.read())) as CollectiveError);
      }),
    );
    for (const { message, details } of seen) {
      assert.match(message, /rank 1 aborted the group: rank 1 failed: boom/);
      assert.deepEqual(details.ranks, [1]);
    }
    assert.equal(seen.length, 2);
  });

  it('names the last call of a rank that threw', async () => {
    const seen: CollectiveError[] = [];
    const waiting = [signal<void>(), signal<void>(), signal<void>()];
    await errorOf(
      onRanks(3, async (rank) => {
        const x = ones([2]);
        allReduce(x);
        await x.read();
        if (rank === 1) {
          await Promise.all([waiting[0]?.promise, waiting[2]?.promise]);
          throw new RangeError('boom');
        }
        allReduce(x);
        const failure = errorOf(x.read());
        waiting[rank]?.resolve();
        seen.push((await failure) as CollectiveError);
      }),
    );
    for (const { message, details } of seen) {
      assert.match(
        message,
        new RegExp(`rank 1 failed: boom; its last call was allReduce at .*${here}`),
      );
      assert.equal(details.calls?.find((call) => call.rank === 1)?.op, 'allReduce');
    }
    assert.equal(seen.length, 2);
  });

  it('says that the operand of the rank failed to compute', async () => {
    const messages = await onRanks(2, async (rank) => {
      const x = zeros([3]);
      allReduce(x); // what comes now is queued
      if (rank === 0) x.copy_(ones([2]).indexSelect(0, tensor([0, 1, 7], { dtype: int64 })));
      allReduce(x);
      const error = await errorOf(x.read());
      assert.ok(error instanceof (rank === 0 ? IndexError : CollectiveError), error.stack);
      return error.message;
    });
    assert.match(messages[1] as string, /a rank failed before allReduce: .*index/);
  });

  it('is reported at once if the rank has returned', async () => {
    const begin = Date.now();
    const messages = await onRanks(3, async (rank) => {
      if (rank === 1) return '';
      const x = ones([2]);
      allReduce(x);
      return (await errorOf(x.read())).message;
    });
    assert.ok(Date.now() - begin < 2000);
    for (const rank of [0, 2])
      assert.match(
        messages[rank] as string,
        /rank 1 has left the group, it has called nothing yet/,
      );
  });

  it('is reported if the rank returned before it created the group, over shm at once', async () => {
    const begin = Date.now();
    // Over gloo its connections stay open until all ranks of the process are done.
    const timeoutMs = isOverGloo() ? 1000 : 5000;
    const call = async (rank: number): Promise<string> => {
      if (rank === 1) return '';
      const pair = newGroup([2, 1]);
      if (rank === 0) return '';
      const x = ones([2]);
      allReduce(x, { group: pair });
      return (await errorOf(x.read())).message;
    };
    const messages = await onRanks(3, call, { timeoutMs });
    assert.ok(Date.now() - begin < (isOverGloo() ? 4000 : 2000));
    const gone = isOverGloo()
      ? /group "group0": rank 1 has not joined it \(timeout after 1\d{3} ms\)/
      : /allReduce \(call 1 of group "group0"\).*rank 1 has left group "world" before it joined group "group0"/;
    assert.match(messages[2] as string, gone);
  });

  it('names the call that waited for a rank that threw, with its call site', async () => {
    const seen: string[] = [];
    const waiting = signal<void>();
    await errorOf(
      onRanks(2, async (rank) => {
        const x = ones([2]);
        allReduce(x);
        await x.read();
        if (rank === 1) {
          await waiting.promise;
          throw new RangeError('boom');
        }
        allReduce(x);
        const failure = errorOf(x.read());
        waiting.resolve();
        seen.push((await failure).message);
      }),
    );
    assert.match(
      seen[0] as string,
      /allReduce \(call 2 of group "world"\) at .*missing-ranks\.test\.[jt]s:\d+.*: rank \d aborted the group: rank 1 failed: boom/,
    );
  });

  it('does not affect other groups if the rank has left one', async () => {
    await onRanks(3, async (rank) => {
      const group = newGroup();
      const x = ones([1]);
      allReduce(x, { group });
      if (rank === 1) destroyProcessGroup(group);
      else {
        const y = ones([1]);
        allReduce(y, { group });
        assert.match(
          (await errorOf(y.read())).message,
          /rank 1 has left the group, its last call was allReduce of 1 float32 \(sum\) at .*\(call 1\)/,
        );
      }
      await barrier();
      const z = ones([1]);
      allReduce(z);
      await barrier();
      assert.equal(z.item(), 3);
    });
  });

  it('names after the timeout the last call of a rank that does not come', async () => {
    const messages = await onRanks(
      2,
      async (rank) => {
        const x = ones([2]);
        allReduce(x);
        await x.read();
        if (rank === 1) return sleep(400).then(() => '');
        allGatherIntoTensor(zeros([4]), x);
        return (await errorOf(x.read())).message + (await errorOf(barrier())).message;
      },
      { timeoutMs: 150 },
    );
    assert.match(
      messages[0] as string,
      /allGatherIntoTensor \(call 2 of group "world"\) at .*: rank 1 has not come, its last call was allReduce of 2 float32 \(sum\) at .*timeout after \d{3} ms/,
    );
    assert.match(messages[0] as string, /the group has failed before/);
  });

  it('does not block the event loop if the failure is observed several times', async () => {
    let goOn = (): void => {};
    const isSeen = new Promise<void>((resolve) => (goOn = resolve));
    await onRanks(2, async (rank) => {
      const second = newGroup();
      const [x, y] = [zeros([1 + rank]), ones([1])];
      allReduce(x);
      const later = Array.from({ length: 200 }, () => errorOf(x.read()));
      await later[0];
      if (rank === 1) await isSeen;
      allReduce(y, { group: second });
      const begin = Date.now();
      await Promise.all(later);
      assert.ok(
        Date.now() - begin < 4000,
        'JavaScript was blocked by a collective of the other rank',
      );
      if (rank === 0) assert.throws(() => y.item(), /rank 1 has not called yet/);
      goOn();
      assert.deepEqual(await valuesOf(y), [2]);
    });
  });
});
