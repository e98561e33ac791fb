/** In-place changes of views, where the gradient of the base has another layout than the base. */
import assert from 'node:assert/strict';
import {
  arange,
  float64,
  InPlaceError,
  noGrad,
  type Tensor,
  tensor,
  zeros,
} from '../../lib/index.js';

const W = tensor([
  [1, 2],
  [3, 4],
]);
const leaf = (values: number[] | number[][]): Tensor => tensor(values, { requiresGrad: true });

describe('the gradient after an in-place change of a view', () => {
  it('reaches the copied rows in any layout of the gradient', () => {
    const w = leaf([
      [1, 2],
      [3, 4],
    ]);
    const q = tensor([
      [1, 5],
      [3, 4],
    ]);
    const cache = zeros([2, 2]);
    cache.narrow(0, 0, 1).copy_(w.narrow(0, 0, 1));
    q.matmul(cache.t()).mul(W).sum().backward();
    assert.deepEqual(w.grad?.tolist(), [
      [10, 17],
      [0, 0],
    ]);
  });

  it('is right for a diagonal of a transposed gradient', () => {
    const w = leaf([1, 2]);
    w.diag(1).t().mul(arange(9).reshape(3, 3)).sum().backward();
    assert.deepEqual(w.grad?.tolist(), [3, 7]);
  });

  it('is right for a multiplied row of a transposed gradient', () => {
    const x = leaf([
      [1, 2, 3],
      [4, 5, 6],
    ]);
    const b = x.clone();
    b.select(0, 0).mul_(10);
    b.t()
      .mul(
        tensor([
          [1, 2],
          [3, 4],
          [5, 6],
        ]),
      )
      .sum()
      .backward();
    assert.deepEqual(x.grad?.tolist(), [
      [10, 30, 50],
      [2, 4, 6],
    ]);
  });

  it('is right for a transposed base and a contiguous gradient', () => {
    const w = tensor([1, 2, 3, 4, 5, 6], { dtype: float64 }).reshape(2, 3).requiresGrad_();
    const base = w.t().clone(); // keeps the strides of w.t()
    base.select(0, 1).mul_(10);
    base
      .mul(arange(6, { dtype: float64 }).reshape(3, 2))
      .sum()
      .backward();
    assert.deepEqual(w.grad?.tolist(), [
      [0, 20, 4],
      [1, 30, 5],
    ]);
  });

  it('is that of tril for a triangle of a transposed view', () => {
    const w = leaf([
      [1, 2],
      [3, 4],
    ]);
    const a = w.clone();
    a.t().tril_();
    a.mul(W).sum().backward();
    assert.deepEqual(w.grad?.tolist(), [
      [1, 2],
      [0, 4],
    ]);
  });
});

describe('a view created inside noGrad', () => {
  it('cannot be changed in place outside, because its base would not record the change', () => {
    const x = leaf([1, 2]);
    const y = x.mul(2);
    const view = noGrad(() => y.select(0, 0));
    assert.throws(() => view.mul_(3), InPlaceError);
    assert.throws(() => view.fill_(3), InPlaceError);
    noGrad(() => view.mul_(3));
    assert.deepEqual(y.tolist(), [6, 4]);
    const ofLeaf = noGrad(() => x.select(0, 0));
    assert.throws(() => ofLeaf.mul_(3), InPlaceError);
    y.detach().mul_(2); // shares memory and knows of nothing, as in PyTorch
  });
});
