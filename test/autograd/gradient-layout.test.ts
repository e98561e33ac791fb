/**
 * `.grad` has the memory layout of its parameter, so that optimizers and buckets walk both in one
 * order.
 */
import assert from 'node:assert/strict';
import { autograd, nn, ones, randn, type Tensor, zeros } from '../../lib/index.js';

describe('the layout of .grad', () => {
  it('is that of the weight for a linear layer', () => {
    const layer = new nn.Linear(3, 5);
    for (let pass = 0; pass < 2; pass++)
      layer(ones([4, 3]))
        .sum()
        .backward();
    assert.deepEqual(layer.weight.grad?.stride(), [3, 1]);
  });

  it('is that of a dense parameter in any order of dims', () => {
    const w = zeros([3, 5, 2]).permute([2, 0, 1]).clone().requiresGrad_();
    assert.deepEqual(w.stride(), [1, 10, 2]);
    w.mul(randn([2, 3, 5]))
      .sum()
      .backward();
    assert.deepEqual(w.grad?.stride(), [1, 10, 2]);
    assert.deepEqual(w.grad?.shape, [2, 3, 5]);
    const [g] = autograd.grad(w.mul(w).sum(), w, { createGraph: true });
    w.grad = null;
    (g as Tensor).sum().backward();
    assert.deepEqual((w.grad as Tensor | null)?.stride(), [1, 10, 2]);
  });

  it('is row-major for a parameter with gaps', () => {
    const w = zeros([3, 4]).narrow(1, 0, 2).detach().requiresGrad_();
    w.t()
      .mul(randn([2, 3]))
      .t()
      .sum()
      .backward();
    assert.deepEqual(w.grad?.stride(), [2, 1]);
  });
});
