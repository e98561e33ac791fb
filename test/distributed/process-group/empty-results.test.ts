/**
 * Results without elements: a read waits like any other, and throws the failure of its collective.
 */
import assert from 'node:assert/strict';
import { FakeTensorMode } from '../../../lib/compile/index.js';
import {
  allReduce,
  broadcast,
  CollectiveError,
  DistributedError,
  functional,
  irecv,
  isend,
} from '../../../lib/distributed.js';
import { FreedError, type Tensor, zeros } from '../../../lib/index.js';
import { withRanks } from '../../../lib/testing/index.js';
import { describeOverEngines, onRanks } from '../support/on-ranks.js';

const isOf = (op: string) => (error: Error) =>
  error instanceof CollectiveError && error.details.op === op && error.details.sequence === 1;

describeOverEngines('a collective result without elements', () => {
  it('throws the failure of its collective when it is read', async () => {
    await onRanks(2, async (rank) => {
      const x = zeros([rank]);
      allReduce(x);
      await assert.rejects(x.read(), isOf('allReduce'));
    });
  });

  it('throws that failure also from a functional collective, and from ops on its result', async () => {
    await onRanks(2, async (rank) => {
      await assert.rejects(
        functional
          .allReduce(zeros([rank]), 'sum')
          .add(1)
          .read(),
        isOf('allReduce'),
      );
    });
  });

  it('waits for the other ranks when it is read', async () => {
    let hasCome = false;
    await onRanks(2, async (rank) => {
      const x = zeros([0]);
      if (rank === 1) {
        await new Promise((resolve) => setTimeout(resolve, 30));
        hasCome = true;
      }
      broadcast(x, 0);
      assert.deepEqual([...(await x.read())], []);
      assert.ok(hasCome);
    });
  });

  it('does not block other ranks of the process when it is read', async () => {
    await onRanks(2, async (rank) => {
      const x = zeros([2, 0]);
      if (rank === 0) allReduce(x);
      else await new Promise((resolve) => setTimeout(resolve, 10));
      if (rank === 0)
        assert.throws(
          () => x.tolist(),
          (error: Error) =>
            error instanceof DistributedError && /waiting here would block/.test(error.message),
        );
      else allReduce(x);
      await x.read();
      assert.deepEqual(x.tolist(), [[], []]);
    });
  });

  it('can be received as a message', async () => {
    await onRanks(2, async (rank) => {
      const x = zeros([0]);
      await (rank === 0 ? isend(x, 1) : irecv(x, 0)).wait();
      assert.deepEqual([...(await x.read())], []);
    });
  });
});

describe('a collective result without elements', () => {
  it(
    'throws the failure of its collective from a blocking read',
    withRanks(
      2,
      (rank) => {
        const read = [(t: Tensor) => t.tolist(), (t: Tensor) => t.toTypedArray()][rank] as (
          t: Tensor,
        ) => unknown;
        const x = zeros([rank]);
        allReduce(x);
        assert.throws(() => read(x), isOf('allReduce'));
      },
      { mode: 'process' },
    ),
  );
});

describe('a plain tensor without elements', () => {
  it('is refused by read after dispose, and is read under FakeTensorMode as before', async () => {
    const x = zeros([0, 2]);
    assert.deepEqual(
      [
        x.tolist(),
        x.toTypedArray().length,
        (await x.read()).length,
        zeros([0, 4]).narrow(1, 3, 1).tolist(),
      ],
      [[], 0, 0, []],
    );
    x.dispose();
    assert.throws(() => x.tolist(), FreedError);
    await assert.rejects(x.read(), FreedError);
    assert.deepEqual(
      new FakeTensorMode().run(() => zeros([0]).tolist()),
      [],
    );
  });
});
