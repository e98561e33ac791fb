/** A function that cannot be captured runs as it is; the modules that it calls are captured. */
import assert from 'node:assert/strict';
import {
  CompileError,
  compile,
  compiler,
  graphBreak,
  manualSeed,
  nn,
  randn,
  type Tensor,
} from '../../../lib/index.js';
import { CompileCounter } from '../../../lib/testing/index.js';

/** Reads a value, so it cannot be captured; its children can. */
class Gated extends nn.Module {
  first = new nn.Linear(4, 4);
  second = new nn.Sequential(new nn.Linear(4, 4), new nn.Tanh());
  runs = { count: 0 };
  forward(x: Tensor): Tensor {
    const h = this.first(x);
    this.runs.count++;
    return (h.sum().item() as number) > 0 ? this.second(h) : this.second(h.neg());
  }
}

class Outer extends nn.Module {
  gated = new Gated();
  last = new nn.Linear(4, 2);
  forward(x: Tensor): Tensor {
    return this.last(this.gated(x));
  }
}

/** Results and gradients of three calls. */
function results(model: nn.Module, run: (x: Tensor) => Tensor): unknown {
  manualSeed(5);
  return [1, 2, 3].map(() => {
    model.zeroGrad();
    const x = randn([3, 4], { requiresGrad: true });
    const y = run(x);
    y.square().sum().backward();
    return [y, x.grad, ...[...model.parameters()].map((p) => p.grad)].map((t) => t?.tolist());
  });
}

function seeded<M>(make: () => M): M {
  manualSeed(1);
  return make();
}

describe('a function that cannot be captured', () => {
  it('runs as it is, and every module below the break is a frame', () => {
    const eager = seeded(() => new Outer());
    const other = seeded(() => new Outer());
    const counter = CompileCounter();
    const compiled = compile(other, { backend: counter });
    assert.deepEqual(results(other, compiled), results(eager, eager));
    // first, second and last, and the ops around the read
    assert.equal(counter.frameCount, 5);
  });

  it('is a function with graphBreak(), whose modules are frames', () => {
    const eager = seeded(() => new nn.Sequential(new nn.Linear(4, 4), new nn.ReLU()));
    const other = seeded(() => new nn.Sequential(new nn.Linear(4, 4), new nn.ReLU()));
    const counter = CompileCounter();
    let bodies = 0;
    const fn =
      (model: nn.Sequential) =>
      (x: Tensor): Tensor => {
        bodies++;
        graphBreak();
        // Both arguments are computed, so one graph serves both calls.
        return model(model(x.mul(1)).mul(2));
      };
    const compiled = compile(fn(other), { backend: counter });
    assert.deepEqual(results(other, compiled), results(eager, fn(eager)));
    // the modules, and each of the products
    assert.equal(counter.frameCount, 3);
    assert.equal(bodies, 6);
  });

  it('names the place with fullgraph', () => {
    assert.throws(
      () => compile(new Outer(), { fullgraph: true })(randn([3, 4])),
      (error: Error) =>
        error instanceof CompileError &&
        /a value of a tensor/.test(error.message) &&
        /boundaries\.test/.test(error.message),
    );
  });

  it('captures modules again when they change', () => {
    const model = new nn.Sequential(new nn.Dropout(0.5), new nn.Linear(4, 4));
    const counter = CompileCounter();
    const compiled = compile((x: Tensor) => (graphBreak(), model(x)), { backend: counter });
    const x = randn([2, 4]);
    compiled(x);
    model.eval();
    for (let call = 0; call < 2; call++) assert.deepEqual(compiled(x).tolist(), model(x).tolist());
    assert.equal(counter.frameCount, 2);
  });

  it('excludes what disable excludes, with all that it calls', () => {
    const model = new nn.Linear(4, 4);
    const frames = (recursive: boolean): number => {
      const counter = CompileCounter();
      const inner = compiler.disable((x: Tensor) => model(x), { recursive });
      const compiled = compile((x: Tensor) => inner(x).mul(2), { backend: counter });
      const x = randn([2, 4]);
      assert.deepEqual(compiled(x).tolist(), model(x).mul(2).tolist());
      return counter.frameCount;
    };
    // the product, and the module
    assert.deepEqual([true, false].map(frames), [1, 2]);
  });

  it('leaves modules alone outside of its calls, and after an error in it', () => {
    const model = new nn.Linear(4, 4);
    const counter = CompileCounter();
    const compiled = compile(
      (x: Tensor, fails: boolean) => {
        graphBreak();
        if (fails) throw new RangeError('as eagerly');
        return model(x);
      },
      { backend: counter },
    );
    assert.throws(() => compiled(randn([2, 4]), true), RangeError);
    model(randn([2, 4]));
    assert.equal(counter.frameCount, 0);
    compiled(randn([2, 4]), false);
    model(randn([3, 4]));
    assert.equal(counter.frameCount, 1);
  });

  it('runs hooks of modules that read values, and captures what they call', () => {
    const seen: number[] = [];
    const model = new nn.Sequential(new nn.Linear(4, 4), new nn.Linear(4, 4));
    model.registerForwardHook(
      (_m, _args, y) => void seen.push((y as Tensor).sum().item() as number),
    );
    const counter = CompileCounter();
    const compiled = compile(model, { backend: counter });
    const x = randn([2, 4]);
    for (let call = 0; call < 3; call++) compiled(x);
    assert.equal(seen.length, 3);
    // the layers, and the sum that the hook reads
    assert.equal(counter.frameCount, 3);
  });
});
