/**
 * One graph serves all versions of a tensor, where the function only passes them on or returns
 * them.
 */
import assert from 'node:assert/strict';
import { autograd, compile, Tensor, tensor, zeros } from '../../../lib/index.js';
import { CompileCounter } from '../../../lib/testing/index.js';

const { unsafeSetVersionCounter } = autograd;

/** Runs for these versions of the argument; returns the number of graphs. */
function framesOver(versions: readonly number[], fn: (t: Tensor) => unknown): number {
  const counter = CompileCounter();
  const compiled = compile(fn, { fullgraph: true, backend: counter });
  for (const version of versions) {
    const [expected, result] = [fn, compiled].map((run) => {
      const t = zeros([2]);
      unsafeSetVersionCounter(t, version);
      const out = run(t);
      return [out, out === t, t.tolist(), t._version].map((x) =>
        x instanceof Tensor ? x.tolist() : x,
      );
    });
    assert.deepEqual(result, expected, `version ${version}`);
  }
  return counter.frameCount;
}

describe('a captured function that reads a version', () => {
  it('gives it back after in-place changes, in one graph', () => {
    const fn = (t: Tensor): Tensor => {
      const before = t._version;
      t.add_(1).mul_(2);
      unsafeSetVersionCounter(t, before);
      return t;
    };
    assert.equal(framesOver([3, 0, 1, 7], fn), 1);
    assert.equal(framesOver([0, 5], fn), 1);
  });

  it('adds to it, and reads it through a view', () => {
    assert.equal(
      framesOver([2, 0, 9], (t) => {
        const row = t.view([1, 2]);
        const before = row._version;
        t.add_(1);
        unsafeSetVersionCounter(row, before + 5);
        return t;
      }),
      1,
    );
  });

  it('is captured again where a version decides, or is a result or an operand', () => {
    const decides: Record<string, (t: Tensor) => unknown> = {
      'a condition on zero': (t) => {
        const version = t._version;
        unsafeSetVersionCounter(t, version);
        return version === 0 ? t.add(1) : t.mul(2);
      },
      'an order': (t) => {
        const version = t._version;
        unsafeSetVersionCounter(t, version);
        return version > 5 ? t.add(1) : t.sub(1);
      },
      'a comparison alone': (t) => (t._version === 4 ? t.add(1) : t.sub(1)),
      'an operand': (t) => t.add(t._version),
      'a value that is written': (t) => t.add(tensor([t._version, 1])),
    };
    for (const fn of Object.values(decides)) assert.equal(framesOver([3, 0, 4, 7, 3], fn), 4);
  });

  it('returns it, in one graph', () => {
    assert.equal(
      framesOver([3, 0, 1, 7], (t) => t._version),
      1,
    );
    const counter = CompileCounter();
    const compiled = compile(
      (t: Tensor) => {
        const before = t._version;
        t.add_(1);
        return { t, versions: [before, t._version, 5] };
      },
      { fullgraph: true, backend: counter },
    );
    for (const version of [3, 0, 7]) {
      const t = zeros([2]);
      unsafeSetVersionCounter(t, version);
      assert.deepEqual(compiled(t).versions, [version, version + 1, 5]);
    }
    assert.equal(counter.frameCount, 1);
  });

  it('knows the version of a tensor of its own', () => {
    assert.equal(
      framesOver([1, 2], (t) => {
        const own = t.add(1);
        own.mul_(2);
        return own.add(own._version);
      }),
      1,
    );
  });

  it('gives back the versions of two tensors, one from outside', () => {
    const counter = CompileCounter();
    const outer = zeros([2]);
    const fn = (t: Tensor): Tensor => {
      const [a, b] = [t._version, outer._version];
      t.add_(1);
      outer.add_(t);
      unsafeSetVersionCounter(outer, b);
      unsafeSetVersionCounter(t, a);
      return t.mul(outer);
    };
    const compiled = compile(fn, { fullgraph: true, backend: counter });
    for (const version of [3, 0, 8]) {
      const t = zeros([2]);
      unsafeSetVersionCounter(t, version);
      unsafeSetVersionCounter(outer, 2 * version);
      compiled(t);
      assert.deepEqual([t._version, outer._version], [version, 2 * version]);
    }
    assert.deepEqual(outer.tolist(), [3, 3]);
    assert.equal(counter.frameCount, 1);
  });
});

describe('a captured change of a view', () => {
  it('counts once in the version that its base has, too', () => {
    const [base, other] = [zeros([2]), zeros([2])];
    const fn = (view: Tensor, last: Tensor): Tensor => {
      view.add_(1);
      return last.mul(2);
    };
    const compiled = compile((view: Tensor) => fn(view, base), { fullgraph: true });
    compiled(base.detach());
    fn(other.detach(), other);
    assert.deepEqual([base._version, base.tolist()], [other._version, other.tolist()]);
  });
});
