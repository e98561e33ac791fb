/** Failures of native calls: the fields of their errors, and the reasons that native code takes. */
import assert from 'node:assert/strict';
import { identityOf } from '../../lib/core/unobserved-failures.js';
import { runLocalRanks } from '../../lib/distributed/local-ranks/run.js';
import { allReduce, CollectiveError, worldGroup } from '../../lib/distributed.js';
import { ones } from '../../lib/index.js';
import { type EncodedReason, encodeReason } from '../../lib/native/failure.js';
import type { NativeError } from '../../lib/native/guard.js';
import { addon } from '../../lib/runtime.js';

const memberOfWorld = (): number =>
  (worldGroup() as unknown as { engines: { member: number }[] }).engines[0]?.member as number;

async function failureAfter(reason: unknown): Promise<CollectiveError> {
  let seen: unknown;
  await runLocalRanks(
    1,
    async () => {
      await allReduce(ones([2]), { asyncOp: true })?.wait();
      addon.abortGroup(memberOfWorld(), reason as EncodedReason, 0);
      const work = allReduce(ones([2]), { asyncOp: true });
      seen = await work?.wait().then(
        () => null,
        (error: unknown) => error,
      );
    },
    { timeoutMs: 5000 },
  );
  assert.ok(seen instanceof CollectiveError, String(seen));
  return seen;
}

describe('the error of a native call', () => {
  it('has the numbers of the allocator as fields when memory runs out', () => {
    assert.throws(
      () => addon.allocate(addon.defaultStream(0), 2 ** 47, false),
      (error: NativeError) => {
        assert.equal(error.code, 'SW_OUT_OF_MEMORY');
        assert.ok((error.memory?.requestedBytes ?? 0) >= 2 ** 47);
        assert.ok((error.memory?.totalBytes ?? 0) > 0);
        assert.ok(error.message.includes(String(error.memory?.requestedBytes)));
        return true;
      },
    );
  });

  it('passes on the text, the id, the blamed ranks and the calls of an abort', async () => {
    const calls = [{ rank: 3, op: 'allGather', where: 'train.ts:7:1' }];
    const reason = {
      message: 'rank 3 failed: boom …',
      id: 2 ** 52 + 7,
      namesCreations: true,
      ranks: [3, 4, 5, 9],
      calls,
    };
    const error = await failureAfter(encodeReason(reason));
    assert.match(error.message, /rank 0 aborted the group: rank 3 failed: boom …/);
    assert.deepEqual(identityOf(error), { id: 2 ** 52 + 7, namesCreations: true });
    assert.deepEqual(error.details.ranks, [3, 4, 5, 9]);
    assert.deepEqual(
      error.details.calls?.filter(({ rank }) => rank === 3),
      calls,
    );
  });

  it('is the error of an abort even if the reason is malformed', async () => {
    const reasons: unknown[] = [
      undefined,
      null,
      3,
      {},
      [],
      [5, 'x', 1, 'abc', [1, null, {}, [-1]]],
      ['x'.repeat(5000), -1, false, [-1, Number.NaN, 2 ** 40], {}],
    ];
    for (const reason of reasons) {
      const error = await failureAfter(reason);
      assert.match(error.message, /rank 0 aborted the group: /);
      assert.ok((identityOf(error)?.id ?? 0) > 0);
    }
  });
});
