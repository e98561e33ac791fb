/** `setGradMemory`: gradients in memory of the program. */
import assert from 'node:assert/strict';
import { autograd, float64, type Tensor, tensor } from '../../lib/index.js';

describe('setGradMemory', () => {
  it('makes backward write the first gradient into memory of the program', () => {
    const x = tensor([1, 2], { requiresGrad: true });
    const buffer = tensor([9, 9, 9]);
    autograd.setGradMemory(x, buffer.narrow(0, 1, 2));
    x.square().sum().backward();
    assert.deepEqual(buffer.tolist(), [9, 2, 4]);
    assert.equal(x.grad?.untypedStorage(), buffer.untypedStorage());
    x.square().sum().backward();
    assert.deepEqual(buffer.tolist(), [9, 4, 8]);
    x.grad = null;
    autograd.setGradMemory(x, null);
    x.square().sum().backward();
    assert.deepEqual(buffer.tolist(), [9, 4, 8]);
    assert.deepEqual((x.grad as Tensor | null)?.tolist(), [2, 4]);
  });

  it('takes memory away from a leaf that was frozen', () => {
    const x = tensor([1, 2], { requiresGrad: true });
    const buffer = tensor([9, 9]);
    autograd.setGradMemory(x, buffer);
    x.requiresGrad_(false);
    assert.throws(() => autograd.setGradMemory(x, buffer), { code: 'ERR_AUTOGRAD' });
    autograd.setGradMemory(x, null);
    x.requiresGrad_(true).square().sum().backward();
    assert.deepEqual(buffer.tolist(), [9, 9]);
  });

  it('refuses memory that does not fit', () => {
    const x = tensor([1, 2], { requiresGrad: true });
    for (const bad of [tensor([1]), tensor([1, 2], { dtype: float64 }), tensor([1]).expand(2), x])
      assert.throws(() => autograd.setGradMemory(x, bad), { code: 'ERR_AUTOGRAD' });
    assert.throws(() => autograd.setGradMemory(tensor([1]), null), { code: 'ERR_AUTOGRAD' });
    assert.throws(() => autograd.setGradMemory(x, 3 as never), { code: 'ERR_ARGUMENT' });
  });
});
