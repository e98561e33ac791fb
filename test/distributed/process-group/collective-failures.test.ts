/**
 * What goes wrong between ranks becomes an error on every one of them, and no wait without an end.
 */
import assert from 'node:assert/strict';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  allGatherIntoTensor,
  allReduce,
  barrier,
  broadcast,
  CollectiveError,
  DistributedError,
  destroyProcessGroup,
  newGroup,
  recv,
  reduce,
  send,
} from '../../../lib/distributed.js';
import { full, IndexError, int64, ones, type Tensor, tensor, zeros } from '../../../lib/index.js';
import {
  describeOverEngines,
  errorOf,
  isOverGloo,
  onRanks,
  valuesOf,
} from '../support/on-ranks.js';

const here = `collective-failures.test${path.extname(import.meta.url)}`;

/** What the reading of a rank's tensor fails with, on each. */
function failures(worldSize: number, call: (rank: number) => Tensor): Promise<string[]> {
  return onRanks(worldSize, async (rank) => {
    const error = await errorOf(call(rank).read());
    assert.ok(error instanceof CollectiveError, error.stack);
    return error.message;
  });
}

describeOverEngines('ranks that call different things', () => {
  const differences: [string, (rank: number) => Tensor, RegExp, RegExp][] = [
    [
      'another size',
      (r) => (r === 1 ? called(zeros([3])) : called(zeros([2]))),
      /of 2 float32 \(sum\)/,
      /of 3 float32 \(sum\)/,
    ],
    [
      'as many elements in another shape',
      (r) => called(zeros(r === 1 ? [3, 2] : [2, 3])),
      /of 6 float32 \(sum\).* with shape \[2, 3\]/,
      /with shape \[3, 2\]/,
    ],
    [
      'another dtype',
      (r) => (r === 1 ? called(zeros([2], { dtype: int64 })) : called(zeros([2]))),
      /of 2 float32/,
      /of 2 int64/,
    ],
    [
      'another reduction',
      (r) => (r === 1 ? called(zeros([2]), 'max') : called(zeros([2]), 'sum')),
      /\(sum\)/,
      /\(max\)/,
    ],
    [
      'another root',
      (r) => (r === 1 ? from(zeros([2]), 1) : from(zeros([2]), 0)),
      /from rank 0/,
      /from rank 1/,
    ],
    [
      'another collective',
      (r) => (r === 1 ? from(zeros([2]), 0) : called(zeros([2]))),
      /allReduce of 2/,
      /broadcast of 2 float32/,
    ],
    [
      'another root of reduce',
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
    it(`${what}: every rank is told whose call differs, and where both are`, async () => {
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

  it('do not hide it from those that come later, nor from later calls', async () => {
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

  it('leave other groups, and blocking reads behind them, as they are', async () => {
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

  it('messages of another size', async () => {
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

  it('two groups in another order: at once, with all calls named', async () => {
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

  it('two groups in another order, each awaited: at once as well, with where each rank waits', async () => {
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

  it('two groups in another order with messages in between: after the timeout, with what the other does', async () => {
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

describeOverEngines('a rank that does not come', () => {
  it('because it threw: the others are told why, and the call fails with it', async () => {
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

  it('because it threw before it had called anything there: the others are told why, also where they hear it from it alone', async () => {
    const seen: CollectiveError[] = [];
    const busy = (): void => {
      for (const end = Date.now() + 200; Date.now() < end; ) Math.random();
    };
    await errorOf(
      onRanks(3, async (rank) => {
        const group = newGroup([2, 1, 0]);
        if (rank === 1) {
          await sleep(100);
          setImmediate(busy); // nobody ends the groups of the others meanwhile
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

  it('because it threw later: the others hear what it called last, and where', async () => {
    const seen: CollectiveError[] = [];
    await errorOf(
      onRanks(3, async (rank) => {
        const x = ones([2]);
        allReduce(x);
        await x.read();
        if (rank === 1) await sleep(100); // until the others wait
        if (rank === 1) throw new RangeError('boom');
        allReduce(x);
        seen.push((await errorOf(x.read())) as CollectiveError);
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

  it('because it failed before: what it would have given was never computed', async () => {
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

  it('because it has returned: the others are told at once', async () => {
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

  it('because it has returned before it made the group: its members are told, in shared memory at once', async () => {
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

  it('because it threw later: the call that waited is named, with its place', async () => {
    const seen: string[] = [];
    await errorOf(
      onRanks(2, async (rank) => {
        const x = ones([2]);
        allReduce(x);
        await x.read();
        if (rank === 1) await sleep(50);
        if (rank === 1) throw new RangeError('boom');
        allReduce(x);
        seen.push((await errorOf(x.read())).message);
      }),
    );
    assert.match(
      seen[0] as string,
      /allReduce \(call 2 of group "world"\) at .*collective-failures\.test\.[jt]s:\d+.*: rank \d aborted the group: rank 1 failed: boom/,
    );
  });

  it('because it has left the group, which concerns no other group', async () => {
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

  it('because it never calls: a timeout that says what it did last', async () => {
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

  it('but goes on at once when a failure is heard of twice', async () => {
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

describeOverEngines('waiting among ranks that share a process', () => {
  it('by blocking is refused where others must run first; awaiting works', async () => {
    await onRanks(3, async (rank) => {
      const x = full([2], rank);
      allReduce(x);
      if (rank < 2) {
        for (const read of [() => x.tolist(), () => x.sum().item(), () => x.toTypedArray()]) {
          assert.throws(read, (error: DistributedError) => {
            assert.ok(error instanceof DistributedError);
            return /the allReduce of group "world" that came before (ranks 1, 2 have|rank 2 has) not called yet\. Use `await t\.read\(\)`/.test(
              error.message,
            );
          });
        }
      } else assert.deepEqual(x.tolist(), [3, 3]);
      assert.deepEqual(await valuesOf(x), [3, 3]);
      assert.deepEqual(x.tolist(), [3, 3]);
    });
  });

  it('is not needed to give a device any number of ops', async () => {
    const begin = Date.now();
    const values = await onRanks(2, async () => {
      const x = ones([2]);
      allReduce(x);
      for (let i = 0; i < 30_000; i++) x.add_(1);
      return x.sum().itemAsync();
    });
    assert.deepEqual(values, [60_004, 60_004]);
    assert.ok(
      Date.now() - begin < 4000,
      'JavaScript waited for a stream that waits for another rank',
    );
  });
});
