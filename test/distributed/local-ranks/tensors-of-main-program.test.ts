/** Tensors of local ranks and of the main program, and how they pass between both. */
import assert from 'node:assert/strict';
import { allGatherIntoTensor, allReduce, barrier } from '../../../lib/distributed.js';
import { DeviceError, ones, type Tensor, tensor, zeros } from '../../../lib/index.js';
import { onRanks } from '../support/on-ranks.js';

describe('the tensors of a local rank', () => {
  it('do not mix with those of another rank, and errors name both ranks', async () => {
    let theirs: Tensor | undefined;
    await onRanks(2, async (rank) => {
      if (rank === 0) {
        theirs = ones([2]);
        await barrier();
        return;
      }
      const x = ones([2]);
      const other = theirs as Tensor;
      for (const mix of [
        () => x.add(other),
        () => x.copy_(other),
        () => other.copy_(x),
        () => other.to('cpu'),
        () => allReduce(other),
        () => allGatherIntoTensor(zeros([4]), other),
      ]) {
        assert.throws(
          mix,
          (error: DeviceError) =>
            error instanceof DeviceError && /cpu of rank 0/.test(error.message),
        );
      }
      await barrier();
    });
  });

  it('can come from the main program, and return there after the ranks have ended', async () => {
    const given = tensor([1, 2, 3]);
    const [a, b] = await onRanks(2, async (rank) => {
      const x = given.to('cpu');
      assert.ok(x.device !== given.device);
      allReduce(x);
      x.add_(ones([3]).copy_(given));
      return x.mul(rank + 1);
    });
    assert.deepEqual(
      [a?.tolist(), b?.tolist()],
      [
        [3, 6, 9],
        [6, 12, 18],
      ],
    );
    assert.deepEqual(a?.to('cpu').add(given).tolist(), [4, 8, 12]);
  });
});
