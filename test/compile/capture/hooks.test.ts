/** Hooks that a captured function registers run in the backward passes of every run. */
import assert from 'node:assert/strict';
import {
  amp,
  autograd,
  CompileError,
  compile,
  noGrad,
  type Tensor,
  tensor,
} from '../../../lib/index.js';
import { assertSameAsEager } from '../same-as-eager.js';

const leaf = (): Tensor => tensor([1.5, -2.5], { requiresGrad: true });

describe('a hook on a tensor in a captured function', () => {
  it('replaces the gradient, from the gradient alone', () => {
    assertSameAsEager(() => (w) => {
      const h = w.mul(2);
      h.registerHook((g) => g.mul(10));
      return h.sin();
    });
  });

  it('uses an intermediate of the run, and an argument', () => {
    assertSameAsEager(() => (w) => {
      const h = w.sin();
      const other = h.detach().add(1);
      h.registerHook((g) => g.add(other).mul(w.detach()));
      return h.mul(w);
    });
  });

  it('uses what the function computed after it registered the hook', () => {
    assertSameAsEager(() => (w) => {
      const h = w.sin();
      let later = h;
      h.registerHook((g) => g.mul(later.detach()));
      later = h.mul(3);
      later.mul_(2);
      return later.mul(w);
    });
  });

  it('uses tensors from outside and changes them', () => {
    assertSameAsEager(() => {
      const total = tensor([0, 0]);
      return {
        fn: (w) => {
          const h = w.mul(2);
          h.registerHook((g) => void total.add_(g));
          return h.mul(w);
        },
        state: () => [total.tolist(), total._version],
      };
    });
  });

  it('changes a tensor of the run in place, and returns the gradient itself', () => {
    assertSameAsEager(() => (w) => {
      const h = w.mul(2);
      const seen = h.detach().clone();
      h.registerHook((g) => {
        seen.add_(g);
        return g;
      });
      return [h.mul(w), seen];
    });
  });

  it('is on an argument, and on a parameter', () => {
    assertSameAsEager(() => {
      const weight = tensor([2, 3], { requiresGrad: true });
      return {
        fn: (w) => {
          w.registerHook((g) => g.mul(100));
          weight.registerHook((g) => g.mul(w.detach()));
          return w.mul(weight);
        },
        state: () => weight.grad?.tolist() ?? null,
      };
    });
  });

  it('reads values in every backward pass, if it uses no tensor of the function', () => {
    const compiled = compile(
      (w: Tensor, log: (x: number) => void) => {
        const h = w.mul(2);
        h.registerHook((g) => {
          if (!g.isFake) log(g.sum().item() as number);
        });
        return h;
      },
      { fullgraph: true },
    );
    const seen: number[] = [];
    const log = (x: number): void => void seen.push(x);
    for (let call = 1; call <= 3; call++) compiled(leaf(), log).mul(call).sum().backward();
    assert.deepEqual(seen, [2, 4, 6]);
  });

  it('is removed inside the function', () => {
    assertSameAsEager(() => (w) => {
      const h = w.mul(2);
      const kept = h.registerHook((g) => g.mul(3));
      h.registerHook((g) => g.mul(w.detach()));
      kept.remove();
      return h.sin();
    });
  });

  it('runs in the order in which hooks were registered', () => {
    assertSameAsEager(() => (w) => {
      const h = w.mul(2);
      const c = h.detach();
      h.registerHook((g) => g.mul(c));
      h.registerHook((g) => g.add(1));
      h.registerHook((g) => g.mul(c).add(c));
      return h.sin();
    });
  });

  it('records its ops under createGraph', () => {
    const results = [false, true].map((isCompiled) => {
      const fn = (w: Tensor): Tensor => {
        const h = w.mul(w);
        h.registerHook((g) => g.mul(w));
        return h.sin();
      };
      const run = isCompiled ? compile(fn, { backend: 'eager', fullgraph: true }) : fn;
      return [1, 2].map(() => {
        const w = leaf();
        const [g] = autograd.grad(run(w).sum(), w, { createGraph: true });
        return autograd.grad((g as Tensor).sum(), w)[0]?.tolist();
      });
    });
    assert.deepEqual(results[1], results[0]);
  });
});

describe('a hook on a node in a captured function', () => {
  it('runs before or after the node', () => {
    assertSameAsEager(() => (w) => {
      const h = w.mul(2);
      const c = h.detach();
      h.gradFn?.registerPrehook(([g]) => [g?.mul(c) ?? null]);
      (h.gradFn as autograd.Node).registerHook(([g, none], [out]) => [
        (g as Tensor).add((out as Tensor).mul(c)),
        none ?? null,
      ]);
      return h.sin();
    });
  });
});

describe('a hook after a gradient was accumulated', () => {
  it('reads, changes and removes the gradient of an argument', () => {
    assertSameAsEager(() => (w) => {
      const scale = w.detach().mul(2);
      w.registerPostAccumulateGradHook((p) => {
        noGrad(() => p.sub_((p.grad as Tensor).mul(scale)));
        p.grad = null;
      });
      return w.mul(3);
    });
  });

  it('uses only the tensor that it gets', () => {
    assertSameAsEager(() => {
      const weight = tensor([2, 3], { requiresGrad: true });
      return {
        fn: (w) => {
          weight.registerPostAccumulateGradHook((p) => {
            p.grad = (p.grad as Tensor).mul(2);
          });
          return weight.mul(w);
        },
        state: () => weight.grad?.tolist() ?? null,
      };
    });
  });
});

describe('a hook that a graph cannot repeat', () => {
  const refused: Record<string, [RegExp, (w: Tensor) => unknown]> = {
    'reads a value': [
      /value of a tensor/,
      (w) => {
        const h = w.mul(2);
        h.registerHook((g) => g.mul(g.sum().item() as number));
        return h;
      },
    ],
    'throws an error': [
      /a hook threw/,
      (w) => {
        const h = w.mul(2);
        h.registerHook(() => {
          throw new RangeError('no hook');
        });
        return h;
      },
    ],
    'reads another gradient': [
      /\.grad of another tensor/,
      (w) => {
        const h = w.mul(2);
        h.registerHook((g) => (w.grad === null ? g : g.mul(2)));
        return h;
      },
    ],
    'waits for several tensors': [
      /several tensors/,
      (w) => {
        const h = w.mul(2);
        autograd.registerMultiGradHook([h], () => {});
        return h;
      },
    ],
    'registers a hook': [
      /registered in a hook/,
      (w) => {
        const h = w.mul(2);
        h.registerHook((g) => {
          h.registerHook((second) => second);
          return g.mul(2);
        });
        return h;
      },
    ],
    'has a handle that is returned': [
      /handle of a hook/,
      (w) => {
        const h = w.mul(2);
        return [h, h.registerHook((g) => g)];
      },
    ],
  };
  for (const [what, [message, fn]] of Object.entries(refused)) {
    it(`is refused with its place, because it ${what}`, () => {
      assert.throws(
        () => compile(fn, { fullgraph: true })(leaf()),
        (error: Error) => error instanceof CompileError && message.test(error.message),
      );
    });
  }

  it('is refused in autocast, if it uses tensors of the function', () => {
    const fn = (w: Tensor): Tensor => {
      const h = w.mul(2);
      h.registerHook((g) => g.mul(h.detach()));
      return h;
    };
    amp.autocast({ deviceType: 'cpu' }, () => {
      assert.throws(() => compile(fn, { fullgraph: true })(leaf()), /autocast/);
    });
  });

  it('has a handle that says so when it is used after the function', () => {
    const removers = new WeakMap<object, () => void>();
    const compiled = compile(
      (w: Tensor) => {
        const h = w.mul(2);
        const handle = h.registerHook((g) => g.mul(3));
        removers.set(removers, () => handle.remove());
        return h;
      },
      { fullgraph: true },
    );
    compiled(leaf());
    assert.throws(() => removers.get(removers)?.(), /every run registers it anew/);
    assert.deepEqual(compiled(leaf()).tolist(), [3, -5]);
  });
});
