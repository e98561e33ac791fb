/**
 * Failures of ranks that share a process, in results that nobody reads: they reach who started the
 * ranks.
 */
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  allReduce,
  barrier,
  CollectiveError,
  launch,
  newGroup,
  type Work,
} from '../../../lib/distributed.js';
import { IndexError, int64, ones, tensor, zeros } from '../../../lib/index.js';
import { describeOverEngines, errorOf, onRanks } from '../support/on-ranks.js';

describeOverEngines('a failure that no rank has heard of when all have returned', () => {
  it('makes the call reject: ranks that called different things', async () => {
    const error = await errorOf(onRanks(3, (rank) => allReduce(zeros([rank === 1 ? 3 : 2]))));
    assert.match(
      error.message,
      /rank \d failed: .*ranks? \d( and \d)? called allReduce of \d float32 \(sum\) at .*, this rank allReduce of/,
    );
    assert.ok(error.cause instanceof CollectiveError);
  });

  it('also where a Work was kept, and in an order drawn from a seed', async () => {
    const works: Work[] = [];
    const run = (options: object): Promise<unknown> =>
      onRanks(
        2,
        (rank) => void works.push(allReduce(zeros([1 + rank]), { asyncOp: true })),
        options,
      );
    await assert.rejects(run({}), /rank \d called allReduce/);
    await assert.rejects(
      run({ seed: 3 }),
      /in the order drawn from seed 3.*rank \d called allReduce/,
    );
  });

  it('also where a Work has failed long before the end, unless it was asked', async () => {
    const run = (ask: (work: Work) => unknown): Promise<unknown> =>
      onRanks(2, async (rank) => {
        const work = allReduce(zeros([1 + rank]), { asyncOp: true });
        while (!work.isCompleted()) await sleep(10);
        await ask(work);
      });
    await assert.rejects(
      run(() => {}),
      /rank \d called allReduce/,
    );
    await run((work) => assert.ok(work.exception() instanceof CollectiveError));
    await run((work) => assert.rejects(work.wait(), CollectiveError));
  });

  it('also where a rank calls what the other does not', async () => {
    const error = await errorOf(onRanks(2, (rank) => void (rank === 0 && allReduce(zeros([1])))));
    assert.match(error.message, /rank 0 failed: .*rank 1 has left the group/);
  });

  it('also of a kernel', async () => {
    const error = await errorOf(
      onRanks(
        2,
        (rank) => void (rank === 1 && ones([2]).indexSelect(0, tensor([7], { dtype: int64 }))),
      ),
    );
    assert.ok(error.cause instanceof IndexError, error.message);
  });

  it('also of groups that ranks have made of different ranks', async () => {
    const error = await errorOf(onRanks(2, (rank) => void newGroup([rank])));
    assert.match(
      error.message,
      /newGroup \(group-making call 1 of group "world"\): rank 0 has made group "group0" of the ranks \[0\] at .*All ranks make their groups of the same ranks, in one order/,
    );
  });

  it('but not where a rank has heard of it and went on', async () => {
    const values = await onRanks(2, async (rank) => {
      const x = zeros([1 + rank]);
      allReduce(x);
      await assert.rejects(x.read(), CollectiveError);
      return rank;
    });
    assert.deepEqual(values, [0, 1]);
  });

  it('nor where it has read what a Work that it did not keep has written, or has asked another Work', async () => {
    for (const options of [{}, { seed: 4 }]) {
      const run = onRanks(
        2,
        async (rank) => {
          const x = zeros([1 + rank]);
          allReduce(x, { asyncOp: true });
          await assert.rejects(x.read(), CollectiveError);
        },
        options,
      );
      await run;
    }
    await onRanks(2, async (rank) => {
      const x = zeros([1 + rank]);
      const work = allReduce(x, { asyncOp: true });
      allReduce(x, { asyncOp: true });
      await assert.rejects(work.wait(), CollectiveError);
    });
  });

  it('but a failure after the one that was heard of is another', async () => {
    const run = onRanks(2, async (rank) => {
      const x = zeros([1 + rank]);
      allReduce(x, { asyncOp: true });
      await assert.rejects(x.read(), CollectiveError);
      allReduce(zeros([1]), { asyncOp: true });
    });
    await assert.rejects(run, /rank \d failed: .*the group has failed before/);
  });

  it('and what a rank called last is still done for the others', async () => {
    const values = await onRanks(2, async (rank) => {
      const x = ones([2]);
      if (rank === 1) await barrier();
      else void barrier();
      allReduce(x);
      return rank === 1 ? [...(await x.read())] : [];
    });
    assert.deepEqual(values[1], [2, 2]);
  });
});

describe('launch of local ranks', () => {
  it('rejects with what nobody has read', async () => {
    await assert.rejects(
      launch(2, async (rank) => allReduce(zeros([1 + rank]))),
      /rank \d failed: .*rank \d called allReduce of \d float32/,
    );
  });
});
