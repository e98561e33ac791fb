/**
 * A gradient that the program has seen or given stays the program's: `.grad` is a copy of it.
 * Reference: PyTorch, which copies where anyone else holds the gradient.
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
  it('is not what .grad accumulates into', () => {
    const d = t([1, 1]);
    const x = p([0, 0]);
    x.add(0).backward(d);
    x.add(0).backward(d);
    assert.deepEqual(values(x.grad), [2, 2]);
    assert.deepEqual(values(d), [1, 1]);
  });

  it('serves all micro-batches of a pipeline stage that is run by hand', () => {
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

  it('is left alone where a tensor on the way retains its gradient', () => {
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

describe('a gradient that a hook sees', () => {
  it('of a tensor is not clipped with .grad', () => {
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

  it('is that of its own step, also after zeroGrad()', () => {
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

  it('after accumulation stays when it is taken out of .grad', () => {
    const x = p([1, 2]);
    let seen: Tensor | null = null;
    x.registerPostAccumulateGradHook((leaf) => {
      seen = leaf.grad;
      leaf.grad = null;
    });
    x.mul(2).sum().backward();
    assert.deepEqual(values(seen), [2, 2]);
  });

  it('and returns is not added into', () => {
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

  it('of a node stays, whether it was given or returned', () => {
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

  it('of a module outlives the gradients of its inputs', () => {
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

describe('a gradient in a function of the program', () => {
  it('stays what backward was given', () => {
    Identity.given = [];
    const x = p([1, 2]);
    Identity.apply(x).mul(3).sum().backward();
    nn.utils.clipGradNorm_([x], 1);
    x.grad = null;
    assert.deepEqual(Identity.given.map(values), [[3, 3]]);
  });

  it('stays what backward has returned', () => {
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

  it('stays what the rule of an op of the program was given and has returned', () => {
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

describe('a gradient that is read', () => {
  it('from .grad and passed on is not what another .grad accumulates into', () => {
    const [a, b] = [p([1]), p([1])];
    a.mul(2).sum().backward();
    const g = a.grad as Tensor;
    b.add(0).backward(g);
    b.add(0).backward(g);
    assert.deepEqual([g, b.grad].map(values), [[2], [4]]);
  });

  it('from .grad is the one that the next backward adds to, as in PyTorch', () => {
    const x = p([1]);
    x.mul(2).sum().backward();
    const g = x.grad;
    x.mul(2).sum().backward();
    assert.equal(x.grad, g);
    assert.deepEqual(values(g), [4]);
  });

  it('from autograd.grad survives its use as a gradient', () => {
    const x = p([1, 2]);
    const y = p([0, 0]);
    const [g] = autograd.grad(x.mul(3).sum(), x);
    y.add(0).backward(g);
    y.grad?.mul_(0);
    y.grad = null;
    assert.deepEqual(values(g), [3, 3]);
  });
});

describe('gradients that nobody has seen', () => {
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

  it('become that of a linear weight, through the views on their way', () => {
    const layer = new nn.Linear(512, 512, { bias: false });
    const input = ones([8, 512]);
    const peak = peakOf(layer.weight, () => scope(() => layer(input).sum().backward()));
    assert.ok(peak < 1.5, `expected one gradient, the peak is ${peak.toFixed(2)} of the weight`);
  });

  it('are freed at once when .grad lets them go', () => {
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

  it('keeps a gradient of its own that can be changed', () => {
    const y = p([1, 2]).mul(1);
    y.retainGrad();
    y.sum().backward();
    y.grad?.mul_(10);
    assert.deepEqual(values(y.grad), [10, 10]);
    assert.deepEqual(y.grad?.stride(), [1]);
  });

  it('is what backward does for its inputs that are no leaves', () => {
    const x = p([2]);
    const h = x.mul(3);
    h.mul(5)
      .sum()
      .backward(null, { inputs: [h] });
    assert.deepEqual([h.grad, x.grad].map(values), [[5], null]);
  });
});

describe('a captured tensor', () => {
  it('keeps its graph, so that backward can go on from it', () => {
    const x = p([1, 2]);
    const h = x.mul(x);
    const [g] = autograd.grad(h.mul(h).sum(), h);
    h.backward(g);
    assert.deepEqual(values(x.grad), [4, 32]);
  });

  it('can be captured again', () => {
    const h = p([1, 2]).mul(2);
    const loss = h.sum();
    for (let pass = 0; pass < 2; pass++)
      assert.deepEqual(autograd.grad(loss, h).map(values), [[1, 1]]);
  });

  it('is walked through where another one lies behind it', () => {
    const x = p([3]);
    const h = x.mul(x);
    const grads = autograd.grad(h.mul(h).sum(), [h, x]);
    assert.deepEqual(grads.map(values), [[18], [108]]);
    assert.throws(() => h.backward(t([1])), /second time/);
  });
});

describe('a leaf that no longer requires a gradient', () => {
  it('accumulates none, also if it did during forward', () => {
    const [x, w] = [p([1]), p([2])];
    const loss = x.mul(w).sum();
    x.requiresGrad_(false);
    loss.backward();
    assert.deepEqual([x.grad, w.grad].map(values), [null, [1]]);
  });
});

describe('the gradient of a view whose base was changed in place', () => {
  it('adds up where the elements of the view share memory', () => {
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
