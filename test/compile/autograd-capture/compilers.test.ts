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
