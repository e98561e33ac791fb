/** Collectives that return new tensors: values and gradients against plain computation. */
import assert from 'node:assert/strict';
import {
  AsyncCollectiveTensor,
  barrier,
  DTensor,
  destroyProcessGroup,
  functional,
  gather,
  initDeviceMesh,
  initProcessGroup,
  newGroup,
  Replicate,
  Shard,
  scatter,
  waitTensor,
} from '../../lib/distributed.js';
import { ArgumentError, arange, float64, ShapeError, Tensor, zeros } from '../../lib/index.js';
import { withRanks } from '../../lib/testing/index.js';
import { describeOverEngines, errorOf, onRanks } from '../distributed/support/on-ranks.js';

const list = async (t: Tensor): Promise<number[]> => [...(await t.read())].map(Number);
const matrix = (rank: number): Tensor =>
  arange(8, { dtype: float64 })
    .view([2, 4])
    .add(rank * 10);

describe('functional collectives', () => {
  it(
    'allReduce reduces values and gradients',
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
    'broadcast sums the gradients of all ranks on the source',
    withRanks(3, async (rank) => {
      const x = matrix(rank).requiresGrad_();
      const sent = functional.broadcast(x.mul(2), 1);
      assert.deepEqual(await list(sent.detach()), await list(matrix(1).mul(2)));
      sent
        .mul(rank + 1)
        .sum()
        .backward();
      assert.deepEqual(await list(x.grad as Tensor), Array(8).fill(rank === 1 ? 12 : 0));
    }),
  );

  it(
    'allGatherTensor gathers along any dim, and its gradient is scattered',
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
    'return AsyncCollectiveTensors until waitTensor is called',
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
      assert.throws(
        () => functional.broadcast(x, 7),
        /functional\.broadcast: src 7 is not of group "world" \(ranks 0, 1\)/,
      );
      await barrier();
    }),
  );

  it(
    'redistribute with asyncOp gives an AsyncCollectiveTensor if data moves',
    withRanks(2, async () => {
      const mesh = initDeviceMesh('cpu', [2]);
      const rows = DTensor.fromLocal(matrix(0), mesh, [Shard(0)]);
      const isAsync = (t: Tensor): boolean => t instanceof AsyncCollectiveTensor;
      const local = rows.redistribute([Replicate()], { asyncOp: true }).toLocal();
      assert.deepEqual([isAsync(local), isAsync(waitTensor(local))], [true, false]);
      const others = [
        rows.redistribute([Shard(0)], { asyncOp: true }),
        rows.redistribute([Replicate()]),
        rows,
      ];
      assert.ok(!others.some((t) => isAsync(t.toLocal())));
      await barrier();
    }),
  );

  it(
    'reduceScatterTensor, allToAllSingle and broadcast return without waiting',
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
      assert.deepEqual(await list(swapped), [
        ...(await list(matrix(0).narrow(0, rank, 1))),
        ...(await list(matrix(1).narrow(0, rank, 1))),
      ]);
      const uneven = functional.allToAllSingle(matrix(rank), rank === 0 ? [2, 2] : [0, 0], [2, 0]);
      assert.deepEqual(uneven.shape, [rank === 0 ? 4 : 0, 4]);
      const shared = functional.broadcast(matrix(rank), 1);
      assert.equal(waitTensor(shared), shared);
      assert.deepEqual(await list(shared), await list(matrix(1)));
      assert.throws(
        () => functional.reduceScatterTensor(matrix(0).narrow(1, 0, 3), 'sum', 1),
        /expected a size along dim 1 that 2 ranks divide, got 3 of \[2, 3\]/,
      );
    }),
  );
});

/** Rows of a matrix of [6, 2], as the ranks have them: 3, none and 3. */
const sizes = [3, 0, 3];
const numbered = (): Tensor => arange(12, { dtype: float64 }).view([6, 2]);
const ownRows = (place: number): Tensor =>
  numbered().narrow(0, place === 2 ? 3 : 0, sizes[place] as number);

async function gatherUneven(place: number): Promise<void> {
  const rows = ownRows(place).clone().requiresGrad_();
  const whole = functional.allGatherTensor(rows, 0, undefined, { sizes });
  assert.ok(whole instanceof AsyncCollectiveTensor);
  assert.deepEqual([whole.shape, await list(whole.detach())], [[6, 2], await list(numbered())]);
  whole
    .mul(numbered())
    .mul(place + 1)
    .sum()
    .backward();
  assert.deepEqual(await list(rows.grad as Tensor), await list(ownRows(place).mul(6)));
  const columns = functional.allGatherTensor(ownRows(place).t(), -1, undefined, { sizes });
  assert.deepEqual(await list(columns.t().contiguous()), await list(numbered()));
}

describeOverEngines('allGatherTensor of different sizes', () => {
  it('gathers values and gradients if the sizes of all ranks are given', async () => {
    await onRanks(3, gatherUneven);
  });

  it('works within a group, in the order of the group', async () => {
    await onRanks(4, async (rank) => {
      const group = newGroup([3, 0, 1]);
      if (rank === 2) return;
      const whole = functional.allGatherTensor(ownRows(group.rank), 0, group, { sizes });
      assert.deepEqual(await list(whole), await list(numbered()));
    });
  });

  const site = /functional-collectives\.test\.[jt]s:\d+:\d+\)?/.source;

  it('without sizes, reports the shape of each rank and how to pass sizes', async () => {
    const error = await errorOf(
      onRanks(2, async (rank) => functional.allGatherTensor(zeros([4, 2 + rank]), 1).read()),
    );
    const said = (rank: number): string =>
      `allGather of ${4 + 2 * rank} float32 at .*${site} in each of 4 blocks \\(${2 + rank} along the dim of the ranks\\)`;
    const advice =
      'Where parts differ along the gathered dim, give functional\\.allGatherTensor the sizes of all ranks, \\{ sizes \\}';
    assert.match(
      error.message,
      new RegExp(
        `rank (0 called ${said(0)}, this rank ${said(1)}|1 called ${said(1)}, this rank ${said(0)})\\. ${advice}`,
      ),
    );
  });

  it('reports other dims that differ, and different sizes lists of ranks', async () => {
    const shapes = await errorOf(
      onRanks(2, async (rank) => functional.allGatherTensor(zeros([2, 3 + rank]), 0).read()),
    );
    assert.match(
      shapes.message,
      /\(6 of them its own, 2 along the gathered dim\).*\(8 of them|\(8 of them its own, 2 along the gathered dim\).*\(6 of them/,
    );
    assert.match(shapes.message, /along other dims they are the same/);
    const given = await errorOf(
      onRanks(2, async (rank) =>
        functional
          .allGatherTensor(zeros([2]), 0, undefined, { sizes: rank === 0 ? [2, 4] : [4, 2] })
          .read(),
      ),
    );
    assert.match(
      given.message,
      /rank \d called allGather of 6 float32 at .*, this rank allGather of 6 float32 at .* with other sizes per rank/,
    );
  });

  it('is refused by gather and scatter', async () => {
    const gathered = await errorOf(
      onRanks(2, async (rank) => {
        const t = zeros([2 + rank]);
        gather(t, rank === 0 ? { gatherList: [zeros([2]), zeros([2])] } : {});
        await t.read();
      }),
    );
    assert.match(gathered.message, /gather of 4 float32 to rank 0 at .* \(2 of them its own\)/);
    assert.match(gathered.message, /gather of 6 float32 to rank 0 at .* \(3 of them its own\)/);
    assert.match(
      gathered.message,
      /\. All ranks give gather as much: allGather takes different sizes, and so do isend and irecv/,
    );
    const scattered = await errorOf(
      onRanks(2, async (rank) => {
        const t = zeros([2 + rank]);
        scatter(t, rank === 0 ? { scatterList: [zeros([2]), zeros([2])] } : {});
        await t.read();
      }),
    );
    assert.match(scattered.message, /scatter of 4 float32 from rank 0 at .* \(2 for each rank\)/);
    assert.match(scattered.message, /scatter of 6 float32 from rank 0 at .* \(3 for each rank\)/);
    assert.match(
      scattered.message,
      /\. All ranks get as much from scatter: allToAll takes different sizes, and so do isend and irecv/,
    );
  });
});

describe('allGatherTensor of different sizes', () => {
  it('works in processes', withRanks(3, gatherUneven, { mode: 'process' }));

  it('has the whole shape in a fake world', async () => {
    await initProcessGroup('fake', { rank: 1, worldSize: 3 });
    assert.deepEqual(
      functional.allGatherTensor(zeros([0, 2]), 0, undefined, { sizes }).shape,
      [6, 2],
    );
    destroyProcessGroup();
  });

  it(
    'requires one valid size for each rank, and the right one for this rank',
    withRanks(2, async (rank) => {
      const x = zeros([2, 3]);
      const refused = (
        options: object,
        type: new (...args: never[]) => Error,
        text: RegExp,
      ): void =>
        assert.throws(
          () => functional.allGatherTensor(x, 1, undefined, options),
          (error: Error) => error instanceof type && text.test(error.message),
        );
      const op = 'functional\\.allGatherTensor: ';
      for (const wrong of [3, null, '33', [3, 0.5], [3, '3']])
        refused(
          { sizes: wrong },
          ArgumentError,
          new RegExp(`^${op}expected sizes to be an array of whole numbers`),
        );
      for (const wrong of [[], [3], [3, 3, 3], [3, -1]])
        refused(
          { sizes: wrong },
          ShapeError,
          new RegExp(
            `^${op}expected sizes to be 2 sizes, one for each rank of group "world", got \\[${wrong.join(', ')}\\]`,
          ),
        );
      refused(
        { sizes: [4, 4] },
        ShapeError,
        new RegExp(
          `^${op}expected the input to have size 4 along dim 1, which is sizes\\[${rank}\\], got shape \\[2, 3\\]`,
        ),
      );
      refused({ size: [3, 3] }, ArgumentError, new RegExp(`^${op}there is no option "size"`));
      await barrier();
    }),
  );
});
