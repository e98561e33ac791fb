import assert from 'node:assert/strict';
import type { CompileBackend, GraphModule } from '../../../lib/compile/index.js';
import {
  CompileError,
  compile,
  compiler,
  dropout,
  FreedError,
  graphBreak,
  IndexError,
  keep,
  library,
  manualSeed,
  nn,
  ones,
  rand,
  ShapeError,
  scope,
  type Tensor,
  tensor,
  zeros,
} from '../../../lib/index.js';

const BACKENDS = ['eager', 'aot_eager', 'aot_eager_decomp_partition'] as const;

/** A backend that lists the ops of each graph. */
function listing(): { graphs: string[][]; backend: CompileBackend } {
  const graphs: string[][] = [];
  const backend = (module: GraphModule) => {
    graphs.push(module.graph.callNodes.map((node) => node.op?.name ?? ''));
    return module.forward.bind(module);
  };
  return { graphs, backend };
}

/** A function that cannot be captured, because it begins with a break. */
function broken<A extends readonly unknown[], R>(
  fn: (...args: A) => R,
  backend?: CompileBackend | (typeof BACKENDS)[number],
): (...args: A) => R {
  return compile((...args: A) => (graphBreak(), fn(...args)), { backend: backend ?? 'aot_eager' });
}

describe('a function that reads values in between', () => {
  it('runs its ops as graphs that end at the reads', () => {
    const { graphs, backend } = listing();
    const fn = compile(
      (x: Tensor) => {
        const y = x.mul(2).add(1);
        const big = y.sum().item<number>() > 10;
        return big ? y.sub(1).sin() : y.neg();
      },
      { backend },
    );
    for (let i = 0; i < 3; i++) {
      assert.deepEqual(fn(ones([2])).tolist(), [-3, -3]);
      assert.deepEqual(fn(ones([4])).tolist(), ones([4]).mul(2).sin().tolist());
    }
    assert.deepEqual(graphs, [
      ['mul', 'add', 'sum'],
      ['neg'],
      ['mul', 'add', 'sum'],
      ['sub', 'sin'],
    ]);
  });

  for (const backend of BACKENDS)
    it(`gives the results, gradients and effects of an uncompiled call with ${backend}`, () => {
      const log: number[] = [];
      const body = (x: Tensor, w: Tensor, buffer: Tensor): Tensor => {
        const h = x.matmul(w).relu();
        buffer.add_(h.detach().sum({ dim: 0 }));
        log.push(buffer.sum().item());
        const mean = h.mean();
        if (mean.item<number>() > 0) buffer.mul_(0.5);
        return dropout(h.sub(mean).pow(2)).sum();
      };
      const run = (fn: typeof body): unknown[] => {
        manualSeed(4);
        const x = tensor([
          [1, 2],
          [3, -4],
        ]);
        const w = tensor([
          [1, -1],
          [0.5, 2],
        ]).requiresGrad_();
        const buffer = zeros([2]);
        const results: unknown[] = [];
        for (let i = 0; i < 3; i++) {
          const loss = fn(x, w, buffer);
          loss.backward();
          results.push(loss.item(), w.grad?.tolist(), buffer.tolist(), buffer._version);
        }
        return [...results, log.splice(0)];
      };
      assert.deepEqual(run(compile(body, { backend })), run(body));
    });

  it('does not get a new graph for a number that it has read', () => {
    const { graphs, backend } = listing();
    const fn = compile((x: Tensor) => x.div(x.sum().item()).add(x.max().item()), { backend });
    for (let i = 1; i < 12; i++) {
      const x = tensor([i, 2 * i], { dtype: 'float64' });
      assert.deepEqual(
        fn(x).tolist(),
        x
          .div(3 * i)
          .add(2 * i)
          .tolist(),
      );
    }
    assert.ok(graphs.length <= 8, `${graphs.length} graphs`);
  });

  it('runs op by op when its calls differ too often, or the parts of one call', () => {
    const { graphs, backend } = listing();
    const double = (x: Tensor): Tensor => {
      let y = x;
      for (let i = x.item<number>(); i > 0; i--) y = y.add(1);
      return y;
    };
    const fn = compile(double, { backend });
    for (let n = 1; n < 100; n++) assert.equal(fn(tensor(n)).item(), 2 * n);
    assert.equal(graphs.length, 64);
    const all = broken((xs: readonly Tensor[]) => xs.map((x) => double(x).item<number>()), backend);
    const numbers = Array.from({ length: 99 }, (_, i) => i + 1);
    const xs = numbers.map((n) => tensor(n));
    for (let i = 0; i < 2; i++)
      assert.deepEqual(
        all(xs),
        numbers.map((n) => 2 * n),
      );
    assert.equal(graphs.length, 128);
  });

  it('is in the report of explain, with the break', () => {
    const report = compiler.explain((x: Tensor) => x.mul(x.sum().item()).relu())(ones([2]));
    assert.equal(report.breaks.length, 1);
    assert.deepEqual(
      report.graphs.map(({ opCount }) => opCount),
      [1, 2],
    );
    assert.match(String(report), /the ops that the function calls/);
  });
});

describe('a lazy segment', () => {
  it('has results of the shapes, dtypes and layouts that they have when they are computed', () => {
    broken((x: Tensor) => {
      const y = x.t().mul(2);
      const z = y.select(0, 1);
      assert.deepEqual([y.shape, z.shape, z.storageOffset], [[3, 2], [2], y.stride(0)]);
      assert.equal(z.untypedStorage(), y.untypedStorage());
      assert.deepEqual(z.tolist(), [2, 8]);
    })(
      tensor([
        [0, 1, 2],
        [3, 4, 5],
      ]),
    );
  });

  it('sees changes in place through views, before and after them', () => {
    const fn = (x: Tensor): unknown[] => {
      const row = x.select(0, 0);
      const sum = x.sum();
      row.mul_(10);
      const later = x.sum();
      x.add_(1);
      return [sum.item(), later.item(), row.tolist(), x.tolist(), row._version];
    };
    for (const backend of BACKENDS) {
      const run = broken(fn, backend);
      for (let i = 0; i < 3; i++) assert.deepEqual(run(ones([2, 2])), fn(ones([2, 2])));
    }
  });

  it('is right for arguments that share memory', () => {
    const fn = (x: Tensor, first: Tensor): unknown => {
      const before = first.mul(1);
      x.add_(first);
      return [before.tolist(), first.tolist(), x.add(first).tolist()];
    };
    for (const backend of BACKENDS) {
      const run = broken(fn, backend);
      for (let i = 0; i < 3; i++) {
        const [x, y] = [ones([2, 2]), ones([2, 2])];
        assert.deepEqual(run(x, x.select(0, 0)), fn(y, y.select(0, 0)));
        assert.deepEqual(run(x, ones([2])), fn(y, ones([2])));
      }
    }
  });

  it('keeps operands that are freed before it runs', () => {
    const fn = broken((x: Tensor) => {
      const y = x.mul(2);
      const z = y.add(1);
      x.dispose();
      y.dispose();
      return z;
    });
    for (let i = 0; i < 3; i++) assert.deepEqual(fn(ones([2])).tolist(), [3, 3]);
  });

  it('frees what a scope in it makes', () => {
    const fn = broken((x: Tensor) => {
      let inner: Tensor | null = null;
      const result = scope(() => {
        inner = x.mul(2);
        return inner.add(1);
      });
      assert.throws(() => (inner as unknown as Tensor).tolist(), FreedError);
      return result;
    });
    for (let i = 0; i < 3; i++) assert.deepEqual(fn(ones([2])).tolist(), [3, 3]);
    scope(() => {
      const kept = keep(fn(ones([2])));
      assert.deepEqual(kept.tolist(), [3, 3]);
    });
  });

  it('draws the random numbers of an uncompiled call', () => {
    const fn = (x: Tensor): unknown => [
      dropout(x, 0.5).tolist(),
      x
        .add(rand([4]))
        .mul(dropout(x))
        .sum()
        .item(),
    ];
    for (const backend of BACKENDS) {
      const run = broken(fn, backend);
      const drawn = [run, fn].map((call) => {
        manualSeed(3);
        return [call(ones([4])), call(ones([4])), rand([1]).item()];
      });
      assert.deepEqual(drawn[0], drawn[1]);
    }
  });

  it('runs backward passes and hooks of the function', () => {
    const fn = (x: Tensor, w: Tensor): unknown => {
      const seen: unknown[] = [];
      const h = x.mul(w);
      h.registerHook((grad) => void seen.push(grad.tolist()));
      h.sin().sum().backward();
      const grad = w.grad?.mul(2);
      w.grad = null;
      return [seen, grad?.tolist(), h.tolist()];
    };
    for (const backend of BACKENDS) {
      const run = broken(fn, backend);
      const w = tensor([0.5, 1]).requiresGrad_();
      for (let i = 0; i < 3; i++) assert.deepEqual(run(ones([2]), w), fn(ones([2]), w));
    }
  });

  it('has run when the function throws, and changes what an uncompiled call changes', () => {
    const fn = broken((x: Tensor, buffer: Tensor) => {
      buffer.add_(x.mul(2));
      throw new RangeError('as eagerly');
    });
    const buffer = zeros([2]);
    for (let i = 1; i < 4; i++) {
      assert.throws(() => fn(ones([2]), buffer), RangeError);
      assert.deepEqual(buffer.tolist(), [2 * i, 2 * i]);
    }
  });

  it('gives errors of shapes at the call, and those of values where they are needed', () => {
    const shapes = broken((x: Tensor) => {
      x.mul(2);
      assert.throws(() => x.add(ones([3])), ShapeError);
      return x.add(1);
    });
    assert.deepEqual(shapes(ones([2])).tolist(), [2, 2]);
    const rows = broken((x: Tensor) => {
      const y = x.mul(2).indexSelect(0, tensor([5], { dtype: 'int64' }));
      assert.throws(() => y.tolist(), IndexError);
    });
    rows(ones([2]));
  });

  it('says why a result has no value if its backend fails', () => {
    let result: Tensor | null = null;
    const fn = broken(
      (x: Tensor) => {
        result = x.mul(2);
        return result.tolist();
      },
      () => {
        throw new CompileError('no code for mul');
      },
    );
    assert.throws(() => fn(ones([2])), /no code for mul/);
    assert.throws(() => (result as unknown as Tensor).tolist(), /no code for mul/);
  });

  it('checks the results of a backend, and copies what it cannot take over', () => {
    const fn = broken(
      (x: Tensor) => x.mul(1).add(1),
      () => () => [ones([3])],
    );
    assert.throws(() => fn(ones([2])), CompileError);
    const shared = ones([2, 2]);
    const strange = broken(
      (x: Tensor) => {
        const y = x.mul(1);
        return [y.add(1), y.add(2)];
      },
      (module) => () => module.graph.outputs.map(() => shared.t()),
    );
    const results = strange(ones([2, 2]));
    results[0]!.mul_(5);
    assert.deepEqual(results[1]!.tolist(), [
      [1, 1],
      [1, 1],
    ]);
    assert.deepEqual(shared.tolist(), results[1]!.tolist());
  });

  it('is seen by a dispatch mode at the calls, once', () => {
    const names: string[] = [];
    const fn = broken((x: Tensor) => {
      const y = x.mul(2);
      library.withDispatchMode(
        (call) => {
          names.push(call.op);
          return call.run();
        },
        () => y.add(1).tolist(),
      );
      return y;
    });
    for (let i = 0; i < 2; i++) assert.deepEqual(fn(ones([1])).tolist(), [2]);
    assert.deepEqual(names, ['add', 'add']);
  });

  it('ends where a compiled function is called, and does not record its ops again', () => {
    const { graphs, backend } = listing();
    const inner = compile((x: Tensor) => x.sin(), { backend });
    const fn = broken((x: Tensor) => inner(x.mul(2)).add(1), backend);
    for (let i = 0; i < 2; i++)
      assert.deepEqual(fn(ones([1])).tolist(), ones([1]).mul(2).sin().add(1).tolist());
    assert.deepEqual(graphs, [['mul'], ['sin'], ['add']]);
  });

  it('takes no ops of functions that are disabled', () => {
    const { graphs, backend } = listing();
    const outside = compiler.disable((x: Tensor) => x.exp());
    const fn = compile((x: Tensor) => outside(x.neg()).add(1), { backend });
    assert.deepEqual(fn(zeros([1])).tolist(), [2]);
    assert.deepEqual(graphs, [['neg'], ['add']]);
  });

  it('captures the modules that the function calls by themselves', () => {
    const { graphs, backend } = listing();
    const model = new nn.Linear(2, 2, { bias: false });
    const fn = broken((x: Tensor) => model(x.mul(2)).relu(), backend);
    for (let i = 0; i < 2; i++)
      assert.deepEqual(
        fn(ones([1, 2])).tolist(),
        model(ones([1, 2]).mul(2))
          .relu()
          .tolist(),
      );
    assert.deepEqual(graphs, [['mul'], ['transpose', 'matmul'], ['relu']]);
  });
});
