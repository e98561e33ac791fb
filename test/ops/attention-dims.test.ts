/** Attention of inputs without a batch dim, and of heads without one. */
import assert from 'node:assert/strict';
import { bool, nn, ones, randn, type Tensor, tensor } from '../../lib/index.js';

const { functional: F } = nn;
const mask = (...values: boolean[]): Tensor => tensor(values, { dtype: bool });

describe('scaledDotProductAttention of 2 or 3 dims', () => {
  it('refuses a mask that does not broadcast to the scores', () => {
    const [q, v] = [ones([2, 1]), tensor([[1], [2]])];
    assert.throws(
      () =>
        F.scaledDotProductAttention(q, q, v, { attnMask: mask(true, false, false).expand([2, 3]) }),
      /\[2, 3\] does not broadcast to the scores, \[2, 2\]/,
    );
    assert.deepEqual(
      F.scaledDotProductAttention(q, q, v, { attnMask: mask(true, false) }).tolist(),
      [[1], [1]],
    );
  });

  it('gives 0 to a row whose keys a learned mask all masks', () => {
    const attnMask = tensor([
      [0, 0],
      [-Infinity, -Infinity],
    ]).requiresGrad_();
    const q = ones([2, 1]);
    assert.deepEqual(F.scaledDotProductAttention(q, q, tensor([[1], [2]]), { attnMask }).tolist(), [
      [1.5],
      [0],
    ]);
  });

  it('shares heads as attention of 4 dims does', () => {
    const [q, k, v] = [randn([4, 5, 8]), randn([2, 6, 8]), randn([2, 6, 8])];
    const shared = F.scaledDotProductAttention(q, k, v, { enableGqa: true });
    const four = F.scaledDotProductAttention(q.unsqueeze(0), k.unsqueeze(0), v.unsqueeze(0), {
      enableGqa: true,
    });
    assert.ok(shared.allclose(four.squeeze(0)));
    const attnMask = randn([4, 5, 6]);
    const masked = F.scaledDotProductAttention(q, k, v, { enableGqa: true, attnMask });
    const learned = F.scaledDotProductAttention(q, k, v, {
      enableGqa: true,
      attnMask: attnMask.clone().requiresGrad_(),
    });
    assert.ok(masked.allclose(learned, { atol: 1e-6 }));
  });
});
