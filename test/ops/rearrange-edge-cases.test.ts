/** Copies, einsum and padding at the edges: nothing to repeat, many dims, negative sizes. */
import assert from 'node:assert/strict';
import { einsum, flip, nn, ones, randn, ShapeError, tensor } from '../../lib/index.js';

const { functional: F } = nn;

describe('repeat and flip', () => {
  it('always copy, so that writing to the result leaves the input unchanged', () => {
    const x = tensor([1, 2]);
    for (const y of [
      x.repeat(1),
      x.repeat(1, 1),
      x.narrow(0, 0, 1).repeat(3),
      flip(x, []),
      tensor(2).flip([]),
    ])
      y.fill_(7);
    assert.deepEqual(x.tolist(), [1, 2]);
    assert.deepEqual(tensor([5]).repeat(3).add_(1).tolist(), [6, 6, 6]);
    assert.deepEqual(ones([2, 3]).t().repeat(2, 1).shape, [6, 2]);
  });
});

describe('einsum', () => {
  it('refuses a diagonal of different sizes', () => {
    assert.throws(() => einsum('ii', ones([3, 4])), ShapeError);
    assert.throws(() => einsum('ii', ones([3, 1])), ShapeError);
  });

  it('keeps the order of more than ten dims', () => {
    const x = randn([1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 3, 2]);
    assert.deepEqual(einsum('...', x).shape, x.shape);
  });
});

describe('pad with negative sizes', () => {
  it('refuses to remove more than the size of a dim', () => {
    assert.throws(() => F.pad(tensor([1, 2, 3]), [-4, 4]), /take more than all of dim 0/);
    assert.deepEqual(F.pad(tensor([1, 2, 3]), [-2, 1]).tolist(), [3, 0]);
  });

  it('refuses unknown modes', () => {
    assert.throws(
      () => F.pad(ones([3]), [1, 1], { mode: 'x' as never }),
      /expected mode to be one of/,
    );
  });
});
