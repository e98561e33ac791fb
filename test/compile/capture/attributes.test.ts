/** Attributes of modules that a captured function sets are set at every run. */
import assert from 'node:assert/strict';
import { checkpoint } from '../../../lib/distributed.js';
import { autograd, CompileError, compile, nn, type Tensor, tensor } from '../../../lib/index.js';
import { CompileCounter } from '../../../lib/testing/index.js';
import { assertSameAsEager, type Program } from '../same-as-eager.js';

/** A module whose forward is the function, with one attribute of each kind. */
class Stateful extends nn.Module {
  weight = new nn.Parameter(tensor([2, 3]));
  kept: Tensor | null = null;
  mode = 'new';
  count = 0;
  body: (m: Stateful, x: Tensor) => Tensor;

  constructor(body: (m: Stateful, x: Tensor) => Tensor) {
    super();
    this.body = body;
  }

  forward(x: Tensor): Tensor {
    return this.body(this, x);
  }
}

const program =
  (body: (m: Stateful, x: Tensor) => Tensor, see: (m: Stateful) => unknown) => (): Program => {
    const model = new Stateful(body);
    return { fn: (x) => model(x), state: () => see(model) };
  };

describe('an attribute of a module that a captured function sets', () => {
  it('becomes the tensor that the run computed', () => {
    assertSameAsEager(
      program(
        (m, x) => {
          m.kept = x.mul(m.weight);
          return m.kept.sin();
        },
        (m) => [m.kept?.tolist(), m.kept?.isFake, m.kept?.requiresGrad, m.weight.grad?.tolist()],
      ),
      // The second capture finds a tensor instead of null.
      { frames: 2 },
    );
  });

  it('becomes an argument, or a parameter, and is the same object', () => {
    assertSameAsEager(
      program(
        (m, x) => {
          m.kept = x;
          return x.mul(m.weight);
        },
        (m) => m.kept?.tolist(),
      ),
      { frames: 2 },
    );
    const model = new Stateful((m, x) => {
      m.kept = x;
      (m as unknown as { alias: Tensor }).alias = m.weight;
      return x.mul(2);
    });
    const compiled = compile(model, { fullgraph: true });
    for (let call = 0; call < 3; call++) {
      const x = tensor([1, 2]);
      compiled(x);
      assert.equal(model.kept, x);
      assert.equal((model as unknown as { alias: Tensor }).alias, model.weight);
    }
  });

  it('becomes a plain value', () => {
    assertSameAsEager(
      program(
        (m, x) => {
          const before = m.mode;
          m.mode = x.requiresGrad ? 'trained' : 'frozen';
          return x.mul(before === 'new' ? 1 : 2);
        },
        (m) => m.mode,
      ),
      { frames: 2 },
    );
  });

  it('counts calls, at the cost of a capture for each count', () => {
    assertSameAsEager(
      program(
        (m, x) => {
          m.count += 1;
          return x.mul(m.count);
        },
        (m) => m.count,
      ),
      { frames: 3 },
    );
  });

  it('is state that the next call uses', () => {
    assertSameAsEager(
      program(
        (m, x) => {
          const h = m.kept === null ? x : m.kept.mul(0.5).add(x);
          m.kept = h.detach();
          return h;
        },
        (m) => m.kept?.tolist(),
      ),
      { frames: 3 },
    );
  });

  it('is the tensor of the last call where the function returns the one before', () => {
    const model = new Stateful((m, x) => {
      m.kept = x.detach().mul(2);
      return x;
    });
    assertSameAsEager(
      () => {
        model.kept = null;
        const own = new Stateful(model.body);
        return (x) => {
          const before = own.kept ?? own.weight.detach();
          return [own(x), before];
        };
      },
      // Each tensor is a constant of its graph.
      { frames: 3 },
    );
  });

  it('is not confused with an argument that it equals', () => {
    const run = (isCompiled: boolean): unknown => {
      const model = new Stateful((m, x) => {
        const same = m.kept === x;
        m.kept = x.add(1);
        return same ? x.mul(100) : x.mul(2);
      });
      const fn = isCompiled ? compile(model, { fullgraph: true }) : model;
      const results = [tensor([1]), tensor([2])].map((x) => fn(x).tolist());
      results.push(fn(model.kept as Tensor).tolist());
      return results;
    };
    assert.deepEqual(run(true), run(false));
  });

  it('is set before a function runs that reads it', () => {
    class Scaled extends autograd.Function {
      static forward(_: autograd.FunctionContext, x: Tensor, m: Stateful): Tensor {
        m.count = 7;
        return x.mul(m.mode === 'scaled' ? 10 : 1);
      }
      static backward(_: autograd.FunctionContext, g: Tensor): (Tensor | null)[] {
        return [g.mul(3), null];
      }
    }
    assertSameAsEager(
      program(
        (m, x) => {
          m.mode = 'scaled';
          const y = Scaled.apply(x, m);
          m.mode = 'new';
          return y;
        },
        (m) => [m.mode, m.count],
      ),
      { frames: 2 },
    );
  });

  it('is restored after a temporary value', () => {
    const counter = CompileCounter();
    const model = new Stateful((m, x) => {
      const { weight } = m;
      (m as unknown as { weight: Tensor }).weight = weight.mul(2);
      const y = x.mul((m as unknown as { weight: Tensor }).weight);
      m.weight = weight;
      return y;
    });
    const before = model.weight;
    const compiled = compile(model, { fullgraph: true, backend: counter });
    for (let call = 1; call <= 3; call++) {
      assert.deepEqual(compiled(tensor([call, 1])).tolist(), [4 * call, 6]);
      assert.equal(model.weight, before);
    }
    assert.equal(counter.frameCount, 1);
  });

  it('is an attribute of a module among the arguments', () => {
    const model = new Stateful((_, x) => x);
    const fn = (m: Stateful, x: Tensor): Tensor => {
      m.mode = 'seen';
      return x.add(1);
    };
    const compiled = compile(fn, { fullgraph: true });
    for (let call = 0; call < 3; call++) {
      compiled(model, tensor([1]));
      assert.equal(model.mode, 'seen');
      if (call === 1) model.mode = 'new';
    }
  });

  it('is refused if a list or a function is set, and is then as before', () => {
    const model = new Stateful((m, x) => {
      (m as unknown as { sizes: number[] }).sizes = [...x.shape];
      m.mode = 'changed';
      return x.mul(2);
    });
    assert.throws(
      () => compile(model, { fullgraph: true })(tensor([1])),
      (error: Error) => error instanceof CompileError && /changes .*Stateful/.test(error.message),
    );
    assert.equal(model.mode, 'new');
    assert.equal('sizes' in model, false);
  });

  it('is refused if a hook uses it', () => {
    const model = new Stateful((m, x) => {
      m.kept = x.detach().mul(2);
      const h = x.mul(3);
      h.registerHook((g) => g.mul(m.kept as Tensor));
      return h;
    });
    assert.throws(
      () => compile(model, { fullgraph: true })(tensor([1, 2], { requiresGrad: true })),
      /a hook uses, or changes, an attribute/,
    );
  });

  it('is as before a run that an error ends, as it ends the second run of a checkpoint', () => {
    for (const backend of ['eager', 'aot_eager', 'inductor'] as const) {
      const model = new Stateful((m, x) => {
        try {
          m.kept = x.detach().mul(2);
          return checkpoint((t: Tensor, u: Tensor) => t.mul(u).mul(m.weight).sin(), x, m.kept);
        } finally {
          m.kept = null;
        }
      });
      const expected = gradientOf(model, model.weight);
      const compiled = compile(model, { backend, fullgraph: true });
      assert.deepEqual(gradientOf(compiled, model.weight), expected);
      assert.equal(model.kept, null, backend);
    }
  });
});

/** The gradient of a parameter, by a call in a checkpoint. */
function gradientOf(model: (x: Tensor) => Tensor, weight: nn.Parameter): unknown {
  weight.grad = null;
  checkpoint((t: Tensor) => model(t), tensor([1, 2]))
    .sum()
    .backward();
  return (weight.grad as Tensor | null)?.tolist();
}
