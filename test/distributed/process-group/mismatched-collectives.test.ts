/** Collectives that differ between ranks: every rank gets an error with both calls. */
import assert from 'node:assert/strict';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  allReduce,
  barrier,
  broadcast,
  CollectiveError,
  newGroup,
  recv,
  reduce,
  send,
} from '../../../lib/distributed.js';
import { int64, ones, type Tensor, zeros } from '../../../lib/index.js';
import { describeOverEngines, errorOf, isOverGloo, onRanks } from '../support/on-ranks.js';

const here = `mismatched-collectives.test${path.extname(import.meta.url)}`;

/** The error of each rank that reads the tensor of its call. */
function failures(worldSize: number, call: (rank: number) => Tensor): Promise<string[]> {
  return onRanks(worldSize, async (rank) => {
    const error = await errorOf(call(rank).read());
    assert.ok(error instanceof CollectiveError, error.stack);
    return error.message;
  });
}

describeOverEngines('a mismatch of collectives', () => {
  const differences: [string, (rank: number) => Tensor, RegExp, RegExp][] = [
    [
      'a different size',
      (r) => (r === 1 ? called(zeros([3])) : called(zeros([2]))),
      /of 2 float32 \(sum\)/,
      /of 3 float32 \(sum\)/,
    ],
    [
      'a different shape of the same size',
      (r) => called(zeros(r === 1 ? [3, 2] : [2, 3])),
      /of 6 float32 \(sum\).* with shape \[2, 3\]/,
      /with shape \[3, 2\]/,
    ],
    [
      'a different dtype',
      (r) => (r === 1 ? called(zeros([2], { dtype: int64 })) : called(zeros([2]))),
      /of 2 float32/,
      /of 2 int64/,
    ],
    [
      'a different reduction',
      (r) => (r === 1 ? called(zeros([2]), 'max') : called(zeros([2]), 'sum')),
      /\(sum\)/,
      /\(max\)/,
    ],
    [
      'a different root',
      (r) => (r === 1 ? from(zeros([2]), 1) : from(zeros([2]), 0)),
      /from rank 0/,
      /from rank 1/,
    ],
    [
      'a different collective',
      (r) => (r === 1 ? from(zeros([2]), 0) : called(zeros([2]))),
      /allReduce of 2/,
      /broadcast of 2 float32/,
    ],
    [
      'a different root of reduce',
      (r) => (r === 1 ? to(zeros([2]), 1) : to(zeros([2]), 0)),
      /to rank 0/,
      /to rank 1/,
    ],
  ];
  function called(t: Tensor, op: 'sum' | 'max' = 'sum'): Tensor {
    allReduce(t, { op });
    return t;
  }
  function from(t: Tensor, src: number): Tensor {
    broadcast(t, src);
    return t;
  }
  function to(t: Tensor, dst: number): Tensor {
    reduce(t, dst);
    return t;
  }

  for (const [what, call, most, one] of differences) {
    it(`is reported to every rank with both calls and call sites: ${what}`, async () => {
      for (const [rank, message] of (await failures(3, call)).entries()) {
        assert.match(
          message,
          rank === 1 ? /ranks 0 and 2 called/ : /rank 1 called/,
          `rank ${rank}`,
        );
        assert.ok(most.test(message) && one.test(message), message);
        assert.equal(message.split(here).length - 1, 2, `both call sites: ${message}`);
      }
    });
  }

  it('is reported also to ranks that come later, and by later calls', async () => {
    await onRanks(3, async (rank) => {
      if (rank === 2) await sleep(30);
      const x = zeros([rank === 0 ? 5 : 4]);
      allReduce(x);
      await assert.rejects(x.read(), CollectiveError);
      const y = zeros([4]);
      allReduce(y);
      await assert.rejects(y.read(), /the group has failed before: .*ranks? \d.* called/);
    });
  });

  it('does not affect other groups, nor blocking reads after it', async () => {
    await onRanks(2, async (rank) => {
      const own = [newGroup([0]), newGroup([1])][rank];
      const x = zeros([1 + rank]);
      allReduce(x);
      await assert.rejects(x.read(), CollectiveError);
      const y = ones([2]);
      if (own !== undefined) allReduce(y, { group: own });
      assert.deepEqual(y.tolist(), [1, 1]);
      assert.throws(() => x.tolist(), /allReduce/);
    });
  });

  it('is reported for the sizes of a message', async () => {
    const messages = await onRanks(2, async (rank) => {
      const x = zeros([2 + rank]);
      if (rank === 0) send(x, 1);
      else recv(x, 0);
      await barrier().catch(() => {});
      return (await errorOf(barrier())).message;
    });
    assert.ok(
      messages.every((text) =>
        /rank 0 sent 2 float32 to rank 1 at .*, which receives 3 float32 at /.test(text),
      ),
      messages[0],
    );
  });

  it('is reported at once for two groups called in different orders, with all calls', async () => {
    const begin = Date.now();
    const error = await errorOf(
      onRanks(2, async (rank) => {
        const groups = [newGroup([0, 1]), newGroup([1, 0])];
        for (const i of [rank, 1 - rank]) allReduce(ones([1]), { group: groups[i] });
        await barrier();
      }),
    );
    assert.ok(Date.now() - begin < 2000);
    assert.match(
      error.message,
      /rank 1 failed: allReduce: this call can never complete\. Rank 1 calls the allReduce of group "group1" \(.*\) before the allReduce of group "group0"/,
    );
    assert.match(error.message, /rank 0 called that before the allReduce of group "group1"/);
    assert.equal(error.message.split(here).length - 1, 2);
  });

  it('is reported at once for two groups in different orders if each call is awaited', async () => {
    const begin = Date.now();
    const error = await errorOf(
      onRanks(2, async (rank) => {
        const groups = [newGroup([0, 1]), newGroup([1, 0])];
        for (const i of [rank, 1 - rank]) {
          const x = ones([1]);
          allReduce(x, { group: groups[i] });
          await x.read();
        }
      }),
    );
    assert.ok(Date.now() - begin < 2000);
    assert.match(
      error.message,
      /Rank 1 calls the allReduce of group "group1" \(.*\) before the allReduce of group "group0", and rank 0 called that before it comes to .*"group1" \(/,
    );
    assert.equal(error.message.split(here).length - 1, 2);
  });

  it('is reported after the timeout for a message and a collective in different orders', async () => {
    const errors = await onRanks(
      2,
      async (rank) => {
        const x = zeros([300_000]);
        if (rank === 0) send(x, 1);
        allReduce(x);
        if (rank === 1) recv(x, 0);
        return (await errorOf(x.read())).message;
      },
      { timeoutMs: 200 },
    );
    assert.ok(
      errors.some(
        (text) =>
          (isOverGloo() ? /has not come/ : /has not come, it is in (send|allReduce)/).test(text) &&
          /timeout after \d{3} ms/.test(text),
      ),
      errors.join('\n'),
    );
  });
});
