/** The backward engine: accumulation, graphs, hooks, in-place changes and versions. */
import assert from 'node:assert/strict';
import {
  AutogradError,
  autograd,
  InPlaceError,
  nn,
  noGrad,
  ones,
  rand,
  type Tensor,
  tensor,
  zeros,
} from '../../lib/index.js';

const values = (t: Tensor | null): number[] =>
  Array.from((t as Tensor).toTypedArray() as Float32Array);

describe('backward', () => {
  it('adds the gradients of several calls up in the leaves', () => {
    const x = tensor([1, 2, 3], { requiresGrad: true });
    x.mul(x).sum().backward();
    assert.deepEqual(values(x.grad), [2, 4, 6]);
    x.mul(2).sum().backward();
    assert.deepEqual(values(x.grad), [4, 6, 8]);
  });

  it('frees the graph, so that a second backward is an error that says what to do', () => {
    const x = tensor([1, 2], { requiresGrad: true });
    const y = x.exp().sum();
    y.backward();
    assert.throws(
      () => y.backward(),
      (error: AutogradError) => error instanceof AutogradError && /retainGraph/.test(error.message),
    );
  });

  it('runs again with retainGraph', () => {
    const x = tensor([1, 2], { requiresGrad: true });
    const y = x.mul(x).sum();
    y.backward(null, { retainGraph: true });
    y.backward();
    assert.deepEqual(values(x.grad), [4, 8]);
  });

  it('gives second derivatives with createGraph', () => {
    const x = tensor([2, 3], { requiresGrad: true });
    const [g] = autograd.grad(x.pow(3).sum(), x, { createGraph: true });
    const [h] = autograd.grad((g as Tensor).sum(), x);
    assert.deepEqual(values(h as Tensor), [12, 18]);
  });

  it('stops at detach, whose result is a leaf on the same memory and version', () => {
    const x = tensor([1, 2], { requiresGrad: true });
    const d = x.detach();
    assert.deepEqual([d.isLeaf, d.requiresGrad, d.gradFn, d._base], [true, false, null, null]);
    x.mul(d).sum().backward();
    assert.deepEqual(values(x.grad), [1, 2]);
    const copy = d.clone().requiresGrad_();
    copy.mul(3).sum().backward();
    assert.deepEqual(values(copy.grad), [3, 3]);
    noGrad(() => x.add_(1));
    assert.equal(d._version, 1);
  });

  it('refuses a tensor of several elements without a gradient', () => {
    assert.throws(() => ones([2], { requiresGrad: true }).mul(2).backward(), AutogradError);
  });

  it('throws if a saved tensor was changed in place, and names the op and both versions', () => {
    const x = tensor([1, 2], { requiresGrad: true });
    const y = x.mul(1);
    const z = y.mul(y);
    y.add_(1);
    assert.throws(
      () => z.sum().backward(),
      (error: InPlaceError) =>
        error instanceof InPlaceError && /backward of mul/.test(error.message),
    );
  });

  it('does not allow in-place changes of a leaf that requires a gradient', () => {
    assert.throws(() => ones([2], { requiresGrad: true }).add_(1), InPlaceError);
  });

  it('follows in-place changes of a view to its base', () => {
    const x = tensor([1, 2, 3, 4], { requiresGrad: true });
    const y = x.mul(1);
    y.narrow(0, 1, 2).mul_(10);
    y.sum().backward();
    assert.deepEqual(values(x.grad), [1, 10, 10, 1]);
  });
});

describe('a hook', () => {
  it('on a tensor may replace its gradient by one computed from closed-over tensors', () => {
    const run = (val: number): Tensor => {
      const x = ones([4], { requiresGrad: true });
      const y = x.sin();
      const closed = y.add(1);
      y.registerHook((g) => g.add(val).add(closed));
      y.sin().sum().backward();
      return x.grad as Tensor;
    };
    assert.ok(Math.abs((values(run(88))[0] as number) - 48.9015934) < 1e-4);
    assert.ok(Math.abs((values(run(99))[0] as number) - 54.8449189) < 1e-4);
  });

  it('after accumulation finds the gradient in .grad', () => {
    const x = ones([2], { requiresGrad: true });
    let seen: number[] = [];
    x.registerPostAccumulateGradHook((t) => {
      seen = values(t.grad);
    });
    x.mul(3).sum().backward();
    assert.deepEqual(seen, [3, 3]);
  });

  it('on a module runs once before and once after each backward, then with the gradients of its parameters', () => {
    const m = new nn.Linear(10, 10);
    const counts = { pre: 0, post: 0, ready: 0 };
    m.registerFullBackwardPreHook((_module, [g]) => {
      counts.pre++;
      return [(g as Tensor).add(1.2).sin()];
    });
    m.registerFullBackwardHook((module, [g]) => {
      counts.post++;
      if (module.weight.grad !== null) counts.ready++;
      return [(g as Tensor).add(3.4).sin()];
    });
    const x = rand([2, 10], { requiresGrad: true });
    for (let i = 0; i < 4; i++) m(x).sum().backward();
    assert.deepEqual(counts, { pre: 4, post: 4, ready: 4 });
  });
});

describe('a version counter', () => {
  it('counts in-place changes of a tensor and all its views', () => {
    const x = zeros([4]);
    const v = x.narrow(0, 1, 2);
    v.add_(1);
    assert.equal(x._version, 1);
    x.mul_(2);
    assert.equal(v._version, 2);
  });
});
