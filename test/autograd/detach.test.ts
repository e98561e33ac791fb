/** `detach_`, `retainsGrad` and `setGradEnabled`. */
import assert from 'node:assert/strict';
import { AutogradError, isGradEnabled, ones, setGradEnabled } from '../../lib/index.js';

describe('the graph of a tensor', () => {
  it('no longer includes a tensor after detach_, which makes it a leaf and refuses a view', () => {
    const x = ones([2], { requiresGrad: true });
    const y = x.mul(2);
    assert.equal(y.detach_(), y);
    assert.deepEqual([y.isLeaf, y.requiresGrad], [true, false]);
    assert.throws(() => x.mul(2).view(1, 2).detach_(), AutogradError);
  });

  it('reports by retainsGrad whether a computed tensor keeps its gradient', () => {
    const y = ones([2], { requiresGrad: true }).mul(2);
    assert.equal(y.retainsGrad, false);
    y.retainGrad();
    assert.equal(y.retainsGrad, true);
    y.sum().backward();
    assert.deepEqual(y.grad?.tolist(), [1, 1]);
  });

  it('is not recorded after setGradEnabled(false), until the next call', () => {
    const before = setGradEnabled(false);
    try {
      assert.equal(ones([1], { requiresGrad: true }).mul(2).requiresGrad, false);
    } finally {
      setGradEnabled(before);
    }
    assert.equal(isGradEnabled(), true);
  });
});
