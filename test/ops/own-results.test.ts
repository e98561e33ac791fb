/**
 * Results that PyTorch does not call views are none here, and gradients of masked elements are 0.
 */
import assert from 'node:assert/strict';
import { nn, ones, tensor } from '../../lib/index.js';

describe('repeat', () => {
  it('gives a tensor of its own, which can be cut off from its graph', () => {
    const repeated = ones([2], { requiresGrad: true }).repeat([1, 2]);
    assert.equal(repeated._base, null);
    repeated.detach_();
    assert.ok(repeated.isLeaf);
  });
});

describe('prelu', () => {
  it('gives its weight no gradient of elements above 0, infinite ones too', () => {
    const weight = tensor([0.5], { requiresGrad: true });
    nn.functional.prelu(tensor([Number.POSITIVE_INFINITY, -2]), weight).backward(ones([2]));
    assert.deepEqual(weight.grad?.tolist(), [-2]);
  });
});
