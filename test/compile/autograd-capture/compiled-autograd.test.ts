/** Backward passes as captured graphs: gradients of eager mode, few captures, hooks inlined. */
import assert from 'node:assert/strict';
import { compile, compiledAutograd, type GraphModule } from '../../../lib/compile/index.js';
import {
  autograd,
  library,
  manualSeed,
  nn,
  optim,
  rand,
  type Tensor,
  tensor,
} from '../../../lib/index.js';

const { functional } = nn;

/** A compiler of backward graphs that counts them. */
function counting(backend: 'eager' | 'aot_eager' | null): {
  compiler: Parameters<typeof compiledAutograd.enable>[0];
  graphs: string[];
} {
  const graphs: string[] = [];
  const compiler = (module: GraphModule) => {
    graphs.push(module.code);
    return backend === null ? module.forward.bind(module) : compile(module, { backend });
  };
  return { compiler, graphs };
}

type Step = (model: nn.AnyModule, x: Tensor) => Tensor;

/** Four steps without zeroGrad; the gradients after each. */
function steps(
  make: () => nn.AnyModule,
  forward: Step,
  around: (fn: () => void) => void,
): unknown[] {
  manualSeed(1);
  const model = make();
  const seen: unknown[] = [];
  around(() => {
    for (let i = 0; i < 4; i++) {
      const x = rand([3, 4]).requiresGrad_();
      const loss = forward(model, x);
      loss.sum().backward();
      seen.push([
        loss.tolist(),
        x.grad?.tolist(),
        [...model.parameters()].map((p) => p.grad?.tolist()),
      ]);
    }
  });
  return seen;
}

const call = (model: nn.AnyModule, x: Tensor): Tensor => (model as nn.Module<[Tensor]>)(x);
const mlp = (): nn.AnyModule =>
  new nn.Sequential(new nn.Linear(4, 8), new nn.GELU(), new nn.Dropout(0.3), new nn.Linear(8, 4));

describe('compiledAutograd', () => {
  for (const backend of [null, 'eager', 'aot_eager'] as const) {
    it(`captures four steps twice: without gradients, and with some (backend ${backend})`, () => {
      const { compiler, graphs } = counting(backend);
      const expected = steps(mlp, call, (fn) => fn());
      const got = steps(mlp, call, (fn) => compiledAutograd.enable(compiler, fn));
      assert.deepEqual(got, expected);
      assert.equal(graphs.length, 2, graphs.join('\n'));
    });

    it(`draws again what forward drew, in attention (backend ${backend})`, () => {
      const attend: Step = (model, x) => {
        const q = call(model, x).view([1, 1, 3, 4]);
        return functional.scaledDotProductAttention(q, q, q, { dropoutP: 0.4 });
      };
      const make = (): nn.AnyModule => new nn.Linear(4, 4);
      const { compiler, graphs } = counting(backend);
      const expected = steps(make, attend, (fn) => fn());
      assert.deepEqual(
        steps(make, attend, (fn) => compiledAutograd.enable(compiler, fn)),
        expected,
      );
      assert.equal(graphs.length, 2);
    });
  }

  it('inlines the backward graph of a compiled forward', () => {
    const { compiler, graphs } = counting('aot_eager');
    const forwardOf = (): Step => {
      let compiled: ((x: Tensor) => Tensor) | null = null;
      return (model, x) => {
        compiled ??= compile((input: Tensor) => call(model, input), { backend: 'aot_eager' });
        return compiled(x);
      };
    };
    const expected = steps(mlp, call, (fn) => fn());
    assert.deepEqual(
      steps(mlp, forwardOf(), (fn) => compiledAutograd.enable(compiler, fn)),
      expected,
    );
    assert.equal(graphs.length, 2);
    assert.match(graphs[0] as string, /gelu|erf|matmul/);
  });

  it('inlines hooks, which run at captures only', () => {
    let ran = 0;
    const hook = (grad: Tensor): Tensor => {
      ran++;
      return grad.mul(10);
    };
    const post = (t: Tensor): void => {
      ran++;
      t.grad?.mul_(2);
    };
    const step: Step = (model, x) => {
      const y = call(model, x).sin();
      y.registerHook(hook);
      return y.mul(y);
    };
    const make = (): nn.AnyModule => {
      const layer = new nn.Linear(4, 4);
      layer.weight.registerPostAccumulateGradHook(post);
      return layer;
    };
    const expected = steps(make, step, (fn) => fn());
    const { compiler, graphs } = counting(null);
    ran = 0;
    assert.deepEqual(
      steps(make, step, (fn) => compiledAutograd.enable(compiler, fn)),
      expected,
    );
    assert.equal(graphs.length, 2);
    assert.equal(ran, 4);
  });

  it('tells passes apart that saved equal tensors in other places', () => {
    const [c, d] = [tensor([2]), tensor([3])];
    const { compiler, graphs } = counting(null);
    for (const other of [c, d, c]) {
      const x = tensor([1], { requiresGrad: true });
      compiledAutograd.enable(compiler, () => x.mul(c).mul(other).mul(d).mul(c).backward());
      assert.deepEqual(x.grad?.tolist(), [12 * other.item()]);
    }
    assert.equal(graphs.length, 2);
  });

  it('leaves passes to the engine whose hooks set attributes of their module', () => {
    const make = (): nn.Linear & { count: number } => {
      const layer = Object.assign(new nn.Linear(4, 4), { count: 0 });
      layer.registerFullBackwardHook((m) => {
        (m as typeof layer).count++;
      });
      return layer;
    };
    const { compiler } = counting(null);
    const layer = make();
    for (let i = 1; i < 4; i++) {
      const x = rand([3, 4]).requiresGrad_();
      compiledAutograd.enable(compiler, () => layer(x).sum().backward());
      assert.equal(layer.count, i);
    }
  });

  it('inlines the backward hooks of modules, and captures anew when a module has another', () => {
    let ran = 0;
    const make = (): nn.AnyModule => {
      const layer = new nn.Linear(4, 4);
      layer.registerFullBackwardPreHook((_m, [grad]) => {
        ran++;
        return [(grad as Tensor).add(1)];
      });
      const model = new nn.Sequential(layer, layer);
      let calls = 0;
      model.registerForwardPreHook(() => {
        // A change of the hooks that run in the third pass.
        if (calls++ === 2)
          layer.registerFullBackwardHook((_m, [grad]) => [(grad as Tensor).mul(3)]);
      });
      return model;
    };
    const expected = steps(make, call, (fn) => fn());
    assert.equal(ran, 8);
    ran = 0;
    const { compiler, graphs } = counting(null);
    assert.deepEqual(
      steps(make, call, (fn) => compiledAutograd.enable(compiler, fn)),
      expected,
    );
    // Without gradients, with some, and with the later hook, each for two calls of the layer.
    assert.deepEqual([graphs.length, ran], [3, 6]);
  });

  it('captures autograd.grad and backward of some inputs, and keeps retained graphs', () => {
    const { compiler, graphs } = counting(null);
    const run = (): unknown[] => {
      manualSeed(2);
      const [x, y] = [rand([3]).requiresGrad_(), rand([3]).requiresGrad_()] as [Tensor, Tensor];
      const z = x.mul(y).exp();
      const partial = autograd.grad(z.sum(), [y], { retainGraph: true });
      z.sum().backward({ retainGraph: true, inputs: [x] });
      const middle = [x.grad?.tolist(), y.grad];
      z.sum().backward();
      assert.throws(() => z.sum().backward(), /retainGraph/);
      return [partial.map((t) => t.tolist()), middle, x.grad?.tolist(), y.grad?.tolist()];
    };
    const expected = run();
    for (let i = 0; i < 2; i++) assert.deepEqual(compiledAutograd.enable(compiler, run), expected);
    assert.equal(graphs.length, 3);
  });

  it('leaves passes to the engine that it cannot capture', () => {
    const { compiler, graphs } = counting(null);
    let read = 0;
    const step: Step = (model, x) => {
      const y = call(model, x);
      y.registerHook((grad) => {
        read += grad.sum().item() as number;
      });
      return y;
    };
    const make = (): nn.AnyModule => new nn.Linear(4, 4);
    const expected = steps(make, step, (fn) => fn());
    const before = read;
    read = 0;
    assert.deepEqual(
      steps(make, step, (fn) => compiledAutograd.enable(compiler, fn)),
      expected,
    );
    assert.equal(read, before);
    assert.equal(graphs.length, 0);
  });

  it('trains with an optimizer outside of the graph', () => {
    const train = (around: (fn: () => void) => void): unknown => {
      manualSeed(3);
      const model = mlp();
      const optimizer = new optim.AdamW(model.parameters(), { lr: 0.01 });
      for (let i = 0; i < 3; i++) {
        optimizer.zeroGrad();
        around(() =>
          call(model, rand([3, 4]))
            .square()
            .mean()
            .backward(),
        );
        optimizer.step();
      }
      return [...model.parameters()].map((p) => p.tolist());
    };
    const { compiler, graphs } = counting('aot_eager');
    const expected = train((fn) => fn());
    assert.deepEqual(
      train((fn) => compiledAutograd.enable(compiler, fn)),
      expected,
    );
    assert.equal(graphs.length, 1);
  });

  it('refuses to be enabled twice, and asynchronous functions', () => {
    const { compiler } = counting(null);
    assert.throws(
      () => compiledAutograd.enable(compiler, () => compiledAutograd.enable(compiler, () => {})),
      /one inside/,
    );
    assert.throws(() => compiledAutograd.enable(compiler, async () => {}), /await/);
    assert.equal(compiledAutograd.isEnabled(), false);
  });

  it('calls opaque hooks in their order, with the gradient that is there', () => {
    const seen: unknown[] = [];
    const w = tensor([2, 3], { requiresGrad: true });
    const after = autograd.opaqueHook(() => seen.push(['after', w.grad?.tolist()]), ['after']);
    w.registerPostAccumulateGradHook(after);
    const { compiler, graphs } = counting('aot_eager');
    const modules: GraphModule[] = [];
    const keeping: typeof compiler = (module) => {
      modules.push(module);
      return compiler(module);
    };
    for (let call = 0; call < 3; call++)
      compiledAutograd.enable(keeping, () => {
        const y = w.mul(w);
        const begun = autograd.opaqueHook(() => seen.push(['begun', call]), ['begun', w]);
        autograd.registerMultiGradHook([y], begun, { mode: 'any' });
        const read = autograd.opaqueHook(() => seen.push(['read']), [{ read: [w] }]);
        const handle = autograd.registerMultiGradHook([w, y], read);
        y.sum().backward();
        handle.remove();
      });
    assert.deepEqual(
      seen,
      [0, 1, 2].flatMap((n) => [['begun', n], ['read'], ['after', [4 * (n + 1), 6 * (n + 1)]]]),
    );
    assert.equal(graphs.length, 2);
    const [module] = modules as [GraphModule];
    const values = module.graph.placeholders.map(() => w);
    assert.throws(() => module.forward(...values), /expected a backward pass/);
    assert.throws(
      () => autograd.opaqueHook(() => {}, 'key' as never),
      /expected the key as an array/,
    );
  });

  it('captures anew when the state of a custom op has changed', () => {
    const scale = { factor: 2 };
    const scaled = library
      .customOp('tests::scaledByState', { communicates: true }, (x: Tensor, _: object) => x.mul(1))
      .registerFake((x) => x)
      .registerAutograd({
        setupContext: (ctx, [, of]) => {
          ctx['of'] = of;
        },
        state: (_, of) => (of as typeof scale).factor,
        backward: (ctx, grad) => [grad?.mul((ctx['of'] as typeof scale).factor), null],
      });
    const { compiler, graphs } = counting(null);
    class Holder {
      scale = scale;
      get factor(): number {
        return this.scale.factor;
      }
    }
    const holder = new Holder();
    for (const factor of [2, 2, 3, 2]) {
      scale.factor = factor;
      const x = tensor([1, 2], { requiresGrad: true });
      compiledAutograd.enable(compiler, () => scaled(x, holder).sum().backward());
      assert.deepEqual(x.grad?.tolist(), [factor, factor]);
    }
    assert.equal(graphs.length, 2);
  });

  it('explains what was captured, and why a pass ran uncompiled', () => {
    const w = tensor([2, 3], { requiresGrad: true });
    let ran = 0;
    const steps: (() => void)[] = [
      () => w.mul(w).sum().backward(),
      () => w.mul(w).sum().backward(),
      () => w.mul(w).sum().backward(),
      () => {
        const y = w.mul(w);
        autograd.registerMultiGradHook([y], () => ran++, { mode: 'any' });
        y.sum().backward();
      },
      () => w.mul(w).sum().backward({ createGraph: true }),
      () => {
        const y = w.mul(w);
        y.registerHook((grad) => grad.mul(grad.sum().item<number>()));
        y.sum().backward();
      },
    ];
    const report = compiledAutograd.explain(() => {
      for (const step of steps) step();
    });
    const seen = report.passes.map(({ graph, isReplay }) => [graph !== null, isReplay]);
    assert.deepEqual(seen, [
      [true, false],
      [true, false],
      [true, true],
      ...Array(3).fill([false, false]),
    ]);
    const reasons = report.passes.flatMap(({ reason }) => reason ?? []);
    assert.match(
      reasons[0] as string,
      /registerMultiGradHook has a hook on a result of mul that is not opaque/,
    );
    assert.equal(reasons[1], 'createGraph is true');
    assert.match(reasons[2] as string, /^a value of a tensor, .* was read, at .*compiled-autograd/);
    assert.equal(ran, 1);
    assert.match(String(report), /pass 2 ran the graph of an earlier pass\npass 3 ran uncompiled/);
    assert.deepEqual(w.grad?.tolist(), [2 * 2 * 7, 2 * 3 * 7]);
  });
});
