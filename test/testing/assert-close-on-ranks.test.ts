/** `assertClose` of distributed tensors, and on several ranks. */
import assert from 'node:assert/strict';
import {
  CommDebugMode,
  DTensor,
  distributeTensor,
  initDeviceMesh,
  launch,
  Partial,
  Replicate,
  Shard,
} from '../../lib/distributed.js';
import { arange, ones, tensor } from '../../lib/index.js';
import { assertClose, assertCloseAsync, withRanks } from '../../lib/testing/index.js';

const message = async (run: () => unknown): Promise<string> => {
  try {
    await run();
  } catch (error) {
    return (error as Error).message;
  }
  return 'passed';
};

describe('assertClose of distributed tensors', () => {
  it(
    'compares equal placements by shard, without communication, and gives whole indices',
    withRanks(2, async (rank) => {
      const mesh = initDeviceMesh('cpu', [2]);
      const whole = arange(8, { dtype: 'float32' }).view([4, 2]);
      const changed = whole.clone();
      changed.select(0, 3).fill_(0);
      const [a, e] = [changed, whole].map((t) => distributeTensor(t, mesh, [Shard(0)])) as [
        DTensor,
        DTensor,
      ];
      await a.toLocal().read();
      await e.toLocal().read();
      const mode = new CommDebugMode();
      const found = await mode.run(() => message(() => assertClose(a, e)));
      assert.equal(mode.getTotalCounts(), 0);
      if (rank === 0) assert.equal(found, 'passed');
      else {
        assert.match(found, /^assertClose on rank 1 of 2: 2 of 4 elements differ/);
        assert.match(found, /absolute difference: 7 at \[3, 1\]/);
        assert.match(found, /on mesh \(2\): \[Shard\(0\)\]: the shard of this rank$/);
      }
    }),
  );

  it(
    'compares other placements, partial values and plain tensors by their whole values',
    withRanks(2, async (rank) => {
      const mesh = initDeviceMesh('cpu', [2]);
      const plain = ones([4]);
      const sharded = distributeTensor(plain, mesh, [Shard(0)]);
      const partial = DTensor.fromLocal(plain.mul(rank), mesh, [Partial()]);
      const other = DTensor.fromLocal(plain.mul(1 - rank), mesh, [Partial()]);
      await assertCloseAsync(sharded, distributeTensor(plain, mesh, [Replicate()]));
      await assertCloseAsync(partial, other);
      await assertCloseAsync(partial, plain);
      const wrong = tensor([1, 1, 1, 5]);
      const found = await message(() => assertCloseAsync(sharded, wrong));
      assert.match(found, new RegExp(`on rank ${rank} of 2: 1 of 4 elements differ`));
      assert.match(found, /at \[3\]/);
      assert.match(found, /expected float32\[4\], got float32\[4\] on mesh/);
    }),
  );

  it(
    'says what to call where it would block the other ranks',
    withRanks(2, async (rank) => {
      const sharded = distributeTensor(ones([4]), initDeviceMesh('cpu', [2]), [Shard(0)]);
      const found = await message(() => assertClose(sharded, ones([4])));
      // The last rank to come need not wait for others.
      const advice = /^assertClose: waiting here .*Use `await assertCloseAsync\(…\)` instead/;
      if (rank === 0) assert.match(found, advice);
      await assertCloseAsync(sharded, ones([4]));
    }),
  );

  it('names the rank of a launch', async () => {
    const failing = launch(2, async (rank) => assertClose(rank, 0));
    await assert.rejects(failing, /rank 1.*assertClose on rank 1 of 2: values differ/s);
  });
});
