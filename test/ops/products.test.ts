/** Matrix products of unusual shapes. */
import assert from 'node:assert/strict';
import { arange, int32, nn, ones, ShapeError, tensordot, zeros } from '../../lib/index.js';

const { functional: F } = nn;

describe('tensordot', () => {
  it('expands summed dims of size 1, as in PyTorch', () => {
    const x = arange(1, 7, { dtype: int32 }).reshape(2, 3);
    const column = arange(1, 3, { dtype: int32 }).reshape(1, 2);
    assert.deepEqual(tensordot(x, column, 1).tolist(), [
      [6, 12],
      [15, 30],
    ]);
    assert.equal(tensordot(x, column, 1).dtype, int32);
    assert.deepEqual(tensordot(ones([0]), ones([1]), 1).tolist(), 0);
    assert.throws(() => tensordot(x, ones([2, 2], { dtype: int32 }), 1), ShapeError);
  });
});

describe('products without elements', () => {
  it('are zeros or empty, with and without batch dims', () => {
    for (const lead of [[3], [2, 3], [2, 2, 3]]) {
      assert.deepEqual(
        zeros([...lead, 0])
          .matmul(zeros([0, 4]))
          .tolist(),
        zeros([...lead, 4]).tolist(),
      );
      assert.deepEqual(
        F.linear(zeros([...lead, 0]), zeros([4, 0]), ones([4])).tolist(),
        ones([...lead, 4]).tolist(),
      );
      assert.deepEqual(F.linear(zeros([...lead, 0]), zeros([0])).tolist(), zeros(lead).tolist());
    }
    const none = zeros([0, 2, 2, 3, 4]);
    assert.deepEqual(F.scaledDotProductAttention(none, none, none).shape, [0, 2, 2, 3, 4]);
    const x = zeros([2, 3, 0], { requiresGrad: true });
    x.matmul(zeros([0, 4]))
      .sum()
      .backward();
    assert.deepEqual(x.grad?.shape, [2, 3, 0]);
  });

  it('have any strides', () => {
    const rows = zeros([0, 3, 3, 2]).permute([2, 1, 0, 3]); // [3, 3, 0, 2] with batch strides 2 and 6
    assert.deepEqual(rows.matmul(zeros([3, 3, 2, 4])).shape, [3, 3, 0, 4]);
    assert.deepEqual(rows.matmul(zeros([2, 4])).shape, [3, 3, 0, 4]);
    assert.deepEqual(rows.transpose(-2, -1).matmul(rows).tolist(), zeros([3, 3, 2, 2]).tolist());
  });
});
