/**
 * The backward engine: order, hooks, in-place changes, versions; and the eager halves of the fifth
 * seed document.
 */
import assert from 'node:assert/strict';
import {
  AutogradError,
  autograd,
  InPlaceError,
  nn,
  noGrad,
  ones,
  rand,
  randn,
  type Tensor,
  tensor,
  zeros,
} from '../../lib/index.js';

const values = (t: Tensor | null): number[] =>
  Array.from((t as Tensor).toTypedArray() as Float32Array);

describe('backward', () => {
  it('accumulates into leaves and adds up over calls', () => {
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

  it('does not go through detach: the result is a leaf on the same memory and version', () => {
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

  it('notices that a saved tensor was changed in place, and names the op and both versions', () => {
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

  it('refuses to change a leaf that requires a gradient in place', () => {
    assert.throws(() => ones([2], { requiresGrad: true }).add_(1), InPlaceError);
  });

  it('follows in-place changes of views to the base', () => {
    const x = tensor([1, 2, 3, 4], { requiresGrad: true });
    const y = x.mul(1);
    y.narrow(0, 1, 2).mul_(10);
    y.sum().backward();
    assert.deepEqual(values(x.grad), [1, 10, 10, 1]);
  });
});

describe('hooks', () => {
  it('of a tensor may replace its gradient, with closed-over tensors', () => {
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

  it('after accumulation see the gradient in place', () => {
    const x = ones([2], { requiresGrad: true });
    let seen: number[] = [];
    x.registerPostAccumulateGradHook((t) => {
      seen = values(t.grad);
    });
    x.mul(3).sum().backward();
    assert.deepEqual(seen, [3, 3]);
  });

  it('of a module run once each way a step, when the parameters have their gradients already', () => {
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

describe('storages and versions', () => {
  it('resize to nothing after the last read and keep the result', () => {
    noGrad(() => {
      const x = randn([10]);
      const expected = values(x.sin().cos());
      const y = x.sin();
      x.untypedStorage().resize_(0);
      assert.deepEqual(values(y.cos()), expected);
      assert.equal(x.untypedStorage().size(), 0);
    });
  });

  it('resize back and are filled by copy_', () => {
    noGrad(() => {
      const [x, out] = [randn([10]), randn([10])];
      const expected = values(x.sin().cos());
      out.untypedStorage().resize_(0);
      out.untypedStorage().resize_(x.untypedStorage().size());
      out.copy_(x.sin().cos());
      assert.deepEqual(values(out), expected);
    });
  });

  it('let a version be set back, so that a saved tensor shows the new data', () => {
    const w = tensor([0.5], { requiresGrad: true });
    const r = w.sin();
    noGrad(() => {
      autograd.unsafePreserveVersionCounter(w, () => {
        w.copy_(tensor([1.25]));
      });
    });
    r.backward();
    assert.ok(Math.abs((values(w.grad)[0] as number) - Math.cos(1.25)) < 1e-6);
  });

  it('count in-place changes of a whole view family', () => {
    const x = zeros([4]);
    const v = x.narrow(0, 1, 2);
    v.add_(1);
    assert.equal(x._version, 1);
    x.mul_(2);
    assert.equal(v._version, 2);
  });
});
