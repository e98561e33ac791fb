/** Products of matrices at the corners of their shapes. */
import assert from 'node:assert/strict';
import { nn, ones, zeros } from '../../lib/index.js';

const { functional: F } = nn;

describe('products without elements', () => {
  it('are zeros, or nothing, with leading dims as without', () => {
    for (const lead of [[3], [2, 3], [2, 2, 3]]) {
      assert.deepEqual(
        zeros([...lead, 0])
          .matmul(zeros([0, 4]))
          .tolist(),
        zeros([...lead, 4]).tolist(),
      );
      assert.deepEqual(F.linear(zeros([...lead, 0]), zeros([4, 0]), ones([4])).tolist(), ones([...lead, 4]).tolist());
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
});
