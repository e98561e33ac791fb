/**
 * Edge cases of a backward pass: hooks of its root, and a tensor as its own gradient. Reference:
 * PyTorch 2.
 */
import assert from 'node:assert/strict';
import { AutogradError, autograd, type Tensor, tensor } from '../../lib/index.js';

describe('a backward pass', () => {
  it('runs the hooks of its root, also if the root leads to no input', () => {
    const [x, other] = [1, 2].map((value) => tensor([value], { requiresGrad: true })) as [
      Tensor,
      Tensor,
    ];
    const y = x.mul(2);
    const seen: unknown[] = [];
    y.registerHook((grad) => {
      seen.push(grad.tolist());
    });
    assert.throws(() => autograd.grad(y, other, { retainGraph: true }), AutogradError);
    y.backward(null, { inputs: [other] });
    assert.deepEqual(seen, [[1], [1]]);
    assert.equal(x.grad, null);
  });

  it('leaves its inputs unchanged if it throws', () => {
    const h = tensor([1], { requiresGrad: true }).mul(2);
    assert.throws(() => tensor([1]).backward(null, { inputs: [h] }), AutogradError);
    assert.equal(h.retainsGrad, false);
  });
});

describe('the gradient of a tensor', () => {
  it('must not be the tensor itself', () => {
    const x = tensor([1], { requiresGrad: true });
    assert.throws(() => {
      x.grad = x;
    }, /the tensor itself/);
  });
});

describe('an op that saves only numbers for its gradient', () => {
  it('allows a second backward pass', () => {
    const x = tensor([3], { requiresGrad: true });
    const y = x.fmod(2);
    y.backward();
    y.backward();
    assert.deepEqual(x.grad?.tolist(), [2]);
  });
});
