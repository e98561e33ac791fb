/** Local ranks with tensors over ArrayBuffers, whose memory may change while a collective waits. */
import assert from 'node:assert/strict';
import { allReduce, broadcast } from '../../../lib/distributed.js';
import { fromBlob, KernelError, ones } from '../../../lib/index.js';
import { onRanks } from '../support/on-ranks.js';

const COUNT = 50_000;

describe('local ranks with tensors over ArrayBuffers', () => {
  it('read the values at the call of an op, even behind a pending collective', async () => {
    const sums = await onRanks(2, async (rank) => {
      const array = new Float32Array(COUNT).fill(rank + 1);
      const total = ones([COUNT]);
      const work = allReduce(total);
      // behind the collective, which waits for the other rank
      const sum = total.add(fromBlob(array));
      array.fill(9);
      await work;
      return (await sum.max().read())[0];
    });
    assert.deepEqual(sums, [3, 4]);
  });

  it('send them, and get an error if they receive into them', async () => {
    const received = await onRanks(2, async (rank) => {
      const lent = fromBlob(new Float32Array(8).fill(rank + 5));
      await assert.rejects(
        async () => allReduce(lent),
        (error: Error) =>
          error instanceof KernelError && /ArrayBuffer.*clone\(\)/s.test(error.message),
      );
      const copy = lent.clone();
      await allReduce(copy);
      return (await copy.read())[0];
    });
    assert.deepEqual(received, [11, 11]);
  });

  it('get an error if an in-place op would wait for another rank', async () => {
    await onRanks(2, async (rank) => {
      const total = ones([COUNT]);
      const lent = fromBlob(new Float32Array(COUNT));
      const work = broadcast(total, 0);
      const refused = (error: Error): boolean =>
        error instanceof KernelError && /Await that work first/.test(error.message);
      // the other one has yet to call it
      if (rank === 0) assert.throws(() => lent.add_(total), refused);
      await work;
      await total.read(); // what waits for the collective has seen that it is done
      lent.add_(ones([COUNT]));
      assert.equal((await lent.read())[COUNT - 1], 1);
    });
  });
});
