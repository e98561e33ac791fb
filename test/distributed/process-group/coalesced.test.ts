/** Gathers and reduce-scatters of several tensors in one call. */
import assert from 'node:assert/strict';
import {
  allGatherIntoTensor,
  allGatherIntoTensorCoalesced,
  CommDebugMode,
  destroyProcessGroup,
  initProcessGroup,
  reduceScatterTensorCoalesced,
} from '../../../lib/distributed.js';
import {
  ArgumentError,
  arange,
  CollectiveError,
  DtypeError,
  float32,
  ones,
  ShapeError,
  type Tensor,
  tensor,
  zeros,
} from '../../../lib/index.js';
import { describeOverEngines, onRanks } from '../support/on-ranks.js';

const counting = (count: number, from = 0): Tensor => arange(count, { dtype: float32 }).add(from);

const valuesOf = async (t: Tensor): Promise<number[]> =>
  [...(await t.reshape([-1]).read())].map(Number);

/** What ranks 0 and up hold one after the other. */
const expected = (ranks: number, count: number): number[] =>
  Array.from({ length: ranks }, (_, r) =>
    Array.from({ length: count }, (_, i) => 100 * r + i),
  ).flat();

describeOverEngines('collectives of several tensors', () => {
  for (const ranks of [1, 2, 3])
    it(`gather each tensor of ${ranks} ranks into its output, of any size and layout`, async () => {
      await onRanks(ranks, async (rank) => {
        const sizes = [3, 1, 0, 50_000];
        const outputs = sizes.map((size) => zeros([ranks * size]));
        const strided = zeros([2, ranks]).t();
        allGatherIntoTensorCoalesced(
          [...outputs, strided],
          [...sizes, 2].map((size) => counting(size, 100 * rank)),
        );
        for (const [i, output] of outputs.entries())
          assert.deepEqual(await valuesOf(output), expected(ranks, sizes[i] as number));
        assert.deepEqual(await valuesOf(strided), expected(ranks, 2));
      });
    });

  it('gather in place, and copy inputs that overlap their output otherwise', async () => {
    await onRanks(2, async (rank) => {
      const [own, shifted] = [zeros([4]), counting(4, 100 * rank)];
      own.narrow(0, 2 * rank, 2).copy_(counting(2, 100 * rank));
      allGatherIntoTensorCoalesced(
        [own, shifted],
        [own.narrow(0, 2 * rank, 2), shifted.narrow(0, 1, 2)],
      );
      assert.deepEqual(await valuesOf(own), [0, 1, 100, 101]);
      assert.deepEqual(await valuesOf(shifted), [1, 2, 101, 102]);
    });
  });

  for (const ranks of [1, 2, 3])
    it(`reduce each tensor of ${ranks} ranks into the shard of each rank`, async () => {
      await onRanks(ranks, async (rank) => {
        const sizes = [2, 0, 20_000];
        const outputs = sizes.map((size) => zeros([size]));
        reduceScatterTensorCoalesced(
          outputs,
          sizes.map((size) => counting(ranks * size).mul(rank + 1)),
        );
        const sum = (ranks * (ranks + 1)) / 2;
        for (const [i, size] of sizes.entries())
          assert.deepEqual(
            await valuesOf(outputs[i] as Tensor),
            Array.from({ length: size }, (_, k) => (rank * size + k) * sum),
          );
        const average = zeros([1]);
        reduceScatterTensorCoalesced([average], [ones([ranks]).mul(rank)], { op: 'avg' });
        assert.deepEqual(await valuesOf(average), [(ranks - 1) / 2]);
      });
    });

  it('return a Work, and count as one collective with the bytes of all', async () => {
    await onRanks(2, async () => {
      const mode = new CommDebugMode();
      const outputs = [zeros([4]), zeros([6])];
      const work = mode.run(() =>
        allGatherIntoTensorCoalesced(outputs, [ones([2]), ones([3])], { asyncOp: true }),
      );
      await work.wait();
      assert.deepEqual(mode.getCommCounts(), { allGather: 1 });
      assert.deepEqual(mode.getCommBytes(), { bytes: 40, sentBytes: 20 });
      assert.deepEqual(await valuesOf(outputs[1] as Tensor), [1, 1, 1, 1, 1, 1]);
    });
  });

  it('are an error on ranks whose lists differ, or that call another collective', async () => {
    for (const [sizes, one] of [
      [[1, 3], false],
      [[4], true],
    ] as const)
      await onRanks(2, async (rank) => {
        const given = rank === 0 ? [2, 2] : [...sizes];
        const outputs = given.map((size) => zeros([2 * size]));
        if (rank === 1 && one) allGatherIntoTensor(outputs[0] as Tensor, zeros([4]));
        else
          allGatherIntoTensorCoalesced(
            outputs,
            given.map((size) => zeros([size])),
          );
        await assert.rejects(outputs[0]?.read() as Promise<unknown>, CollectiveError);
      });
  });
});

describe('the lists of a collective of several tensors', () => {
  it('are of equal lengths from 1, of one dtype, and of sizes that fit', async () => {
    await onRanks(2, () => {
      const [x, y] = [zeros([2]), zeros([4])];
      const gather = (outputs: readonly Tensor[], inputs: readonly Tensor[]) => () =>
        allGatherIntoTensorCoalesced(outputs, inputs);
      assert.throws(gather([], []), ArgumentError);
      assert.throws(gather([y], [x, x]), /got 1 outputs and 2 inputs/);
      assert.throws(gather(y as never, [x]), ArgumentError);
      assert.throws(gather([y, y.to('float64')], [x, x.to('float64')]), DtypeError);
      assert.throws(gather([y, y], [x, y]), ShapeError);
      assert.throws(() => reduceScatterTensorCoalesced([x, x], [y, x]), ShapeError);
    });
  });

  it('are filled by the fake engine as if all ranks had the same values', async () => {
    await initProcessGroup('fake', { rank: 1, worldSize: 3 });
    try {
      const [a, b] = [zeros([3]), zeros([3, 2])];
      allGatherIntoTensorCoalesced([a, b], [tensor([7]), tensor([8, 9])]);
      assert.deepEqual(await a.tolist(), [7, 7, 7]);
      assert.deepEqual(await valuesOf(b), [8, 9, 8, 9, 8, 9]);
      const part = zeros([2]);
      reduceScatterTensorCoalesced([part, a.narrow(0, 0, 1)], [counting(6), counting(3)]);
      assert.deepEqual(await valuesOf(part), [2, 3]);
      assert.equal((await valuesOf(a))[0], 1);
    } finally {
      destroyProcessGroup();
    }
  });
});
