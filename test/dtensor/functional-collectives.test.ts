/** Collectives that return new tensors: values and gradients against plain computation. */
import assert from 'node:assert/strict';
import { functional, initDeviceMesh, waitTensor } from '../../lib/distributed.js';
import { arange, float64, type Tensor } from '../../lib/index.js';
import { withRanks } from '../../lib/testing/index.js';

const list = async (t: Tensor): Promise<number[]> => [...(await t.read())].map(Number);
const matrix = (rank: number): Tensor =>
  arange(8, { dtype: float64 })
    .view([2, 4])
    .add(rank * 10);

describe('functional collectives', () => {
  it(
    'reduce, and pass gradients on',
    withRanks(2, async (rank) => {
      const x = matrix(rank).requiresGrad_();
      const sum = functional.allReduce(x, 'sum');
      assert.deepEqual(await list(sum.detach()), await list(matrix(0).add(matrix(1))));
      sum
        .mul(rank + 1)
        .sum()
        .backward();
      assert.deepEqual(await list(x.grad as Tensor), Array(8).fill(3));
    }),
  );

  it(
    'gather along any dim, and scatter the gradients',
    withRanks(2, async (rank) => {
      const mesh = initDeviceMesh('cpu', [2]);
      const x = matrix(rank).requiresGrad_();
      const whole = functional.allGatherTensor(x, -1, mesh);
      assert.deepEqual(whole.shape, [2, 8]);
      const [first, second] = [matrix(0), matrix(1)];
      assert.deepEqual(await list(whole.detach().narrow(1, 0, 4).contiguous()), await list(first));
      assert.deepEqual(await list(whole.detach().narrow(1, 4, 4).contiguous()), await list(second));
      whole
        .mul(rank + 1)
        .sum()
        .backward();
      assert.deepEqual(await list(x.grad as Tensor), Array(8).fill(3));
    }),
  );

  it(
    'reduce and scatter, exchange, broadcast, and wait for nothing',
    withRanks(2, async (rank) => {
      const part = functional.reduceScatterTensor(matrix(rank), 'sum', 1);
      assert.deepEqual(
        await list(part.contiguous()),
        await list(
          matrix(0)
            .add(matrix(1))
            .narrow(1, 2 * rank, 2)
            .contiguous(),
        ),
      );
      const swapped = functional.allToAllSingle(matrix(rank), null, null);
      assert.deepEqual(await list(swapped), [...(await list(matrix(0).narrow(0, rank, 1))), ...(await list(matrix(1).narrow(0, rank, 1)))]);
      const uneven = functional.allToAllSingle(matrix(rank), rank === 0 ? [2, 2] : [0, 0], [2, 0]);
      assert.deepEqual(uneven.shape, [rank === 0 ? 4 : 0, 4]);
      const shared = functional.broadcast(matrix(rank), 1);
      assert.equal(waitTensor(shared), shared);
      assert.deepEqual(await list(shared), await list(matrix(1)));
      assert.throws(() => functional.reduceScatterTensor(matrix(0).narrow(1, 0, 3), 'sum', 1), /3 of \[2, 3\] along dim 1 cannot be cut into 2 equal parts/);
    }),
  );
});
