/**
 * Failures of local ranks that no rank has observed: they reject the call that started the ranks.
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

describeOverEngines('an unobserved failure of a collective, after all ranks have returned,', () => {
  it('rejects launch if ranks called different collectives', async () => {
    const error = await errorOf(onRanks(3, (rank) => allReduce(zeros([rank === 1 ? 3 : 2]))));
    assert.match(
      error.message,
      /rank \d failed: .*ranks? \d( and \d)? called allReduce of \d float32 \(sum\) at .*, this rank allReduce of/,
    );
    assert.ok(error.cause instanceof CollectiveError);
  });

  it('rejects launch also if a Work is still referenced, and with a seed', async () => {
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

  it('rejects launch also if a Work failed long before, unless the program queried it', async () => {
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

  it('rejects launch also if only one rank called the collective', async () => {
    const error = await errorOf(onRanks(2, (rank) => void (rank === 0 && allReduce(zeros([1])))));
    assert.match(error.message, /rank 0 failed: .*rank 1 has left the group/);
  });

  it('rejects launch also if a kernel failed', async () => {
    const error = await errorOf(
      onRanks(
        2,
        (rank) => void (rank === 1 && ones([2]).indexSelect(0, tensor([7], { dtype: int64 }))),
      ),
    );
    assert.ok(error.cause instanceof IndexError, error.message);
  });

  it('rejects launch also if ranks created a group of different ranks', async () => {
    const error = await errorOf(onRanks(2, (rank) => void newGroup([rank])));
    assert.match(
      error.message,
      /newGroup \(group creation 1 of group "world"\): rank 0 created group "group0" of the ranks \[0\] at .*All ranks make their groups of the same ranks, in one order/,
    );
  });

  it('does not reject launch if a rank has caught the error and continued', async () => {
    const values = await onRanks(2, async (rank) => {
      const x = zeros([1 + rank]);
      allReduce(x);
      await assert.rejects(x.read(), CollectiveError);
      return rank;
    });
    assert.deepEqual(values, [0, 1]);
  });

  it('does not reject launch if a rank has read an output, or has queried another Work', async () => {
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

  it('rejects launch with a second failure after an observed one', async () => {
    const run = onRanks(2, async (rank) => {
      const x = zeros([1 + rank]);
      allReduce(x, { asyncOp: true });
      await assert.rejects(x.read(), CollectiveError);
      allReduce(zeros([1]), { asyncOp: true });
    });
    await assert.rejects(run, /rank \d failed: .*the group has failed before/);
  });

  it('does not keep the last call of a rank from completing for the others', async () => {
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

describe('launch of local ranks after the ranks have returned', () => {
  it('rejects with the failure that nobody has read', async () => {
    await assert.rejects(
      launch(2, async (rank) => allReduce(zeros([1 + rank]))),
      /rank \d failed: .*rank \d called allReduce of \d float32/,
    );
  });
});
