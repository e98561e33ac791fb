/** Ranks of GPUs wait beyond their timeout for one that is idle: nothing runs on a GPU meanwhile. */
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { allReduce, barrier, broadcastObjectList, launch, recv } from '../../../lib/distributed.js';
import { cuda, ones, zeros } from '../../../lib/index.js';
import { skipBecause, skipWithoutCuda } from '../../skip.js';

const patient = { timeoutMs: Number.POSITIVE_INFINITY };
const device = 'cuda' as const;

describe('a wait without a limit of ranks with a GPU each', function () {
  this.timeout(120_000);
  before(function () {
    skipWithoutCuda(this);
    if (cuda.deviceCount() < 2) skipBecause(this, 'it needs two GPUs');
  });

  for (const backend of ['nccl', 'cpu:shm,cuda:nccl'] as const) {
    it(`goes on while a rank is idle, by ${backend}`, async () => {
      await launch(
        2,
        async (rank) => {
          const t = ones([4], { device });
          allReduce(t); // the group of the GPUs begins within the timeout
          await t.read();
          for (const wait of [
            () => barrier(patient),
            async () => {
              const list = [rank === 0 ? 'go' : null];
              await broadcastObjectList(list, 0, { ...patient, device });
              assert.deepEqual(list, ['go']);
            },
          ]) {
            if (rank === 0) await sleep(8_000);
            await wait();
          }
          allReduce(t);
          assert.deepEqual([...(await t.read())], [4, 4, 4, 4]);
          if (rank === 1)
            assert.throws(() => recv(zeros([1], { device }), 0, patient), /a tensor on the CPU/);
        },
        { backend, timeoutMs: 5_000 },
      );
    });
  }

  it('ends at once if the rank throws', async () => {
    const seen: string[] = [];
    const running = launch(
      2,
      async (rank) => {
        await barrier();
        if (rank === 0) throw new RangeError('boom');
        await barrier(patient).catch((error: Error) => seen.push(error.message));
      },
      { backend: 'nccl', timeoutMs: 60_000 },
    );
    await assert.rejects(running, /rank 0 failed: boom/);
    assert.match(String(seen), /rank 0 failed: boom/);
  });
});
