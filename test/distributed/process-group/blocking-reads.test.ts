/**
 * Blocking reads on local ranks, by the program or by an op: they are refused with advice if other
 * ranks must run first. Ops that only check values do not block.
 */
import assert from 'node:assert/strict';
import { allReduce, distributeTensor, initDeviceMesh, Shard } from '../../../lib/distributed.js';
import {
  DistributedError,
  float32,
  full,
  index,
  multinomial,
  ones,
  type Tensor,
  tensor,
} from '../../../lib/index.js';
import { describeOverEngines, onRanks, valuesOf } from '../support/on-ranks.js';

const ops: Record<string, (t: Tensor) => unknown> = {
  nonzero: (t) => t.nonzero(),
  maskedSelect: (t) => t.maskedSelect(t.gt(0)),
  'index with a mask': (t) => index(t, [t.gt(0)]),
  repeatInterleave: (t) => ones([2]).repeatInterleave(t.long()),
  bincount: (t) => t.long().bincount(),
};

describe('an op that reads values during a pending collective', () => {
  for (const [name, op] of Object.entries(ops)) {
    it(`is refused with the advice to await input.read() first: ${name}`, async () => {
      const errors = await onRanks(2, async () => {
        const t = ones([2]);
        allReduce(t);
        let message = 'none';
        try {
          op(t);
        } catch (error) {
          assert.ok(error instanceof DistributedError);
          message = error.message;
        }
        await t.read();
        op(t);
        return message;
      });
      // Whoever comes last does not have to wait.
      const [said] = errors.filter((message) => message !== 'none');
      assert.equal(errors.filter((message) => message === 'none').length, 1);
      assert.match(
        said as string,
        new RegExp(
          `^${name}: waiting here would block ranks .*: the allReduce of .*(\`await input.read\\(\\)\` before it|\`await t\\.\\w+Async\\(…\\)\` instead)`,
        ),
      );
    });
  }

  it('is none of those with Async in their names', async () => {
    const found = await onRanks(2, async () => {
      const t = tensor([0, 1, 2]);
      allReduce(t);
      const [rows, kept] = [t.nonzeroAsync(), t.maskedSelectAsync(t.gt(2))];
      return [(await rows).tolist(), (await kept).tolist()];
    });
    assert.deepEqual(found, [
      [[[1], [2]], [4]],
      [[[1], [2]], [4]],
    ]);
  });

  it('is none of those on distributed tensors, which they gather', async () => {
    const found = await onRanks(2, async () => {
      const mesh = initDeviceMesh('cpu', [2]);
      const t = distributeTensor(
        tensor([
          [0, 1],
          [2, 0],
        ]),
        mesh,
        [Shard(0)],
      );
      const [rows, kept] = [await t.nonzeroAsync(), await t.maskedSelectAsync(t.gt(0))];
      return [rows.shape, Array.from(await rows.read(), Number), [...(await kept.read())]];
    });
    assert.deepEqual(found, [
      [
        [2, 2],
        [0, 1, 1, 0],
        [1, 2],
      ],
      [
        [2, 2],
        [0, 1, 1, 0],
        [1, 2],
      ],
    ]);
  });

  it('is neither multinomial nor bernoulli: they check their values later', async () => {
    const drawn = await onRanks(2, async () => {
      const weights = tensor([0, 1, 0], { dtype: float32 });
      allReduce(weights);
      const picked = multinomial(weights, 4, { replacement: true });
      const flips = weights.div(2).bernoulli();
      return [...(await picked.read()), ...(await flips.read())].map(Number);
    });
    assert.deepEqual(drawn, [
      [1, 1, 1, 1, 0, 1, 0],
      [1, 1, 1, 1, 0, 1, 0],
    ]);
  });
});

describeOverEngines('a blocking read of a local rank', () => {
  it('is refused if other ranks must run first, and awaiting works', async () => {
    await onRanks(3, async (rank) => {
      const x = full([2], rank);
      allReduce(x);
      if (rank < 2) {
        for (const read of [() => x.tolist(), () => x.sum().item(), () => x.toTypedArray()]) {
          assert.throws(read, (error: DistributedError) => {
            assert.ok(error instanceof DistributedError);
            return /the allReduce of group "world" that came before (ranks 1, 2 have|rank 2 has) not called yet\. Use `await t\.read\(\)`/.test(
              error.message,
            );
          });
        }
      } else assert.deepEqual(x.tolist(), [3, 3]);
      assert.deepEqual(await valuesOf(x), [3, 3]);
      assert.deepEqual(x.tolist(), [3, 3]);
    });
  });

  it('is not needed to enqueue any number of ops', async () => {
    const begin = Date.now();
    const values = await onRanks(2, async () => {
      const x = ones([2]);
      allReduce(x);
      for (let i = 0; i < 30_000; i++) x.add_(1);
      return x.sum().itemAsync();
    });
    assert.deepEqual(values, [60_004, 60_004]);
    assert.ok(
      Date.now() - begin < 4000,
      'JavaScript waited for a stream that waits for another rank',
    );
  });
});
