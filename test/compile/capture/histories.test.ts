/** A captured function keeps gradients of intermediates, and ends histories. */
import assert from 'node:assert/strict';
import { compile, type Tensor, tensor } from '../../../lib/index.js';
import { assertSameAsEager } from '../same-as-eager.js';

describe('a captured function', () => {
  it('keeps the gradient of an intermediate that it returns', () => {
    const fn = (w: Tensor): Tensor[] => {
      const h = w.mul(2);
      h.retainGrad();
      return [h, h.sin()];
    };
    const [eager, compiled] = [fn, compile(fn, { fullgraph: true })].map((run) =>
      [1, 2, 3].map((k) => {
        const [h, y] = run(tensor([k, -k], { requiresGrad: true })) as [Tensor, Tensor];
        y.sum().backward();
        return [h.grad?.tolist(), h.retainsGrad];
      }),
    );
    assert.deepEqual(compiled, eager);
  });

  it('ends the history of an intermediate', () => {
    assertSameAsEager(() => (w) => {
      const h = w.mul(2);
      h.detach_();
      return [h.mul(w), h];
    });
  });

  it('ends the history of an argument', () => {
    assertSameAsEager(() => (w) => [w.detach_().mul(2), w], { backward: false });
  });
});
