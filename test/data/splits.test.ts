/** Datasets of tensors, and parts of datasets. */
import assert from 'node:assert/strict';
import { DataLoader, randomSplit, Subset, TensorDataset } from '../../lib/data/index.js';
import { arange, ones, type Tensor } from '../../lib/index.js';

const upTo = (length: number): number[] => Array.from({ length }, (_, i) => i);

describe('TensorDataset', () => {
  it('gives batches of rows of each tensor', async () => {
    const dataset = new TensorDataset(arange(10).reshape(5, 2), arange(5));
    const batches: unknown[] = [];
    for await (const [x, y] of new DataLoader(dataset, { batchSize: 2, dropLast: true })) {
      const typed: [Tensor, Tensor] = [x, y];
      batches.push(typed.map((t) => t.tolist()));
    }
    assert.deepEqual(batches, [
      [
        [
          [0, 1],
          [2, 3],
        ],
        [0, 1],
      ],
      [
        [
          [4, 5],
          [6, 7],
        ],
        [2, 3],
      ],
    ]);
  });

  it('refuses other lengths, and is what a tensor itself is not', () => {
    assert.throws(() => new TensorDataset(ones([2]), ones([3])), /equally many rows.*\[2\], \[3\]/);
    assert.throws(() => new TensorDataset(), /expected tensors to be one tensor or more/);
    assert.throws(
      () => new DataLoader(ones([2]) as never),
      /such as new TensorDataset\(t\), got a T/,
    );
  });
});

describe('parts of datasets', () => {
  it('divide it by lengths and by fractions, the same for a seed', async () => {
    const all = upTo(11).map((i) => i * 10);
    for (const [lengths, sizes] of [
      [
        [6, 0, 5],
        [6, 0, 5],
      ],
      [
        [0.5, 0.25, 0.25],
        [6, 3, 2], // 5, 2 and 2, and one of what is left for each of the first
      ],
    ] as const) {
      const parts = randomSplit(all, lengths, { seed: 3 });
      assert.deepEqual(
        parts.map(({ length }) => length),
        sizes,
      );
      const samples = await Promise.all(
        parts.flatMap((part) => upTo(part.length).map((i) => part.get(i))),
      );
      assert.notDeepEqual(samples, all);
      assert.deepEqual(
        [...samples].sort((a, b) => a - b),
        all,
      );
      const again = randomSplit(all, lengths, { seed: 3 });
      assert.deepEqual(
        again.map(({ indices }) => indices),
        parts.map(({ indices }) => indices),
      );
    }
  });

  it('refuse streams, wrong sums and indices that the dataset does not have', () => {
    const stream = { *[Symbol.iterator]() {} };
    assert.throws(() => new Subset(stream as never, [0]), /an array or a dataset with a length/);
    assert.throws(
      () => new Subset([1, 2], [2]),
      /an index to be a whole number from 0 to 1, got 2/,
    );
    assert.throws(() => randomSplit([1, 2], [1, 2]), /whose sum is 2, or fractions .* got 3/);
    assert.throws(() => randomSplit([1, 2], [0.5, 0.4]), /fractions whose sum is 1, got 0\.9/);
  });
});
