/**
 * The patterns of sharded training in eager mode: storages that are resized and swapped under a
 * graph, restored version counters, hooks.
 */
import assert from 'node:assert/strict';
import {
  autograd,
  cat,
  compile,
  FreedError,
  library,
  manualSeed,
  nn,
  noGrad,
  ops,
  rand,
  randn,
  type Tensor,
  tensor,
  zeros,
} from '../../lib/index.js';

const values = (t: Tensor | null): number[] =>
  Array.from((t as Tensor).toTypedArray() as Float32Array);

function assertClose(actual: Tensor, expected: Tensor): void {
  const [a, b] = [values(actual), values(expected)];
  assert.equal(a.length, b.length);
  a.forEach((v, i) =>
    assert.ok(
      Math.abs(v - (b[i] as number)) <= 1e-5 + 1.3e-6 * Math.abs(b[i] as number),
      `element ${i}: ${v}, expected ${b[i]}`,
    ),
  );
}

function assertSameGrad(a: Tensor, b: Tensor): void {
  assert.deepEqual([a.constructor, a.requiresGrad], [b.constructor, b.requiresGrad]);
  assertClose(a, b);
  assert.equal(a.grad === null, b.grad === null);
  if (a.grad !== null) assertClose(a.grad, b.grad as Tensor);
}

describe('ops.fsdp.set_ to a buffer that a custom op filled through a view', () => {
  const addOneOut = library
    .customOp(
      'patterns::addOneOut',
      { mutatesArgs: [1] },
      (x: Tensor, out: Tensor) => void out.copy_(x.add(1)),
    )
    .registerFake(() => {});
  const fn = (x: Tensor): void => {
    const buffer = zeros([2]);
    addOneOut(x, buffer.view([-1]));
    ops.fsdp.set_(x, buffer.view([-1]));
  };

  it('gives the input the written values', () => {
    const x = zeros([2]);
    fn(x);
    assert.deepEqual([x.tolist(), x._version], [[1, 1], 1]);
  });

  it('gives the input of a compiled function the written values', () => {
    const compiled = compile(fn, { fullgraph: true });
    for (let i = 0; i < 2; i++) {
      const x = zeros([2]);
      compiled(x);
      assert.deepEqual([x.tolist(), x._version], [[1, 1], 1]);
    }
  });
});

describe('a storage', () => {
  it('can be resized to 0 bytes after its last read', () => {
    noGrad(() => {
      const x = randn([10]);
      const expected = values(x.sin().cos());
      const y = x.sin();
      x.untypedStorage().resize_(0);
      assert.deepEqual(values(y.cos()), expected);
      assert.equal(x.untypedStorage().size(), 0);
    });
  });

  it('can be resized back from 0 bytes and filled', () => {
    noGrad(() => {
      const [x, out] = [randn([10]), randn([10])];
      const expected = values(x.sin().cos());
      out.untypedStorage().resize_(0);
      const y = x.sin();
      assert.equal(out.untypedStorage().size(), 0);
      out.untypedStorage().resize_(x.untypedStorage().size());
      out.copy_(y.cos());
      assert.equal(out.untypedStorage().size(), x.untypedStorage().size());
      assert.deepEqual(values(out), expected);
    });
  });
});

describe('a version counter', () => {
  it('has its old value after unsafeSetVersionCounter, whatever the value', () => {
    const refill = (w: Tensor, x: Tensor): [Tensor, number] => {
      const y = x.sin();
      const v = w._version;
      w.copy_(y.add(1));
      autograd.unsafeSetVersionCounter(w, v);
      return [w, v];
    };
    noGrad(() => {
      for (const v of [3, 0, 1]) {
        const w1 = randn([16]);
        for (let i = 0; i < v; i++) w1.fill_(i);
        assert.equal(w1._version, v);
        const x1 = randn([16]);
        const [w2, v2] = refill(w1, x1);
        assert.equal(w2, w1);
        assertClose(w1, x1.sin().add(1));
        assert.deepEqual([v2, w1._version], [v, v]);
      }
    });
  });

  it('has its old value after unsafePreserveVersionCounter', () => {
    noGrad(() => {
      const w = randn([16]).fill_(0).fill_(1);
      const x = randn([16]);
      const before = w._version;
      const out = autograd.unsafePreserveVersionCounter(w, () => w.copy_(x.sin().add(1)));
      assert.equal(out, w);
      assertClose(w, x.sin().add(1));
      assert.equal(before, 2);
      assert.equal(w._version, before);
    });
  });

  const overwrite: Record<string, (w: Tensor, x: Tensor) => void> = {
    'set back': (w, x) => {
      const v = w._version;
      w.copy_(x);
      autograd.unsafeSetVersionCounter(w, v);
    },
    preserved: (w, x) => void autograd.unsafePreserveVersionCounter(w, () => w.copy_(x)),
    'preserved over fsdp.set_': (w, x) =>
      void autograd.unsafePreserveVersionCounter(w, () => ops.fsdp.set_(w, x)),
  };
  for (const [how, run] of Object.entries(overwrite)) {
    it(`that is ${how} lets backward read the new values`, () => {
      const [w, x] = [randn([1], { requiresGrad: true }), randn([1])];
      const expected = w.detach().clone().sin();
      const r = w.sin();
      noGrad(() => run(w, x));
      r.backward();
      assertClose(r, expected);
      assertClose(w, x);
      assertClose(w.grad as Tensor, x.cos());
    });
  }
});

const WORLD_SIZE = 2;
const allGather = (t: Tensor): Tensor => noGrad(() => cat(Array(WORLD_SIZE).fill(t), 0));
const reduceScatter = (t: Tensor): Tensor =>
  noGrad(() => t.narrow(0, 0, t.size(0) / WORLD_SIZE).clone());

/**
 * Either way of making the full weight: into its own memory, or by taking over the gathered one.
 */
type Refill = (full: Tensor, sharded: Tensor) => void;
const byCopy: Refill = (full, sharded) => {
  full.untypedStorage().resize_(full.nbytes);
  noGrad(() =>
    autograd.unsafePreserveVersionCounter(full, () => ops.fsdp.copy_(full, allGather(sharded))),
  );
};
const bySwap: Refill = (full, sharded) => {
  noGrad(() =>
    autograd.unsafePreserveVersionCounter(full, () => ops.fsdp.set_(full, allGather(sharded))),
  );
};

/** `x @ weight`: unlike linear, it saves the weight itself for backward and no view of it. */
class Product extends nn.Module<[Tensor], Tensor> {
  weight = new nn.Parameter(rand([20, 10]));
  forward(x: Tensor): Tensor {
    return x.matmul(this.weight);
  }
}

type Layer = nn.Linear | Product;

/**
 * A layer whose weight is sharded, and made whole between hooks, as a sharded training loop does
 * it.
 */
function fakeDistributed(
  make: () => Layer,
  refill: Refill,
): { module: Layer; full: Tensor; input: Tensor } {
  manualSeed(1234);
  const module = make();
  const sharded = new nn.Parameter(reduceScatter(module.weight));
  const full = new nn.Parameter(allGather(sharded));
  full.untypedStorage().resize_(0);
  const unshard = (): void => {
    refill(full, sharded);
    module.weight = full;
  };
  module.registerFullBackwardPreHook(unshard);
  module.registerFullBackwardHook(() => {
    const grad = reduceScatter(module.weight.grad as Tensor);
    module.weight = sharded;
    sharded.grad = grad;
    full.untypedStorage().resize_(0);
  });
  module.registerForwardPreHook(unshard);
  module.registerForwardHook(() => {
    module.weight = sharded;
    full.untypedStorage().resize_(0);
  });
  module.weight = sharded;
  return { module, full, input: rand([2, 20], { requiresGrad: true }) };
}

function steps(forward: (x: Tensor) => Tensor, input: Tensor): Tensor {
  let out = input;
  for (let i = 0; i < 4; i++) {
    out = forward(input);
    out.sum().backward();
  }
  return out;
}

const product = (): Layer => new Product();
const linear = (): Layer => new nn.Linear(20, 10, { bias: false });

describe('a sharded layer that hooks unshard', () => {
  it('has the same gradients whether hooks copy or swap the full weight in', () => {
    const [a, b] = [fakeDistributed(product, byCopy), fakeDistributed(product, bySwap)];
    const [outA, outB] = [steps((x) => a.module(x), a.input), steps((x) => b.module(x), b.input)];
    assertSameGrad(a.module.weight, b.module.weight);
    assertSameGrad(a.input, b.input);
    assertClose(outA, outB);
    assert.deepEqual(a.module.weight.shape, [10, 10]);
    assert.deepEqual([a.full.untypedStorage().size(), b.full.untypedStorage().size()], [0, 0]);
  });

  it('has the gradients of the unsharded layer', () => {
    const { module, input } = fakeDistributed(linear, byCopy);
    const whole = cat([module.weight, module.weight], 0).detach().requiresGrad_();
    const same = input.detach().clone().requiresGrad_();
    const out = steps((x) => module(x), input);
    const expected = steps((x) => x.matmul(whole.t()), same);
    assertClose(out, expected);
    assertClose(input.grad as Tensor, same.grad as Tensor);
    assertClose(module.weight.grad as Tensor, (whole.grad as Tensor).narrow(0, 0, 5));
  });

  it('throws FreedError if backward needs a view of memory that was swapped out and resized to 0 bytes', () => {
    const { module, input } = fakeDistributed(linear, bySwap);
    const loss = module(input).sum();
    assert.throws(
      () => loss.backward(),
      (error: FreedError) =>
        error instanceof FreedError && /resized to 0 bytes, 800 are needed/.test(error.message),
    );
  });
});

describe('a parameter', () => {
  const x = tensor([0.5, -1, 2]);
  const cases: Record<string, () => [Tensor, Tensor, number[] | null]> = {
    'from an input': () => {
      const p = new nn.Parameter(x.clone());
      return [p, p.sin(), values(x.cos())];
    },
    'from an input, without requiresGrad,': () => [
      new nn.Parameter(x.clone(), false),
      x.add(1),
      null,
    ],
    'from a computed value': () => {
      const p = new nn.Parameter(x.add(123));
      return [p, p.sin(), values(x.add(123).cos())];
    },
    'from a computed value, without requiresGrad,': () => [
      new nn.Parameter(x.add(123), false),
      x.add(1),
      null,
    ],
  };
  for (const [name, make] of Object.entries(cases)) {
    it(`${name} is a leaf with its own gradient`, () => {
      const [p, r, grad] = make();
      assert.ok(p instanceof nn.Parameter && p.isLeaf);
      assert.equal(p.requiresGrad, grad !== null);
      if (grad !== null) r.sum().backward();
      assert.deepEqual(p.grad === null ? null : values(p.grad), grad);
    });
  }
});
