/** Leaves, kept gradients and attributes of modules in lowered graphs are those of the function. */
import assert from 'node:assert/strict';
import { aotAutograd, type GraphModule } from '../../../lib/compile/index.js';
import { autograd, compile, nn, noGrad, type Tensor, tensor, zeros } from '../../../lib/index.js';

const PARTITIONS = ['aot_eager', 'aot_eager_decomp_partition'] as const;
type Fn = (x: Tensor) => readonly Tensor[];

/** Runs eagerly and compiled, thrice, and compares results, gradients and what `observe` sees. */
function assertSame(
  fn: Fn,
  observe: (results: readonly Tensor[], x: Tensor) => unknown = () => null,
) {
  const run = (f: Fn, call: number): unknown => {
    const x = tensor([1.5 + call, -2.5], { requiresGrad: true });
    const results = f(x);
    const before = results.map((t) => [
      t.constructor.name,
      t.tolist(),
      t.requiresGrad,
      t.isLeaf,
      t._version,
      t === x,
      t.untypedStorage() === x.untypedStorage(),
    ]);
    for (const t of results) if (!t.isLeaf) t.mul(t).sum().backward({ retainGraph: true });
    return [before, [...results, x].map((t) => t.grad?.tolist() ?? null), observe(results, x)];
  };
  for (const backend of PARTITIONS) {
    const compiled = compile(fn, { backend, fullgraph: true });
    for (let call = 0; call < 3; call++)
      assert.deepEqual(run(compiled, call), run(fn, call), `${backend}, call ${call}`);
  }
  assert.ok(isLowered(fn), 'the front graph ran');
}

/** Whether the lowered level expresses a function. */
function isLowered(fn: Fn): boolean {
  let lowered = false;
  const fwCompiler = (module: GraphModule) => {
    lowered = true;
    return module.forward.bind(module);
  };
  compile(fn, { backend: aotAutograd({ fwCompiler }) })(tensor([1, 2], { requiresGrad: true }));
  return lowered;
}

describe('a lowered graph makes leaves', () => {
  for (const requiresGrad of [true, false]) {
    it(`as a Parameter on the memory of an argument (${requiresGrad})`, () => {
      assertSame(
        (x) => {
          const p = new nn.Parameter(x, requiresGrad);
          return [p, p.sin()];
        },
        ([p], x) => {
          noGrad(() => p?.mul_(2));
          noGrad(() => p?.div_(2));
          return [x.tolist(), p?._version, x._version];
        },
      );
    });

    it(`as a Parameter of a computed tensor (${requiresGrad})`, () => {
      assertSame((x) => {
        const p = new nn.Parameter(x.add(123), requiresGrad);
        return [p.sin(), p, x.mul(p)];
      });
    });
  }

  it('as a Parameter of a view, once for results that are one', () => {
    assertSame(
      (x) => {
        const p = new nn.Parameter(x.narrow(0, 1, 1));
        return [p, p, p.exp()];
      },
      ([first, second], x) => {
        noGrad(() => first?.add_(1));
        noGrad(() => first?.sub_(1));
        return [first === second, x.tolist()];
      },
    );
  });

  it('by requiresGrad_, of new memory and of a detached view', () => {
    assertSame((x) => {
      const own = zeros([2]).requiresGrad_();
      const view = x.detach().requiresGrad_();
      return [own, view, own.add(view).mul(x)];
    });
  });

  it('that nobody sees', () => {
    assertSame((x) => [new nn.Parameter(x).mul(zeros([2]).add(3).requiresGrad_())]);
    assertSame((x) => [new nn.Parameter(new nn.Parameter(x.mul(2))).mul(x)]);
  });

  it('except those whose .grad or memory it changes', () => {
    const assigned: Fn = (x) => {
      const p = new nn.Parameter(x);
      p.grad = x.detach().mul(2);
      return [p.mul(2), p];
    };
    const moved: Fn = (x) => {
      const p = new nn.Parameter(x);
      p.data = x.detach().mul(2);
      return [p.mul(2), p];
    };
    for (const fn of [assigned, moved]) {
      assert.ok(!isLowered(fn));
      const compiled = compile(fn, { backend: 'aot_eager' });
      for (let call = 0; call < 2; call++) {
        const [expected, seen] = [fn, compiled].map((run) => {
          const x = tensor([1, 2 + call], { requiresGrad: true });
          const results = run(x);
          return [...results, x].map((t) => [t.tolist(), t.grad?.tolist()]);
        });
        assert.deepEqual(seen, expected);
      }
    }
  });
});

describe('a lowered graph keeps gradients', () => {
  it('of results and of arguments', () => {
    assertSame((x) => {
      const y = x.sin();
      y.retainGrad();
      return [y, x.exp()];
    });
    assertSame((x) => {
      x.retainGrad();
      return [x.sin()];
    });
    const inner: Fn = (x) => {
      x.retainGrad();
      return [x.sin()];
    };
    for (const backend of PARTITIONS) {
      const compiled = compile(inner, { backend, fullgraph: true });
      for (let call = 0; call < 3; call++) {
        const [expected, seen] = [inner, compiled].map((run) => {
          const x = tensor([1, 2 + call], { requiresGrad: true });
          const y = x.mul(2);
          run(y)[0]?.sum().backward();
          return [x.grad?.tolist(), y.grad?.tolist()];
        });
        assert.deepEqual(seen, expected);
      }
    }
  });

  it('only in passes towards what the result depends on', () => {
    const functions: ((x: Tensor, w: Tensor) => readonly Tensor[])[] = [
      (x) => {
        const y = x.mul(2);
        y.retainGrad();
        return [y];
      },
      (x, w) => {
        const y = x.mul(2);
        y.retainGrad();
        return [y, w.exp()];
      },
    ];
    for (const backend of PARTITIONS)
      for (const fn of functions) {
        const [expected, seen] = [fn, compile(fn, { backend })].map((run) => {
          const w = tensor([3, 4], { requiresGrad: true });
          const y = run(tensor([1, 2], { requiresGrad: true }), w)[0] as Tensor;
          const loss = y.mul(y).sum();
          const found = autograd.grad(loss, [w], { allowUnused: true, retainGraph: true });
          const before = y.grad?.tolist();
          loss.backward();
          return [found, before, y.grad?.tolist()];
        });
        assert.deepEqual(seen, expected);
      }
  });

  it('of a result that others depend on, or that has hooks, op by op', () => {
    const feeding: Fn = (x) => {
      const y = x.sin();
      y.retainGrad();
      return [y, y.exp()];
    };
    const hooked: Fn = (x) => {
      const y = x.sin();
      y.retainGrad();
      y.registerHook((grad) => grad.mul(x.detach()));
      return [y];
    };
    for (const fn of [feeding, hooked]) {
      assert.ok(!isLowered(fn));
      const [expected, seen] = [fn, compile(fn, { backend: 'aot_eager' })].map((run) => {
        const results = run(tensor([1, 2], { requiresGrad: true }));
        results.at(-1)?.sum().backward();
        return results[0]?.grad?.tolist();
      });
      assert.deepEqual(seen, expected);
    }
  });
});

class Memory extends nn.Module {
  last: Tensor | null = null;
  view: Tensor | null = null;
  given: Tensor | null = null;
  leaf: Tensor | null = null;
  label = '';
  forward(x: Tensor): Tensor {
    this.last = x.sin();
    this.given = x;
    this.view = x.narrow(0, 0, 1);
    this.leaf = zeros([2]).requiresGrad_();
    this.label = 'seen';
    return this.last.exp().mul(this.leaf.add(2));
  }
}

describe('a lowered graph sets attributes of modules', () => {
  for (const backend of PARTITIONS)
    it(`to results, arguments, views, leaves and values, with histories (${backend})`, () => {
      const run = (memory: Memory, call: (x: Tensor) => Tensor): unknown[] =>
        [1, 2, 3].map((n) => {
          memory.label = '';
          const x = tensor([n, n + 1], { requiresGrad: true });
          const y = call(x);
          const { given, label } = memory;
          const [last, view, leaf] = [memory.last, memory.view, memory.leaf] as Tensor[] as [
            Tensor,
            Tensor,
            Tensor,
          ];
          assert.equal(given, x);
          y.sum().add(last.sum()).add(view.sum()).backward();
          return [label, ...[y, last, view, leaf.grad, x.grad].map((t) => t?.tolist())];
        });
      const [eager, other] = [new Memory(), new Memory()];
      const compiled = compile(other, { backend, fullgraph: true });
      assert.deepEqual(run(other, compiled), run(eager, eager));
    });

  it('in one graph of both halves', () => {
    const graphs: string[] = [];
    const fwCompiler = (module: GraphModule) => {
      graphs.push(module.code);
      return module.forward.bind(module);
    };
    const memory = new Memory();
    const compiled = compile(memory, { backend: aotAutograd({ fwCompiler }) });
    for (let i = 0; i < 2; i++)
      compiled(tensor([1, 2], { requiresGrad: true }))
        .sum()
        .backward();
    // Captured without the tensors of an earlier call, and with them: forward, backward of all
    // results, and of the sum alone.
    assert.equal(graphs.length, 6);
  });
});
