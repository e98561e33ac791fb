/** `defaultCollate`: which samples become which tensors. */
import assert from 'node:assert/strict';
import { DataLoader, defaultCollate } from '../../lib/data/index.js';
import { bool, float32, float64, int32, int64, ones, type Tensor } from '../../lib/index.js';

const shown = ({ shape, dtype }: Tensor): unknown => [shape, dtype];

describe('defaultCollate', () => {
  it('makes a tensor of numbers, booleans, bigints and arrays of numbers', () => {
    assert.deepEqual(shown(defaultCollate([1, 2, 3])), [[3], float32]);
    assert.deepEqual(shown(defaultCollate([true, false])), [[2], bool]);
    assert.deepEqual(defaultCollate([1n, 2n ** 60n]).tolist(), [1, 2n ** 60n]);
    assert.deepEqual(shown(defaultCollate([[[1, 2, 3]], [[4, 5, 6]]])), [[2, 1, 3], float32]);
  });

  it('gives typed arrays and tensors a dim in front', () => {
    const pairs = defaultCollate([Int32Array.of(1, 2), Int32Array.of(3, 4)]);
    assert.deepEqual(
      [shown(pairs), pairs.tolist()],
      [
        [[2, 2], int32],
        [
          [1, 2],
          [3, 4],
        ],
      ],
    );
    assert.deepEqual(shown(defaultCollate([new Float64Array(3)])), [[1, 3], float64]);
    assert.deepEqual(shown(defaultCollate([new BigInt64Array(3)])), [[1, 3], int64]);
    assert.deepEqual(shown(defaultCollate([ones([2, 3]), ones([2, 3])])), [[2, 2, 3], float32]);
  });

  it('makes batches of the values of objects and pairs, and lists of strings', () => {
    const batch = defaultCollate([
      { x: [1, 2], pair: [[3, 4], 1n] as const, name: 'a' },
      { x: [5, 6], pair: [[7, 8], 0n] as const, name: 'b' },
    ]);
    assert.deepEqual(batch.x.shape, [2, 2]);
    assert.deepEqual(batch.pair[0].tolist(), [
      [3, 4],
      [7, 8],
    ]);
    assert.deepEqual(batch.pair[1].tolist(), [1, 0]);
    assert.deepEqual(batch.name, ['a', 'b']);
  });

  it('names the value and the sample that differ', () => {
    const fails = (samples: unknown[], message: RegExp): void =>
      assert.throws(
        () => defaultCollate(samples),
        (error: Error & { code?: string }) => {
          assert.equal(error.code, 'ERR_DATA');
          assert.match(error.message, message);
          return true;
        },
      );
    fails([1, 'a'], /expected the samples to be a number, as in the first sample; sample 1 .* 'a'/);
    fails([{ x: [1] }, { x: [1, 2] }], /expected x of the samples to be numbers in arrays of 1/);
    fails([{ x: 1 }, { y: 1 }], /an object with x, as in the first sample; sample 1/);
    fails([{ a: { b: null } }], /expected a\.b of the samples to be numbers, .*has null/);
    fails(
      [new Uint8Array(2), new Uint8Array(3)],
      /a Uint8Array of 2, .* sample 1 of the batch has an? Uint8Array of 3/,
    );
    fails([[[1], 2], [[1]]], /an array of 2/);
  });

  it('gives batches their types', async () => {
    const loader = new DataLoader([{ x: [1, 2], y: 0n, name: 'a' }], { batchSize: 1 });
    for await (const { x, y, name } of loader) {
      const typed: [Tensor, Tensor, string[]] = [x, y, name];
      assert.equal(typed.length, 3);
    }
    for await (const batch of new DataLoader([1], { collateFn: (all) => all.length }))
      assert.equal(batch satisfies number, 1);
  });
});
