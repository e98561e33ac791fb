/** Saved outputs that have no gradient come back without history. */
import assert from 'node:assert/strict';
import { autograd, float64, manualSeed, tensor } from '../../lib/index.js';

describe('the second gradient', () => {
  it('does not flow into the mask that dropout saves', () => {
    manualSeed(3);
    const x = tensor([1, 2, 3, 4], { dtype: float64 }).requiresGrad_();
    const [first] = autograd.grad(x.dropout(0.5).sum(), x, { createGraph: true });
    assert.equal(first?.requiresGrad, false);
    const [second] = autograd.grad(first.mul(x).sum(), x);
    assert.ok(second?.equal(first));
  });
});
