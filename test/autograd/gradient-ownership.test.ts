/**
 * Gradients that user code has seen or passed keep their values: `.grad` is a copy of them.
 * Reference: PyTorch, which copies a gradient that has another owner.
 */
import assert from 'node:assert/strict';
import {
  autograd,
  float64,
  library,
  memory,
  nn,
  ones,
  optim,
  randn,
  scope,
  type Tensor,
  tensor,
} from '../../lib/index.js';

const t = (data: number[]): Tensor => tensor(data, { dtype: float64 });
const p = (data: number[]): Tensor => tensor(data, { dtype: float64, requiresGrad: true });
const values = (x: Tensor | null | undefined): unknown => x?.tolist() ?? null;

/** y = x, by a function of the program. */
class Identity extends autograd.Function {
  static given: Tensor[] = [];
  static forward(_: autograd.FunctionContext, x: Tensor): Tensor {
    return x.clone();
  }
  static backward(_: autograd.FunctionContext, g: Tensor): Tensor {
    Identity.given.push(g);
    return g;
  }
}

describe('a gradient that is passed to backward', () => {
  it('is not the tensor that .grad accumulates into', () => {
    const d = t([1, 1]);
    const x = p([0, 0]);
    x.add(0).backward(d);
    x.add(0).backward(d);
    assert.deepEqual(values(x.grad), [2, 2]);
    assert.deepEqual(values(d), [1, 1]);
  });

  it('can be passed for all micro-batches of a pipeline stage', () => {
    const [d, w, b] = [t([1, 2]), p([2, 2]), p([0, 0])];
    for (let step = 0; step < 3; step++) {
      const h = w.add(0);
      const received = h.detach().requiresGrad_();
      received.add(b).backward(d);
      h.backward(received.grad);
    }
    assert.deepEqual([w.grad, b.grad, d].map(values), [
      [3, 6],
      [3, 6],
      [1, 2],
    ]);
  });

  it('outlives zeroGrad()', () => {
    const w = new nn.Parameter(t([0, 0]));
    const g = t([1, 1]);
    const optimizer = new optim.SGD([w], { lr: 1 });
    for (let step = 0; step < 2; step++) {
      optimizer.zeroGrad();
      w.add(1).backward(g);
    }
    assert.deepEqual(values(w.grad), [1, 1]);
    assert.deepEqual(values(g), [1, 1]);
  });

  it('does not change if a tensor on its path retains its gradient', () => {
    const d = t([1, 1]);
    const x = p([1, 2]);
    const y = x.add(1);
    y.retainGrad();
    y.backward(d, { retainGraph: true });
    y.backward(d);
    assert.deepEqual([d, y.grad, x.grad].map(values), [
      [1, 1],
      [2, 2],
      [2, 2],
    ]);
  });
});

describe('a gradient that is passed to a hook', () => {
  it('on a tensor does not change when .grad is clipped', () => {
    const x = p([3, 4]);
    const y = x.add(0);
    let seen: Tensor | undefined;
    y.registerHook((g) => {
      seen = g;
    });
    y.mul(10).sum().backward();
    nn.utils.clipGradNorm_([x], 1);
    assert.deepEqual(values(seen), [10, 10]);
  });

  it('keeps the values of its step after zeroGrad()', () => {
    const x = p([1]);
    const kept: Tensor[] = [];
    x.registerHook((g) => {
      kept.push(g);
    });
    x.mul(2).sum().backward();
    x.mul(3).sum().backward();
    const optimizer = new optim.SGD([x], { lr: 1 });
    optimizer.zeroGrad();
    x.mul(4).sum().backward();
    optimizer.zeroGrad();
    assert.deepEqual(kept.map(values), [[2], [3], [4]]);
  });

  it('after accumulation keeps its values when it is removed from .grad', () => {
    const x = p([1, 2]);
    let seen: Tensor | null = null;
    x.registerPostAccumulateGradHook((leaf) => {
      seen = leaf.grad;
      leaf.grad = null;
    });
    x.mul(2).sum().backward();
    assert.deepEqual(values(seen), [2, 2]);
  });

  it('and returned by it is not accumulated into', () => {
    const mine = t([5, 5]);
    const x = p([1, 2]);
    x.registerHook(() => mine);
    x.mul(2).sum().backward();
    x.mul(2).sum().backward();
    assert.deepEqual([mine, x.grad].map(values), [
      [5, 5],
      [10, 10],
    ]);
  });

  it('on a node keeps its values, whether it was passed or returned', () => {
    const x = p([1, 2]);
    const y = x.add(0);
    const seen: Tensor[] = [];
    const returned = t([7, 7]);
    const node = y.gradFn as NonNullable<Tensor['gradFn']>;
    node.registerPrehook(([g]) => {
      seen.push(g as Tensor);
    });
    node.registerHook((inputs) => {
      seen.push(inputs[0] as Tensor);
      return [returned, ...inputs.slice(1)];
    });
    y.sum().backward();
    x.grad?.mul_(100);
    x.grad = null;
    assert.deepEqual([...seen, returned].map(values), [
      [1, 1],
      [1, 1],
      [7, 7],
    ]);
  });

  it('on a module outlives the gradients of the module’s inputs', () => {
    const layer = new nn.Identity();
    const x = p([1, 2]);
    let seen: Tensor | null | undefined;
    layer.registerFullBackwardHook((_, [gradInput]) => {
      seen = gradInput;
    });
    layer(x).mul(3).sum().backward();
    x.grad = null;
    assert.deepEqual(values(seen), [3, 3]);
  });
});

describe('a gradient in user code', () => {
  it('keeps its values if backward of an autograd.Function got it', () => {
    Identity.given = [];
    const x = p([1, 2]);
    Identity.apply(x).mul(3).sum().backward();
    nn.utils.clipGradNorm_([x], 1);
    x.grad = null;
    assert.deepEqual(Identity.given.map(values), [[3, 3]]);
  });

  it('keeps its values if backward of an autograd.Function returned it', () => {
    const constant = t([1, 1]);
    class Constant extends autograd.Function {
      static forward(_: autograd.FunctionContext, x: Tensor): Tensor {
        return x.clone();
      }
      static backward(): Tensor {
        return constant;
      }
    }
    const x = p([0, 0]);
    for (let step = 0; step < 3; step++) Constant.apply(x).sum().backward();
    assert.deepEqual([constant, x.grad].map(values), [
      [1, 1],
      [3, 3],
    ]);
  });

  it('keeps its values if the rule of a custom op got or returned it', () => {
    const seen: Tensor[] = [];
    const op = library.customOp('ownership::same', {}, (x: Tensor) => x.clone());
    op.registerFake((x) => ({ shape: x.shape }));
    op.registerAutograd({
      backward: (_ctx, g) => {
        seen.push(g as Tensor);
        return [g];
      },
    });
    const x = p([1, 2]);
    op(x).mul(2).sum().backward();
    x.grad = null;
    op(x).mul(3).sum().backward();
    x.grad = null;
    assert.deepEqual(seen.map(values), [
      [2, 2],
      [3, 3],
    ]);
  });
});

describe('a gradient', () => {
  it('that is read from .grad and passed to backward is not accumulated into', () => {
    const [a, b] = [p([1]), p([1])];
    a.mul(2).sum().backward();
    const g = a.grad as Tensor;
    b.add(0).backward(g);
    b.add(0).backward(g);
    assert.deepEqual([g, b.grad].map(values), [[2], [4]]);
  });

  it('that is read from .grad is the tensor that the next backward adds to, as in PyTorch', () => {
    const x = p([1]);
    x.mul(2).sum().backward();
    const g = x.grad;
    x.mul(2).sum().backward();
    assert.equal(x.grad, g);
    assert.deepEqual(values(g), [4]);
  });

  it('that autograd.grad returned keeps its values when it is passed to backward', () => {
    const x = p([1, 2]);
    const y = p([0, 0]);
    const [g] = autograd.grad(x.mul(3).sum(), x);
    y.add(0).backward(g);
    y.grad?.mul_(0);
    y.grad = null;
    assert.deepEqual(values(g), [3, 3]);
  });
});

describe('gradients that user code has not seen', () => {
  /** The most memory that `step` has beyond what was there, in sizes of `leaf`. */
  function peakOf(leaf: Tensor, step: () => void): number {
    leaf.grad = null;
    memory.resetPeak();
    const before = memory.stats().allocatedBytes;
    step();
    return (memory.stats().peakAllocatedBytes - before) / leaf.nbytes;
  }

  it('become .grad without a copy', () => {
    const x = randn([1 << 18], { requiresGrad: true });
    const peak = peakOf(x, () => scope(() => x.mul(2).sum().backward()));
    assert.ok(
      peak < 2.5,
      `expected the product, its gradient and no copy, the peak is ${peak.toFixed(2)} of the parameter`,
    );
  });

  it('become .grad of a linear weight without a copy, also through views', () => {
    const layer = new nn.Linear(512, 512, { bias: false });
    const input = ones([8, 512]);
    const peak = peakOf(layer.weight, () => scope(() => layer(input).sum().backward()));
    assert.ok(peak < 1.5, `expected one gradient, the peak is ${peak.toFixed(2)} of the weight`);
  });

  it('are freed as soon as .grad drops them', () => {
    const layer = new nn.Linear(512, 512, { bias: false });
    const input = ones([8, 512]);
    scope(() => layer(input).sum().backward());
    const before = memory.stats().allocatedBytes;
    layer.zeroGrad();
    assert.equal(before - memory.stats().allocatedBytes, layer.weight.nbytes);
  });
});

describe('retainGrad()', () => {
  it('adds up the gradients of several passes', () => {
    const y = p([1]).mul(1);
    y.retainGrad();
    for (let pass = 0; pass < 2; pass++) y.mul(3).sum().backward(null, { retainGraph: true });
    assert.deepEqual(values(y.grad), [6]);
  });

  it('follows the tensor through a change in place', () => {
    const y = p([1]).mul(1);
    y.retainGrad();
    y.mul_(5);
    assert.equal(y.retainsGrad, true);
    y.mul(3).sum().backward();
    assert.deepEqual(values(y.grad), [3]);
  });

  it('follows a view through a change of its base', () => {
    const base = p([1, 2]).mul(1);
    const view = base.select(0, 0);
    view.retainGrad();
    base.mul_(5);
    view.mul(3).backward();
    assert.deepEqual(values(view.grad), 3);
  });

  it('keeps a separate gradient that may be changed', () => {
    const y = p([1, 2]).mul(1);
    y.retainGrad();
    y.sum().backward();
    y.grad?.mul_(10);
    assert.deepEqual(values(y.grad), [10, 10]);
    assert.deepEqual(y.grad?.stride(), [1]);
  });

  it('is called by backward for its inputs that are not leaves', () => {
    const x = p([2]);
    const h = x.mul(3);
    h.mul(5)
      .sum()
      .backward(null, { inputs: [h] });
    assert.deepEqual([h.grad, x.grad].map(values), [[5], null]);
  });
});

describe('a tensor whose gradient autograd.grad returns', () => {
  it('keeps its graph, so that backward can continue from it', () => {
    const x = p([1, 2]);
    const h = x.mul(x);
    const [g] = autograd.grad(h.mul(h).sum(), h);
    h.backward(g);
    assert.deepEqual(values(x.grad), [4, 32]);
  });

  it('can be an input of autograd.grad again', () => {
    const h = p([1, 2]).mul(2);
    const loss = h.sum();
    for (let pass = 0; pass < 2; pass++)
      assert.deepEqual(autograd.grad(loss, h).map(values), [[1, 1]]);
  });

  it('passes its gradient on to another such tensor that it was computed from', () => {
    const x = p([3]);
    const h = x.mul(x);
    const grads = autograd.grad(h.mul(h).sum(), [h, x]);
    assert.deepEqual(grads.map(values), [[18], [108]]);
    assert.throws(() => h.backward(t([1])), /second time/);
  });
});

describe('a leaf that no longer requires a gradient', () => {
  it('accumulates none, also if it required one during forward', () => {
    const [x, w] = [p([1]), p([2])];
    const loss = x.mul(w).sum();
    x.requiresGrad_(false);
    loss.backward();
    assert.deepEqual([x.grad, w.grad].map(values), [null, [1]]);
  });
});

describe('the gradient of a view whose base was changed in place', () => {
  it('adds up if elements of the view share memory', () => {
    const x = p([1, 1, 1]);
    const y = x.mul(1);
    const v = y.select(0, 0).expand([2]);
    y.select(0, 2).mul_(3);
    v.mul(t([1, 3]))
      .sum()
      .backward();
    assert.deepEqual(values(x.grad), [4, 0, 0]);
  });

  it('adds up in windows that overlap', () => {
    const x = p([1, 2, 3, 4]);
    const y = x.mul(1);
    const windows = y.unfold(0, 3, 1);
    y.select(0, 0).mul_(2);
    windows.sum().backward();
    assert.deepEqual(values(x.grad), [2, 2, 2, 1]);
  });
});
