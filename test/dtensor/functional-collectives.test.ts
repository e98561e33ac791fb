/** Collectives that return new tensors: values and gradients against plain computation. */
import assert from 'node:assert/strict';
import { AsyncCollectiveTensor, barrier, DTensor, functional, initDeviceMesh, Replicate, Shard, waitTensor } from '../../lib/distributed.js';
import { arange, float64, Tensor } from '../../lib/index.js';
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
    'return tensors that tell they are results of collectives, until they are waited for',
    withRanks(2, async (rank) => {
      const x = matrix(rank);
      const results = [
        functional.allReduce(x, 'sum'),
        functional.allGatherTensor(x, 0),
        functional.reduceScatterTensor(x, 'sum', 0),
        functional.allToAllSingle(x, null, null),
        functional.broadcast(x, 0),
      ];
      for (const result of results) {
        assert.ok(result instanceof AsyncCollectiveTensor && result instanceof Tensor);
        assert.equal(result.add(1) instanceof AsyncCollectiveTensor, false);
        assert.equal(waitTensor(result) instanceof AsyncCollectiveTensor, false);
      }
      assert.equal((x as unknown) instanceof AsyncCollectiveTensor, false);
      assert.throws(() => functional.broadcast(x, 7), /functional\.broadcast: src 7 is not of group "world" \(ranks 0, 1\)/);
      await barrier();
    }),
  );

  it(
    'have their like in a redistribution with asyncOp, where something moves',
    withRanks(2, async () => {
      const mesh = initDeviceMesh('cpu', [2]);
      const rows = DTensor.fromLocal(matrix(0), mesh, [Shard(0)]);
      const isAsync = (t: Tensor): boolean => t instanceof AsyncCollectiveTensor;
      const local = rows.redistribute([Replicate()], { asyncOp: true }).toLocal();
      assert.deepEqual([isAsync(local), isAsync(waitTensor(local))], [true, false]);
      const others = [rows.redistribute([Shard(0)], { asyncOp: true }), rows.redistribute([Replicate()]), rows];
      assert.ok(!others.some((t) => isAsync(t.toLocal())));
      await barrier();
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
