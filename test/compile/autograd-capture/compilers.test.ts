/** What compilers of backward passes get and return. */
import assert from 'node:assert/strict';
import {
  compile,
  compiledAutograd,
  compiler,
  type GraphModule,
} from '../../../lib/compile/index.js';
import { autograd, CompileError, type Tensor, tensor } from '../../../lib/index.js';

describe('a captured backward pass', () => {
  beforeEach(() => compiler.reset());

  it('sees numbers that differ from pass to pass', () => {
    const cases: Record<string, (x: Tensor, k: number) => Tensor> = {
      mul: (x, k) => x.mul(k),
      div: (x, k) => x.div(k),
      pow: (x, k) => x.pow(k),
      'in place': (x, k) => x.mul(1).mul_(k),
      'an average': (x, k) => x.square().sum().div(k),
    };
    for (const [name, fn] of Object.entries(cases)) {
      const gradients = (): unknown[] =>
        [2, 3, 2].map((k) => {
          const x = tensor([1.5]).requiresGrad_();
          fn(x, k).sum().backward();
          return x.grad?.tolist();
        });
      const expected = gradients();
      let seen: unknown[] = [];
      compiledAutograd.enable(
        (module) => compile(module),
        () => {
          seen = gradients();
        },
      );
      assert.deepEqual(seen, expected, name);
    }
  });

  it('takes numbers that differ from pass to pass as inputs of one graph', () => {
    const exp = compile((t: Tensor) => t.exp());
    const cases: Record<string, (x: Tensor, k: number) => Tensor> = {
      mul: (x, k) => x.mul(k),
      'two numbers': (x, k) => x.mul(k).mul(2 * k),
      'an equal number': (x, k) => x.mul(k).mul(k < 3 ? k : 3.5),
      div: (x, k) => x.div(k),
      'in place': (x, k) => x.mul(1).mul_(k),
      compiled: (x, k) => exp(x).mul(k),
      pow: (x, k) => x.abs().pow(k),
    };
    for (const [name, fn] of Object.entries(cases)) {
      const gradients = (): unknown[] =>
        [2.5, 3.5, 4.5, 2.5, 7.5].map((k) => {
          const x = tensor([1.5, -2]).requiresGrad_();
          fn(x, k).sum().backward();
          return x.grad?.tolist();
        });
      const expected = gradients();
      for (const backend of ['eager', 'aot_eager', 'aot_eager_decomp_partition'] as const) {
        compiler.reset();
        let graphs = 0;
        let seen: unknown[] = [];
        const count = (module: GraphModule) => (graphs++, compile(module, { backend }));
        compiledAutograd.enable(count, () => {
          seen = gradients();
        });
        assert.deepEqual(seen, expected, name);
        assert.equal(graphs, 2, name);
      }
    }
  });

  it('calls its compiler twice for a number that differs in a hook of each pass', () => {
    const pass = (x: Tensor, k: number): void => {
      const y = x.mul(2);
      y.registerHook((grad) => grad.mul(k).add(grad.mul(3)));
      y.exp().mul(k).sum().backward();
    };
    const gradients = (): unknown[] =>
      [0.5, 0.25, 0.125, 0.5, 2.5, 0.125].map((k) => {
        const x = tensor([1.5, -2]).requiresGrad_();
        pass(x, k);
        return x.grad?.tolist();
      });
    const expected = gradients();
    for (const backend of ['eager', 'aot_eager', 'aot_eager_decomp_partition'] as const) {
      compiler.reset();
      let graphs = 0;
      let seen: unknown[] = [];
      const count = (module: GraphModule) => (graphs++, compile(module, { backend }));
      compiledAutograd.enable(count, () => {
        seen = gradients();
      });
      assert.deepEqual(seen, expected, backend);
      assert.equal(graphs, 2, backend);
    }
  });

  it('calls its compiler for each graph that differs in more than numbers', () => {
    let graphs = 0;
    const count = (module: GraphModule) => (graphs++, compile(module));
    const x = tensor([1.5, -2]).requiresGrad_();
    compiledAutograd.enable(count, () => {
      for (const hook of [
        (g: Tensor) => g.mul(2),
        (g: Tensor) => g.add(2),
        (g: Tensor) => g.mul(g),
      ]) {
        x.grad = null;
        const y = x.mul(1);
        y.registerHook(hook);
        y.sum().backward();
      }
    });
    assert.equal(graphs, 3);
    assert.deepEqual(x.grad?.tolist(), [1, 1]);
  });

  it('is captured again after compiler.reset(), also by code that is enabled meanwhile', () => {
    let captured = 0;
    const compilerOfPasses = (module: GraphModule) => {
      captured++;
      return compile(module);
    };
    const x = tensor([1, 2]).requiresGrad_();
    compiledAutograd.enable(compilerOfPasses, () => {
      for (const expected of [1, 1, 2]) {
        if (expected === 2) compiler.reset();
        autograd.grad(x.mul(x).sum(), [x]);
        assert.equal(captured, expected);
      }
    });
  });

  it('refuses compilers that return no function, and functions that return too few results', () => {
    const run = (compiler: unknown): void =>
      compiledAutograd.enable(compiler as never, () => {
        const x = tensor([1, 2]).requiresGrad_();
        autograd.grad(x.mul(x).sum(), [x]);
      });
    assert.throws(() => run((module: unknown) => module), /returned .* and not a function/);
    assert.throws(() => run(() => undefined), CompileError);
    assert.throws(() => run(() => () => []), /0 outputs instead of 1/);
  });
});
