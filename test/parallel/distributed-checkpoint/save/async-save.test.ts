/** Training goes on while a checkpoint is written, and the checkpoint is that of the call. */
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import {
  distributedCheckpoint,
  distributeTensor,
  initDeviceMesh,
  Shard,
} from '../../../../lib/distributed.js';
import { CheckpointError, full, memory, type Tensor, zeros } from '../../../../lib/index.js';
import { withRanks } from '../../../../lib/testing/index.js';

let folder: string;
before(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'shardwise-async-'));
});
after(() => rmSync(folder, { recursive: true, force: true }));

const sharded = (t: Tensor): Tensor => distributeTensor(t, initDeviceMesh('cpu', [2]), [Shard(0)]);
const valuesOf = async (t: Tensor): Promise<Set<unknown>> =>
  new Set<unknown>(
    (await (t as Tensor & { fullTensor(): Tensor }).fullTensor().read()) as Float32Array,
  );

describe('an asynchronous save', () => {
  it(
    'has the values of the call, whatever changes while it is written',
    withRanks(2, async () => {
      const own = path.join(folder, 'values');
      const t = sharded(full([3000, 100], 5));
      const state = { t, step: 1 };
      const saving = await distributedCheckpoint.save(own, state, { async: true });
      for (let i = 0; i < 20; i++) t.add_(1);
      state.step = 2;
      await saving.wait();
      await distributedCheckpoint.load(own, state);
      assert.equal(state.step, 1);
      assert.deepEqual(await valuesOf(t), new Set([5]));
    }),
  );

  it(
    'is complete before the next one begins',
    withRanks(2, async () => {
      const own = path.join(folder, 'order');
      const t = sharded(zeros([3000, 100]));
      for (let i = 1; i <= 5; i++) {
        t.fill_(i);
        await distributedCheckpoint.save(own, { t, i }, { async: true });
      }
      t.fill_(9);
      await distributedCheckpoint.save(own, { t, i: 9 });
      const state = { t: sharded(zeros([3000, 100])), i: 0 };
      await distributedCheckpoint.load(own, state);
      assert.equal(state.i, 9);
      assert.deepEqual(await valuesOf(state.t), new Set([9]));
    }),
  );

  it(
    'reports a failure at wait, on all ranks alike',
    withRanks(2, async () => {
      const own = path.join(folder, 'failing');
      mkdirSync(path.join(own, 'generation-1-rank-1.safetensors'), { recursive: true });
      const saving = await distributedCheckpoint.save(
        own,
        { t: sharded(zeros([8])) },
        { async: true },
      );
      await assert.rejects(
        saving.wait(),
        (error: unknown) =>
          error instanceof CheckpointError &&
          /rank 1: .*generation-1-rank-1.safetensors: cannot be written/.test(error.message),
      );
      await assert.rejects(saving.wait(), CheckpointError);
    }),
  );

  it(
    'reports a failure at the next save if nobody waited, and then saves again',
    withRanks(2, async (rank) => {
      const own = path.join(folder, 'unseen');
      const blocked = path.join(own, 'generation-1-rank-1.safetensors');
      mkdirSync(blocked, { recursive: true });
      const t = sharded(zeros([8]));
      const saving = await distributedCheckpoint.save(own, { t }, { async: true });
      if (rank === 0) await saving.wait().catch(() => {}); // rank 1 does not
      await assert.rejects(
        distributedCheckpoint.save(own, { t }),
        /rank 1: the save before failed, and nobody waited for it/,
      );
      if (rank === 1) rmSync(blocked, { recursive: true });
      await distributedCheckpoint.save(own, { t }).catch((error: Error) => error); // rank 1 may come later
      await distributedCheckpoint.save(own, { t });
    }),
  );

  it(
    'frees its copies',
    withRanks(1, async () => {
      const t = zeros([1000]);
      const own = path.join(folder, 'memory');
      // Garbage of other tests may be collected meanwhile; the copies take 4,000 bytes.
      const live = (): number => (memory.collect(), memory.stats().allocatedBytes);
      await (await distributedCheckpoint.save(own, { t }, { async: true })).wait();
      const before = live();
      await (await distributedCheckpoint.save(own, { t }, { async: true })).wait();
      assert.ok(live() <= before, 'bytes are left');
    }),
  );
});
