/**
 * Inputs that change in place after a compiled function has saved them: backward fails only if it
 * needs them for a gradient that is asked for, as uncompiled.
 */
import assert from 'node:assert/strict';
import { autograd, compile, InPlaceError, nn, type Tensor } from '../../../lib/index.js';
import { BACKENDS, type Fn, leaves, list, used } from './observed-results.js';

/** What two calls observe, of a function and of it compiled, with an argument that is no leaf. */
function assertSameAfterChange(
  fn: Fn,
  observe: (loss: Tensor, results: readonly Tensor[], leaf: Tensor, other: Tensor) => unknown,
): void {
  for (const backend of BACKENDS) {
    const compiled = compile(fn, { backend, fullgraph: true });
    const [expected, ...seen] = [fn, compiled, compiled].map((run) => {
      const [leaf, other] = leaves() as [Tensor, Tensor];
      const inner = leaf.mul(2);
      const results = run(inner, other);
      inner.sin_();
      return observe(used(results, ...results.keys()), results, leaf, other);
    });
    assert.deepEqual(seen, [expected, expected], backend);
  }
}

const gradient = (loss: Tensor, of: Tensor): unknown =>
  list(autograd.grad(loss, [of], { retainGraph: true })[0]);

describe('an input that changes after a compiled function', () => {
  it('is not read for the gradients of others', () => {
    assertSameAfterChange(
      (x, y) => [x.mul(y)],
      (loss, _, leaf, other) => {
        assert.throws(() => gradient(loss, other), InPlaceError);
        const first = gradient(loss, leaf);
        assert.throws(() => loss.backward({ retainGraph: true }), InPlaceError);
        return [first, gradient(loss, leaf)];
      },
    );
  });

  it('is not read where it is that of a layer', () => {
    const layer = new nn.Linear(2, 2);
    assertSameAfterChange(
      (x) => [layer.forward(x)],
      (loss, _, leaf) => {
        assert.throws(() => gradient(loss, layer.weight), InPlaceError);
        return [gradient(loss, leaf), gradient(loss, layer.bias as Tensor)];
      },
    );
  });

  it('is not read for hooks and gradients of several results', () => {
    assertSameAfterChange(
      (x, y) => {
        const h = x.mul(y);
        return [h, h.mul(y.detach())];
      },
      (loss, [h], leaf, other) => {
        const seen: unknown[] = [];
        h?.registerHook((g) => {
          seen.push(list(g));
          return g.mul(3);
        });
        assert.throws(() => gradient(loss, other), InPlaceError);
        return [gradient(loss, leaf), gradient(loss, h as Tensor), seen];
      },
    );
  });
});
