/**
 * Tensors that are overwritten in place keep their history: the old values get zeros as gradient,
 * as in PyTorch.
 */
import assert from 'node:assert/strict';
import { autograd, noGrad, ones, type Tensor, tensor } from '../../lib/index.js';

const overwriting: Record<string, (y: Tensor) => Tensor> = {
  'copy_ of a constant': (y) => y.copy_(tensor([5, 6])),
  'copy_ of a constant in another dtype': (y) => y.copy_(tensor([5, 6]).double()),
  'copy_ of a number': (y) => y.copy_(3),
  fill_: (y) => y.fill_(3),
  'fill_ of a tensor': (y) => y.fill_(tensor(3)),
  zero_: (y) => y.zero_(),
  uniform_: (y) => y.uniform_(),
  normal_: (y) => y.normal_(),
  bernoulli_: (y) => y.bernoulli_(),
  random_: (y) => y.random_(),
  exponential_: (y) => y.exponential_(),
  'indexPut_ of all': (y) => y.indexPut_([null], tensor([5, 6])),
};

describe('an overwritten tensor with a history', () => {
  for (const [name, overwrite] of Object.entries(overwriting)) {
    it(`passes zeros to its old history after ${name}`, () => {
      const x = tensor([1, 2], { requiresGrad: true });
      const y = x.mul(2);
      assert.equal(overwrite(y), y);
      assert.equal(y.requiresGrad, true);
      assert.equal(y._version, 1);
      assert.deepEqual(autograd.grad(y.mul(3).sum(), x)[0]?.tolist(), [0, 0]);
    });
  }

  it('passes the gradient to its source', () => {
    const [x, w] = [tensor([1, 2], { requiresGrad: true }), tensor([1, 1], { requiresGrad: true })];
    const y = x.mul(2);
    y.copy_(w.mul(3));
    y.sum().backward();
    assert.deepEqual(
      [x.grad?.tolist(), w.grad?.tolist()],
      [
        [0, 0],
        [3, 3],
      ],
    );
  });

  it('may be computed from its old values', () => {
    const x = tensor([1, 2], { requiresGrad: true });
    const y = x.mul(2);
    y.copy_(y.mul(3)).sum().backward();
    assert.deepEqual(x.grad?.tolist(), [6, 6]);
  });

  it('refreshes the history of its views', () => {
    const x = tensor([1, 2], { requiresGrad: true });
    const y = x.mul(2);
    const view = y.narrow(0, 0, 1);
    const w = ones([2], { requiresGrad: true });
    y.copy_(w);
    view.sum().backward();
    assert.deepEqual(
      [x.grad?.tolist(), w.grad?.tolist()],
      [
        [0, 0],
        [1, 0],
      ],
    );
  });

  it('keeps its node under noGrad', () => {
    const y = tensor([1, 2], { requiresGrad: true }).mul(2);
    const node = y.gradFn;
    noGrad(() => y.copy_(tensor([5, 6])));
    assert.equal(y.gradFn, node);
  });
});
