/**
 * What arrives at a result of a compiled function from which another result was computed: hooks,
 * kept gradients and `autograd.grad` see all of it, as uncompiled.
 */
import assert from 'node:assert/strict';
import { aotAutograd, compiledAutograd } from '../../../lib/compile/index.js';
import { AutogradError, autograd, compile, nn, type Tensor } from '../../../lib/index.js';
import { assertSame, BACKENDS, type Fn, leaves, list, used } from './observed-results.js';

const chain: Fn = (x, y) => {
  const h = x.sin().mul(y);
  const z = h.mul(3).exp();
  return [h, z, z.add(h).mul(x)];
};

describe('a result of a compiled function from which another was computed', () => {
  it('runs its hooks on all of its gradient, and passes on what they return', () => {
    for (const at of [[0, 1, 2], [1], [2], [0, 2], [0]])
      assertSame(chain, (results) => {
        const seen: unknown[] = [];
        const loss = used(results, ...at);
        results[0]?.registerHook((g) => {
          seen.push(list(g));
          return g.mul(10);
        });
        const handle = results[1]?.registerHook((g) => void seen.push(['second', list(g)]));
        loss.backward({ retainGraph: true });
        handle?.remove();
        loss.backward();
        return seen;
      });
  });

  it('keeps its gradient', () => {
    for (const at of [[0, 1, 2], [1], [2]])
      assertSame(chain, (results) => {
        const loss = used(results, ...at);
        results[0]?.retainGrad();
        results[1]?.retainGrad();
        loss.backward();
        return [...results.map((t) => [t.retainsGrad, list(t.grad)])];
      });
  });

  it('is an input of autograd.grad and of backward', () => {
    assertSame(chain, (results, args) => {
      const [h, z, last] = results as [Tensor, Tensor, Tensor];
      const options = { allowUnused: true, retainGraph: true } as const;
      const grads = [
        autograd.grad(z.sum(), [h], options),
        autograd.grad(last.sum(), [h, z, args[0] as Tensor], options),
        autograd.grad(h.sum(), [z, args[1] as Tensor], options),
        autograd.grad([h.sum(), last.sum()], [h], options),
      ];
      last.sum().backward({ inputs: [h] });
      return [...grads.flat(), h.grad].map(list);
    });
  });

  it('takes part in later code that was recorded before', () => {
    assertSame(chain, (results) => {
      const [h, z] = results as [Tensor, Tensor];
      const later = h.mul(z).exp();
      h.retainGrad();
      const after = h.add(z).mul(later).sum();
      h.registerHook((g) => g.neg());
      after.backward();
      return [h.grad, z.grad].map(list);
    });
  });

  it('keeps its gradient when the program changes it in place', () => {
    assertSame(chain, (results) => {
      const [h, z] = results as [Tensor, Tensor];
      h.retainGrad();
      z.retainGrad();
      h.add_(z).mul_(2);
      h.mul(z).sum().backward();
      return [h.grad, z.grad].map(list);
    });
  });

  it('leaves alone what passes do not reach', () => {
    assertSame(
      (x, y) => [x.exp(), y.sin(), x.mul(y)],
      (results, args) => {
        const seen: unknown[] = [];
        for (const t of results) t.registerHook((g) => void seen.push(list(g)));
        used(results, 0, 1, 2).backward({ inputs: [args[1] as Tensor] });
        return seen;
      },
    );
  });

  it('may get nothing but zeros from others, or for what it is computed from', () => {
    const programs: Fn[] = [
      (x) => {
        const h = x.clone().fill_(0.25);
        return [h.exp(), h];
      },
      (x, y) => {
        const h = x.mul(y).sin();
        return [h.cos().atan2(h).fill_(0.5), h, h.mul(x)];
      },
      // On the way to its gradient, twice the same is computed from what is saved.
      (x, y) => {
        const h = x.mul(y).sin();
        return [h.cos().atan2(h.cos()).round(), h.atan2(h)];
      },
      (x, y) => {
        const h = new nn.Parameter(x.detach().mul(2)).add(1);
        return [h.atan2(y.detach()), h];
      },
      (x, y) => {
        const h = x.mul(2);
        h.view([-1]).zero_();
        return [h.sin().mul(y), h.view([2, 1]), h];
      },
    ];
    for (const fn of programs)
      for (const hooked of [0, 1])
        assertSame(fn, (results) => {
          const seen: unknown[] = [];
          results[hooked]?.registerHook((g) => {
            seen.push(list(g));
            return g.mul(3);
          });
          results[1 - hooked]?.retainGrad();
          used(results, ...results.keys()).backward();
          return [seen, list(results[1 - hooked]?.grad)];
        });
  });

  it('may be one of several results of one op, a view, or an argument that was changed', () => {
    const fn: Fn = (x, y) => {
      const h = x.mul(2);
      const [a, b] = h.chunk(2) as [Tensor, Tensor];
      return [a, b, a.mul(b).mul(y), h];
    };
    assertSame(fn, (results) => {
      const [a, b, product, h] = results as [Tensor, Tensor, Tensor, Tensor];
      for (const t of [a, b, h]) t.retainGrad();
      a.registerHook((g) => g.mul(2));
      product.sum().add(h.sum()).add(b.sum()).backward();
      return [a, b, h].map((t) => list(t.grad));
    });
    const changing: Fn = (x, y) => {
      x.mul_(y);
      return [x.sin(), x.exp()];
    };
    for (const backend of BACKENDS) {
      const [seen, expected] = [compile(changing, { backend, fullgraph: true }), changing].map(
        (run) => {
          const [p, y] = leaves() as [Tensor, Tensor];
          const x = p.mul(3);
          const [s, e] = run(x, y) as [Tensor, Tensor];
          x.retainGrad();
          x.registerHook((g) => g.mul(2));
          s.add(e).sum().backward();
          return [x.grad, p.grad, y.grad].map(list);
        },
      );
      assert.deepEqual(seen, expected, backend);
    }
  });

  it('may be a view, from which further views and results were computed', () => {
    const views: Fn = (x, y) => {
      const h = x.mul(y);
      const row = h.view([1, 2]);
      const column = row.view([2, 1]);
      const own = x.view([2, 1]);
      return [column, row, row.exp(), column.mul(own), own];
    };
    const sets = [[0], [2], [3], [2, 3], [0, 1, 2, 3, 4]];
    for (const at of sets)
      assertSame(views, (results) => {
        const loss = used(results, ...at);
        for (const i of [0, 1, 4]) results[i]?.retainGrad();
        results[1]?.registerHook((g) => g.mul(3));
        loss.backward();
        return [0, 1, 4].map((i) => list(results[i]?.grad));
      });
    for (const i of [0, 1, 4])
      assertSame(views, (results) => {
        const [g] = autograd.grad(used(results, 2, 3), [results[i] as Tensor], {
          allowUnused: true,
        });
        return list(g);
      });
  });

  it('is a result of a compiled module, and of a captured backward pass', () => {
    class Steps extends nn.Module<[Tensor, Tensor], readonly Tensor[]> {
      forward(x: Tensor, y: Tensor): readonly Tensor[] {
        return chain(x, y);
      }
    }
    for (const backend of BACKENDS) {
      const model = new Steps();
      model.compile({ backend, fullgraph: true });
      const run = (call: Fn): unknown => {
        const args = leaves();
        const results = call(...args);
        results[0]?.retainGrad();
        results[0]?.registerHook((g) => g.mul(2));
        used(results, 1, 2).backward();
        return [results[0], ...args].map((t) => list(t?.grad));
      };
      const expected = run(chain);
      for (let call = 0; call < 2; call++) {
        assert.deepEqual(
          run((x, y) => model(x as Tensor, y as Tensor)),
          expected,
          backend,
        );
        const captured = compiledAutograd.enable(
          (module) => compile(module, { backend: 'inductor' }),
          () => run((x, y) => model(x as Tensor, y as Tensor)),
        );
        assert.deepEqual(captured, expected, backend);
      }
    }
  });

  it('frees what it saved after the last of its results', () => {
    const fn = compile(chain, { backend: 'inductor', fullgraph: true });
    const results = fn(...leaves());
    results[0]?.retainGrad();
    const loss = used(results, 2);
    loss.backward({ retainGraph: true });
    loss.backward();
    assert.throws(() => loss.backward(), /second time/);
  });

  it('costs nothing where nobody asks', () => {
    const graphs: string[] = [];
    const backend = aotAutograd({
      fwCompiler: (module) => {
        graphs.push(module.code);
        return module.forward.bind(module);
      },
    });
    const fn = compile(chain, { backend });
    for (let i = 0; i < 2; i++) used(fn(...leaves()), 0, 1, 2).backward();
    assert.equal(graphs.length, 2);
    const results = fn(...leaves());
    results[0]?.retainGrad();
    used(results, 0, 1, 2).backward();
    assert.equal(graphs.length, 5);
  });

  it('is refused where its function runs code in backward', () => {
    class Double extends autograd.Function {
      static forward(_: autograd.FunctionContext, x: Tensor): Tensor {
        return x.mul(2);
      }
      static backward(_: autograd.FunctionContext, g: Tensor): Tensor {
        return g.clamp(-1, 1);
      }
    }
    const fn = compile(
      (x: Tensor) => {
        const h = Double.apply(x);
        return [h, h.exp()] as const;
      },
      { backend: 'inductor' },
    );
    const [h] = fn(leaves()[0] as Tensor);
    assert.throws(
      () => h.registerHook(() => {}),
      (error) => error instanceof AutogradError && /functions of the program/.test(error.message),
    );
  });
});

describe('an argument that a compiled function changes in place', () => {
  const changing: readonly Fn[] = [
    (x) => [x.mul_(3).mul(5)],
    (x, y) => [x.mul_(y).sin(), x.exp()],
    (x) => [x.mul_(3)],
    (x, y) => [y.add(x.add_(y)), x.sin_()],
  ];

  it('keeps the gradient of its new values', () => {
    for (const fn of changing)
      for (const backend of BACKENDS) {
        const compiled = compile(fn, { backend, fullgraph: true });
        for (let call = 0; call < 3; call++) {
          const [seen, expected] = [compiled, fn].map((run) => {
            const [p, y] = leaves() as [Tensor, Tensor];
            const x = p.mul(2);
            x.retainGrad();
            const results = run(x, y);
            results
              .map((t) => t.sum())
              .reduce((a, b) => a.add(b))
              .backward();
            return [x.retainsGrad, ...[x.grad, p.grad, y.grad].map(list)];
          });
          assert.deepEqual(seen, expected, `${backend}, call ${call}, ${fn}`);
        }
      }
  });

  it('runs the hooks of its old and of its new values', () => {
    for (const fn of changing)
      for (const backend of BACKENDS) {
        const compiled = compile(fn, { backend, fullgraph: true });
        for (let call = 0; call < 2; call++) {
          const [seen, expected] = [compiled, fn].map((run) => {
            const [p, y] = leaves() as [Tensor, Tensor];
            const hooks: unknown[] = [];
            const x = p.mul(2);
            x.registerHook((g) => {
              hooks.push(['old', list(g)]);
              return g.mul(2);
            });
            const [result] = run(x, y) as [Tensor];
            x.registerHook((g) => {
              hooks.push(['new', list(g)]);
              return g.mul(3);
            });
            result.sum().backward();
            return [hooks, ...[p.grad, y.grad].map(list)];
          });
          assert.deepEqual(seen, expected, `${backend}, call ${call}, ${fn}`);
        }
      }
  });

  it('keeps the gradient of its views, and as a view that of its base', () => {
    const ofBase: Fn = (x, y) => [x.mul_(3).mul(y)];
    for (const backend of BACKENDS) {
      const compiled = compile(ofBase, { backend, fullgraph: true });
      for (let call = 0; call < 2; call++)
        for (const changesView of [false, true]) {
          const [seen, expected] = [compiled, ofBase].map((run) => {
            const [p, y] = leaves() as [Tensor, Tensor];
            const x = p.mul(2);
            const view = x.view([2]);
            x.retainGrad();
            view.retainGrad();
            const [result] = run(changesView ? view : x, y) as [Tensor];
            result.sum().add(view.exp().sum()).add(x.sum()).backward();
            return [x.grad, view.grad, p.grad, y.grad].map(list);
          });
          assert.deepEqual(seen, expected, `${backend}, call ${call}, view ${changesView}`);
        }
    }
  });
});
