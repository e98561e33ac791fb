/** The fields of a CollectiveError: group, sequence number, ranks and call sites. */
import assert from 'node:assert/strict';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { inspect } from 'node:util';
import {
  allGatherIntoTensor,
  allReduce,
  allToAllSingle,
  barrier,
  type CollectiveDetails,
  CollectiveError,
  newGroup,
  recv,
  send,
} from '../../../lib/distributed.js';
import { ones, zeros } from '../../../lib/index.js';
import { describeOverEngines, errorOf, isOverGloo, onRanks } from '../support/on-ranks.js';

const here = new RegExp(`error-details\\.test${path.extname(import.meta.url)}:\\d+`);

const WAIT_MS = 800;

async function detailsOf(work: Promise<unknown>): Promise<CollectiveDetails> {
  const error = await errorOf(work);
  assert.ok(error instanceof CollectiveError, error.stack);
  const { op, group, sequence, ranks, calls } = error.details;
  assert.ok(
    op !== undefined &&
      group !== undefined &&
      sequence !== undefined &&
      ranks !== undefined &&
      calls !== undefined,
    error.message,
  );
  return { op, group, sequence, ranks, calls };
}

const numerically = (a: number, b: number): number => a - b;
const siteOf = ({ calls }: CollectiveDetails, rank: number): string =>
  calls.find((call) => call.rank === rank)?.where ?? '';
const opOf = ({ calls }: CollectiveDetails, rank: number): string | undefined =>
  calls.find((call) => call.rank === rank)?.op;

describeOverEngines('the details of a CollectiveError', () => {
  it('name both ranks, calls and call sites of a mismatch', async () => {
    await onRanks(2, async (rank) => {
      const group = newGroup();
      await barrier({ group });
      const x = ones([2]);
      if (rank === 0) allReduce(x, { group });
      else allGatherIntoTensor(zeros([4]), x, { group });
      const details = await detailsOf(rank === 0 ? x.read() : barrier({ group }));
      assert.deepEqual([details.group, details.sequence], ['group0', 2]);
      assert.deepEqual([opOf(details, 0), opOf(details, 1)], ['allReduce', 'allGatherIntoTensor']);
      for (const each of [0, 1]) assert.match(siteOf(details, each), here);
      assert.deepEqual(
        [details.op, details.ranks],
        rank === 0 ? ['allReduce', [1]] : ['allGatherIntoTensor', [0]],
      );
    });
  });

  it('name sender and receiver of shards whose sizes do not fit', async () => {
    await onRanks(2, async (rank) => {
      const out = zeros([rank === 0 ? 3 : 2]);
      allToAllSingle(out, ones([2]), rank === 0 ? { outputSplitSizes: [1, 2] } : {});
      const details = await detailsOf(out.read());
      assert.deepEqual(
        [details.op, details.sequence, [...details.ranks].sort()],
        ['allToAllSingle', 1, [0, 1]],
      );
      for (const each of [0, 1]) assert.match(siteOf(details, each), here);
    });
  });

  it('name both call sites of shards whose sizes do not fit, also in the message', async () => {
    await onRanks(2, async (rank) => {
      const out = zeros([rank === 0 ? 3 : 2]);
      if (rank === 0) allToAllSingle(out, ones([2]), { outputSplitSizes: [1, 2] });
      else allToAllSingle(out, ones([2]));
      const error = await errorOf(out.read());
      const details = await detailsOf(Promise.reject(error));
      assert.notEqual(siteOf(details, 0), siteOf(details, 1));
      for (const each of [0, 1])
        assert.ok(error.message.includes(siteOf(details, each)), error.message);
    });
  });

  it('name both ends of a message', async () => {
    await onRanks(2, async (rank) => {
      const x = zeros([2 + rank]);
      if (rank === 0) send(x, 1);
      else recv(x, 0);
      const details = await detailsOf(rank === 1 ? x.read() : barrier());
      // Rank 0 may hear of it before its barrier begins, which is then the call that it is told
      // about.
      assert.match(opOf(details, 0) ?? '', rank === 0 ? /^(send|barrier)$/ : /^send$/);
      assert.deepEqual([opOf(details, 1), details.group], ['recv', 'world']);
    });
  });

  it('name after a timeout the missing rank, its last call, and the call that waited', async () => {
    await onRanks(
      2,
      async (rank) => {
        const x = ones([2]);
        allReduce(x);
        await x.read();
        if (rank === 1) return void (await sleep(WAIT_MS / 2));
        const y = zeros([4]);
        allGatherIntoTensor(y, x);
        const details = await detailsOf(y.read());
        assert.deepEqual(
          [details.op, details.sequence, details.ranks, opOf(details, 1)],
          ['allGatherIntoTensor', 2, [1], 'allReduce'],
        );
        assert.match(siteOf(details, 0), here);
        const again = await detailsOf(barrier());
        assert.deepEqual(
          [again.op, again.group, again.sequence, again.ranks, opOf(again, 0)],
          ['barrier', 'world', 3, [1], 'barrier'],
          'later calls fail with the first cause',
        );
      },
      { timeoutMs: 150 },
    );
  });

  it('name all of many missing ranks in one error', async () => {
    await onRanks(
      16,
      async (rank) => {
        await barrier();
        if (rank !== 0) return void (await sleep(1500));
        const x = ones([2]);
        allReduce(x);
        const { message, details } = (await errorOf(x.read())) as CollectiveError;
        assert.match(
          message,
          /: ranks 1 to 15 have not come, their last call was barrier at [^;]* \(call 1\) \(timeout after \d+ ms\)$/m,
        );
        assert.deepEqual([details.op, details.group, details.sequence], ['allReduce', 'world', 2]);
        assert.deepEqual(
          [...(details.ranks ?? [])].sort(numerically),
          [...Array(16).keys()].slice(1),
        );
        assert.deepEqual(details.calls?.map((call) => call.rank).sort(numerically), [
          ...Array(16).keys(),
        ]);
      },
      { timeoutMs: 500 },
    );
  });

  it('name after a failure both the later call and the rank that caused it', async () => {
    await onRanks(3, async (rank) => {
      const x = zeros([rank === 2 ? 5 : 4]);
      allReduce(x);
      await detailsOf(x.read());
      for (const sequence of [2, 3]) {
        const error = await errorOf(barrier());
        assert.match(
          error.message,
          new RegExp(
            `barrier \\(call ${sequence} of group "world"\\) at .*:\\d+: the group has failed before: allReduce \\(call 1 of group "world"\\)`,
          ),
        );
        const details = await detailsOf(Promise.reject(error));
        assert.deepEqual(
          [details.op, details.group, details.sequence, opOf(details, rank)],
          ['barrier', 'world', sequence, 'barrier'],
        );
        assert.deepEqual(details.ranks, [2], 'the odd one, on all');
      }
    });
  });

  it('are printed without empty fields', async () => {
    await onRanks(2, async (rank) => {
      const x = zeros([1 + rank]);
      allReduce(x);
      const error = await errorOf(x.read());
      const printed = inspect(error);
      assert.ok(!/modulePath|namesCreations|\[cause\]/.test(printed), printed);
      assert.equal(printed.split('called allReduce').length, 2, 'the message stands there once');
    });
  });

  it('name the call that waited for a rank without any call', async () => {
    await onRanks(
      2,
      async (rank) => {
        const group = newGroup();
        if (rank === 1) return void (await sleep(600));
        const x = ones([2]);
        allReduce(x, { group });
        const error = await errorOf(x.read());
        assert.match(
          error.message,
          isOverGloo()
            ? /allReduce at .*: call 1 of group "group0": rank 1 has not joined it \(timeout after \d+ ms\)/
            : /allReduce \(call 1 of group "group0"\) at /,
        );
        assert.match(error.message, here);
        const details = await detailsOf(Promise.reject(error));
        assert.deepEqual(
          [details.op, details.group, details.sequence, details.ranks],
          ['allReduce', 'group0', 1, [1]],
        );
        assert.match(siteOf(details, 0), here);
      },
      { timeoutMs: 200 },
    );
  });

  it('name the rank that threw, and the call that waited', async () => {
    const seen: CollectiveDetails[] = [];
    await errorOf(
      onRanks(2, async (rank) => {
        await barrier();
        if (rank === 1) await sleep(30);
        if (rank === 1) throw new RangeError('boom');
        const x = ones([2]);
        allReduce(x);
        seen.push(await detailsOf(x.read()));
      }),
    );
    const [details] = seen as [CollectiveDetails];
    assert.deepEqual([details.op, details.sequence], ['allReduce', 2]);
    assert.match(siteOf(details, 0), here);
  });

  it('name the group that a rank waited to join when another rank threw', async () => {
    const seen: CollectiveDetails[] = [];
    await errorOf(
      onRanks(2, async (rank) => {
        const group = newGroup();
        if (rank === 1) await sleep(100);
        if (rank === 1) throw new RangeError('boom');
        const x = ones([2]);
        allReduce(x, { group });
        seen.push(await detailsOf(x.read()));
      }),
    );
    const [details] = seen as [CollectiveDetails];
    assert.deepEqual(
      [details.op, details.group, details.sequence, details.ranks.length],
      ['allReduce', 'group0', 1, 1],
    );
    assert.match(siteOf(details, 0), here);
  });

  it('name the absent rank if a rank ends its groups because of it', async () => {
    await onRanks(
      3,
      async (rank) => {
        const [near, far] = [newGroup([0, 1]), newGroup([1, 2])];
        await barrier();
        if (rank === 2) return void (await sleep(3 * WAIT_MS));
        const x = ones([2]);
        if (rank === 1) allReduce(x, { group: far });
        else await sleep(WAIT_MS / 2);
        allReduce(x, { group: near });
        assert.deepEqual((await detailsOf(x.read())).ranks, [2]);
      },
      { timeoutMs: WAIT_MS },
    );
  });
});
