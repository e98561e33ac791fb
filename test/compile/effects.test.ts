/**
 * Effects of a captured function beside pure ops are repeated at every run, or refused with their
 * place in the code.
 */
import assert from 'node:assert/strict';
import {
  amp,
  autograd,
  CompileError,
  compile,
  defaultGenerator,
  enableGrad,
  float64,
  Generator,
  getDefaultDtype,
  inferenceMode,
  isGradEnabled,
  manualSeed,
  nn,
  noGrad,
  rand,
  scope,
  setDefaultDtype,
  setGradEnabled,
  type Tensor,
  tensor,
  zeros,
} from '../../lib/index.js';
import { CompileCounter } from '../../lib/testing/index.js';

const leaf = (values: number[]): Tensor => tensor(values).requiresGrad_();
const vector = (...numbers: number[]): Tensor => tensor(numbers.map((n) => n + 0.5)).sub(0.5);
const list = (t: Tensor | null): unknown => (t as Tensor).tolist();

/** Gradient of a scalar function of one leaf: eagerly, at the capture, and at the first replay. */
function gradients(fn: (w: Tensor) => Tensor, fullgraph: boolean): unknown[] {
  const compiled = compile(fn, { fullgraph });
  return [fn, compiled, compiled].map((run) => {
    const w = leaf([1.5, 2.5]);
    run(w).backward();
    return list(w.grad);
  });
}

function assertEqualGradients(fn: (w: Tensor) => Tensor, fullgraph = true): void {
  const [expected, ...got] = gradients(fn, fullgraph);
  for (const each of got) assert.deepEqual(each, expected);
}

describe('a captured graph', () => {
  it('runs every op in the grad mode of the capture', () => {
    assertEqualGradients((w) =>
      noGrad(() => w.mul(2))
        .mul(w)
        .sum(),
    );
    const modes = (w: Tensor): Tensor[] => [
      noGrad(() => w.mul(2)),
      noGrad(() => enableGrad(() => w.mul(3))),
      inferenceMode(() => w.add(1)),
      w.neg(),
    ];
    const compiled = compile(modes, { fullgraph: true });
    for (const run of [compiled, compiled]) {
      assert.deepEqual(
        run(leaf([1])).map((t) => t.requiresGrad),
        [false, true, false, true],
      );
    }
    assert.equal(isGradEnabled(), true);
  });

  it('detaches where detach() and data do', () => {
    assertEqualGradients((w) => w.mul(2).detach().mul(w).sum());
    assertEqualGradients((w) => w.mul(2).data.mul(w).sum());
    assertEqualGradients((w) => w.data.mul(w).sum());
  });

  it('creates tensors from written values anew at every run', () => {
    const compiled = compile(
      (x: Tensor) => {
        const sum = tensor([0.5, 1.5]);
        sum.add_(x);
        return sum;
      },
      { fullgraph: true },
    );
    const inScope = scope(() => compiled(vector(1, 2)));
    for (const result of [inScope, compiled(vector(1, 2)), compiled(vector(1, 2))])
      assert.deepEqual(list(result), [1.5, 3.5]);
  });

  it('draws from the given generator, and gives attention another dropout mask at every run', () => {
    const generator = new Generator(3);
    const fn = (x: Tensor): Tensor => x.add(rand([2], { generator }));
    const compiled = compile(fn, { fullgraph: true });
    const x = zeros([2]);
    const expected = [fn(x), fn(x)].map(list);
    generator.manualSeed(3);
    const before = defaultGenerator.getState();
    assert.deepEqual([compiled(x), compiled(x)].map(list), expected);
    assert.deepEqual(defaultGenerator.getState(), before);

    const attention = (q: Tensor, dropoutP: number): Tensor =>
      nn.functional.scaledDotProductAttention(q, q, q, { dropoutP });
    const attend = compile(attention, { fullgraph: true });
    const q = rand([1, 2, 8, 4]);
    for (const p of [0.5, 0]) {
      manualSeed(7);
      const eager = [attention(q, p), attention(q, p), rand([1])].map(list);
      manualSeed(7);
      assert.deepEqual([attend(q, p), attend(q, p), rand([1])].map(list), eager);
    }
  });

  it('changes a tensor that the function closes over once per call, and so its version', () => {
    const total = zeros([2]);
    const compiled = compile((x: Tensor) => total.add_(x), { fullgraph: true });
    for (const call of [1, 2, 3]) {
      assert.equal(compiled(vector(1, 2)), total);
      assert.deepEqual(list(total), [call, 2 * call]);
      assert.equal(total._version, call);
    }
  });

  it('leaves no history of the capture on a tensor that the function closes over', () => {
    const run = (compiled: boolean): unknown => {
      const total = zeros([2]);
      const add = (w: Tensor): Tensor => total.add_(w.mul(w));
      const fn = compiled ? compile(add, { fullgraph: true }) : add;
      const w = leaf([1.5, 2.5]);
      fn(w).sum().backward();
      return list(w.grad);
    };
    assert.deepEqual(run(true), run(false));
  });

  it('changes an input in place that is not a leaf', () => {
    assertEqualGradients((w) =>
      compile((h: Tensor) => h.relu_(), { fullgraph: true })(w.mul(2))
        .mul(w)
        .sum(),
    );
  });

  it('keeps the version that an input has when the graph runs', () => {
    const fn = compile(
      (t: Tensor, x: Tensor) => autograd.unsafePreserveVersionCounter(t, () => t.copy_(x)),
      { fullgraph: true },
    );
    for (const changes of [0, 3]) {
      const t = zeros([2]);
      for (let i = 0; i < changes; i++) t.add_(1);
      fn(t, vector(1, 2));
      assert.equal(t._version, changes);
      assert.deepEqual(list(t), [1, 2]);
    }
  });

  it('runs no hooks of saved tensors and holds no memory of the capture', () => {
    let packed = 0;
    const weight = leaf([1.5, 2.5]);
    const fn = compile((x: Tensor) => x.mul(weight), { fullgraph: true });
    const pack = (t: Tensor): Tensor => {
      packed++;
      return t;
    };
    const [first, second] = [1, 2].map(() => {
      const before = packed;
      autograd.savedTensorsHooks(
        pack,
        (t) => t,
        () => fn(vector(1, 2)),
      );
      return packed - before;
    });
    assert.equal(first, second);
    assert.equal(weight.retains, 0);
  });
});

describe('autocast in a captured graph', () => {
  it('converts weights anew at every run, even if the region converted them before', () => {
    const weight = leaf([1.5, 2.5]).requiresGrad_();
    const fn = (x: Tensor): Tensor => x.matmul(weight.unsqueeze(1));
    const compiled = compile(fn, { fullgraph: true });
    const step = (): unknown[] =>
      amp.autocast({ deviceType: 'cpu' }, () =>
        [fn, compiled, fn].map((run) => list(run(tensor([[1.5, 2.5]])))),
      );
    for (let i = 0; i < 2; i++) {
      const [eager, replayed, after] = step();
      assert.deepEqual(replayed, eager);
      assert.deepEqual(after, eager);
      noGrad(() => weight.mul_(2));
    }
  });

  it('is off where the function turns it off', () => {
    const fn = compile(
      (x: Tensor) => amp.autocast({ deviceType: 'cpu', enabled: false }, () => x.matmul(x)),
      { fullgraph: true },
    );
    amp.autocast({ deviceType: 'cpu' }, () => {
      for (let i = 0; i < 2; i++) assert.equal(fn(rand([2, 2])).dtype.name, 'float32');
    });
  });
});

const unrepeatable: Record<string, [name: RegExp, fn: (w: Tensor) => Tensor]> = {
  'a backward pass': [
    /backward\(\)/,
    (w) => {
      const inner = w.detach().mul(w);
      inner.sum().backward();
      return w.mul(w.grad as Tensor).sum();
    },
  ],
  'autograd.grad': [
    /autograd\.grad/,
    (w) => autograd.grad(w.mul(w).sum(), w)[0]?.mul(w).sum() as Tensor,
  ],
  'a hook on a saved tensor': [
    /savedTensorsHooks/,
    (w) =>
      autograd.savedTensorsHooks(
        (t) => t.mul(3),
        (t) => t,
        () => w.mul(w).sum(),
      ),
  ],
  'a value that is read': [/value of a tensor/, (w) => w.mul(w.sum().item() as number).sum()],
  'an error that the function catches': [
    /value of a tensor/,
    (w) => {
      try {
        return w.mul(w.sum().item() as number).sum();
      } catch {
        return w.sum();
      }
    },
  ],
};

describe('an effect that a graph cannot repeat', () => {
  it('frees an argument at every call, and breaks the function', () => {
    const sum = (x: Tensor, y: Tensor): Tensor => {
      const z = x.add(1).add(y);
      x.dispose();
      return z.mul(2);
    };
    const fn = compile(sum);
    for (let call = 0; call < 3; call++) {
      const x = vector(1, 2);
      assert.deepEqual(list(fn(x, vector(3, 4))), [10, 14]);
      assert.equal(x.disposed, true);
    }
    assert.throws(
      () => compile(sum, { fullgraph: true })(vector(1, 2), vector(3, 4)),
      /dispose\(\) was called on a tensor that the function did not make/,
    );
  });

  for (const [what, [name, fn]] of Object.entries(unrepeatable)) {
    it(`is refused with fullgraph, with its place, and runs uncompiled without it: ${what}`, () => {
      assert.throws(
        () => compile(fn, { fullgraph: true })(leaf([1.5, 2.5])),
        (error: Error) =>
          error instanceof CompileError &&
          name.test(error.message) &&
          /effects\.test\.[jt]s:\d+/.test(error.message),
      );
      assertEqualGradients(fn, false);
    });
  }

  it('gives advice that helps with fullgraph', () => {
    const advice = (fn: (x: Tensor) => unknown): string => {
      try {
        compile(fn, { fullgraph: true })(zeros([1]));
      } catch (error) {
        return (error as Error).message.replace(/.*cannot repeat that: /, '');
      }
      return 'none';
    };
    const end =
      'outside of the compiled function, or leave out fullgraph: then its JavaScript runs at ' +
      'every call, and its ops as several graphs.';
    assert.equal(
      advice((x) => x.mul(x.sum().item<number>())),
      `compute with tensors, as where() does, read the value ${end}`,
    );
    assert.equal(
      advice((x) => x.requiresGrad_().sum().backward()),
      `do it ${end}`,
    );
  });

  it('is refused: a mode or default that stays changed', () => {
    for (const change of [() => setGradEnabled(false), () => setDefaultDtype(float64)]) {
      assert.throws(
        () =>
          compile(
            (x: Tensor) => {
              change();
              return x.add(1);
            },
            { fullgraph: true },
          )(zeros([1])),
        CompileError,
      );
      assert.equal(isGradEnabled(), true);
      assert.equal(getDefaultDtype().name, 'float32');
    }
  });

  it('is refused: asynchronous functions, and results in Sets and instances', async () => {
    const x = vector(1, 2);
    for (const fn of [(t: Tensor) => new Set([t.add(1)]), async (t: Tensor) => t.add(1)]) {
      assert.throws(
        () => compile(fn as (t: Tensor) => unknown, { fullgraph: true })(x),
        CompileError,
      );
    }
    assert.deepEqual(list(await compile(async (t: Tensor) => t.add(1))(x)), [2, 3]);
  });

  it('is refused: a change of an argument that is not a tensor', () => {
    const fn = (x: Tensor, stats: { calls: number }): Tensor => {
      stats.calls++;
      return x.mul(stats.calls);
    };
    assert.throws(() => compile(fn, { fullgraph: true })(vector(1), { calls: 0 }), CompileError);
    const stats = { calls: 0 };
    const compiled = compile(fn);
    assert.deepEqual([compiled(vector(1), stats), compiled(vector(1), stats)].map(list), [
      [1],
      [2],
    ]);
    assert.equal(stats.calls, 2);
  });

  it('makes the function run uncompiled only for the arguments that have it', () => {
    const counter = CompileCounter();
    const fn = compile(
      (x: Tensor, read: boolean) => (read ? x.mul(x.sum().item() as number) : x.mul(2)),
      { backend: counter },
    );
    assert.deepEqual(list(fn(vector(3), true)), [9]);
    assert.equal(counter.frameCount, 2); // the sum and the product
    for (let i = 0; i < 2; i++) assert.deepEqual(list(fn(vector(3), false)), [6]);
    assert.equal(counter.frameCount, 3);
  });
});
