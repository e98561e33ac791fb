/**
 * Views of distributed tensors: memory, autocast, gradients after in-place changes, and asStrided.
 */
import assert from 'node:assert/strict';
import {
  distributeTensor,
  initDeviceMesh,
  type Placement,
  Replicate,
  Shard,
} from '../../lib/distributed.js';
import { amp, arange, bfloat16, float32, linear, nn, ones, type Tensor } from '../../lib/index.js';
import { errorOf, onRanks, valuesOf } from '../distributed/support/on-ranks.js';

const whole = (t: Tensor): Promise<number[]> => valuesOf(t.sharding === null ? t : t.fullTensor());

describe('views of a distributed tensor', () => {
  it('by chunk and split can be as many as a dim is long', async () => {
    assert.equal(ones([17]).chunk(17).length, 17);
    assert.deepEqual(
      ones([1024])
        .split(128)
        .map((piece) => piece.shape),
      Array.from({ length: 8 }, () => [128]),
    );
    assert.throws(
      () => ones([4]).split([2.5, 1.5]),
      /split: sizes must be non-negative integers, got 2\.5/,
    );
    assert.throws(
      () => ones([4]).split('2' as unknown as number),
      /split: expected size to be a number or a list of sizes, got/,
    );
  });

  it('of long dims work when ranks exchange their shards', async () => {
    const seen = await onRanks(8, async () => {
      const mesh = initDeviceMesh('cpu', [8]);
      const columns = distributeTensor(
        arange(8 * 4096, { dtype: float32 }).reshape([8, 4096]),
        mesh,
        [Shard(1)],
      );
      const rows = columns.redistribute(mesh, [Shard(0)]);
      return [rows.toLocal().shape, Number((await valuesOf(rows.toLocal()))[1])];
    });
    assert.deepEqual(
      seen,
      Array.from({ length: 8 }, (_, rank) => [[1, 4096], rank * 4096 + 1]),
    );
    const many = await onRanks(17, async () => {
      const mesh = initDeviceMesh('cpu', [17]);
      return (
        await valuesOf(
          distributeTensor(arange(34).reshape([2, 17]), mesh, [Shard(0)])
            .redistribute(mesh, [Shard(1)])
            .toLocal(),
        )
      ).map(Number);
    });
    assert.deepEqual(
      many,
      Array.from({ length: 17 }, (_, rank) => [rank, 17 + rank]),
    );
  });

  for (const placement of [Replicate(), Shard(0), Shard(1)] as readonly Placement[]) {
    it(`of ${placement} are converted one by one under autocast`, async () => {
      const thirds = (x: Tensor, weight: Tensor): Tensor[] =>
        amp.autocast({ deviceType: 'cpu', dtype: bfloat16 }, () =>
          weight.chunk(3, 0).map((part) => linear(x, part)),
        );
      await onRanks(2, async () => {
        const mesh = initDeviceMesh('cpu', [2]);
        const values = arange(24, { dtype: float32 }).reshape([6, 4]);
        const [alone, shared] = [
          new nn.Parameter(values),
          new nn.Parameter(distributeTensor(values, mesh, [placement])),
        ];
        const [wanted, got] = [
          thirds(ones([1, 4]), alone),
          thirds(distributeTensor(ones([1, 4]), mesh, [Replicate()]), shared),
        ];
        for (const [i, each] of wanted.entries())
          assert.deepEqual(await whole(got[i] as Tensor), await whole(each));
        for (const each of [wanted, got])
          each
            .reduce((sum, y, i) => sum.add(y.mul(i + 1)), each[0] as Tensor)
            .sum()
            .backward();
        assert.deepEqual(await whole(shared.grad as Tensor), await whole(alone.grad as Tensor));
      });
    });
  }

  it('have the new values and no gradient after an in-place change', async () => {
    await onRanks(2, async () => {
      const mesh = initDeviceMesh('cpu', [2]);
      for (const placement of [Replicate(), Shard(1)]) {
        const x = distributeTensor(ones([2, 4]), mesh, [placement]).requiresGrad_();
        const y = x.mul(1);
        const row = y.select(0, 1);
        y.mul_(3);
        assert.deepEqual(await whole(row), [3, 3, 3, 3]);
        const error = await errorOf((async () => row.sum().backward())());
        assert.equal(error.code, 'ERR_IN_PLACE');
        assert.match(
          error.message,
          /^backward: expected a view created after the in-place change of its distributed base, got one created before it/,
        );
        y.select(0, 1).sum().backward();
        assert.deepEqual(await whole(x.grad as Tensor), [0, 0, 0, 0, 3, 3, 3, 3]);
      }
    });
  });

  it('are set to each other if the views of their local shards are', async () => {
    await onRanks(2, async () => {
      const mesh = initDeviceMesh('cpu', [2]);
      const x = distributeTensor(arange(16).reshape([4, 4]), mesh, [Replicate()]);
      assert.equal(x.narrow(0, 0, 2).isSetTo(x.narrow(0, 2, 2)), false);
      assert.equal(x.narrow(0, 2, 2).isSetTo(x.narrow(0, 2, 2)), true);
    });
  });

  it('allow asStrided on a contiguous tensor only', async () => {
    await onRanks(2, async () => {
      const mesh = initDeviceMesh('cpu', [2]);
      for (const placement of [Replicate(), Shard(0), Shard(1)]) {
        const x = distributeTensor(arange(16).reshape([4, 4]), mesh, [placement]);
        assert.deepEqual((await whole(x.asStrided([4], [5], 0))).map(Number), [0, 5, 10, 15]);
        for (const view of [x.narrow(0, 2, 2), x.t()]) {
          assert.throws(
            () => view.asStrided([2], [1]),
            /asStrided: expected a plain tensor or a contiguous one, got a view of .*Use narrow, select, t or unfold, or toLocal\(\) first/s,
          );
        }
        assert.throws(
          () => x.asStrided([4], [6], 0),
          /asStrided: size \[4\], stride \[6\], offset 0 reach outside the storage/,
        );
      }
    });
  });
});
