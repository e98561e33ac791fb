/** Modules whose hooks keep out of graphs, and attributes in which calls find other tensors. */
import assert from 'node:assert/strict';
import {
  ArgumentError,
  compile,
  compiler,
  nn,
  ones,
  type Tensor,
  tensor,
} from '../../lib/index.js';
import { CompileCounterWithBackend } from '../../lib/testing/index.js';
import { BACKENDS } from '../seeds/compiled.js';

class Scale extends nn.Module {
  factor: Tensor = tensor([2]);
  calls = 0;
  forward(x: Tensor): Tensor {
    return x.mul(this.factor);
  }
}

class Outer extends nn.Module {
  inner = new Scale();
  forward(x: Tensor): Tensor {
    return this.inner(x).add(1);
  }
}

for (const backend of BACKENDS)
  describe(`markRebound, with backend ${backend}`, () => {
    const compiled = (module: nn.AnyModule) => {
      const counter = CompileCounterWithBackend(backend);
      return { counter, run: compile(module as nn.Module, { backend: counter }) };
    };

    it('makes an attribute an input of the graph', () => {
      const module = new Outer();
      compiler.markRebound(module.inner, 'factor');
      const { counter, run } = compiled(module);
      for (const k of [2, 3, 4]) {
        module.inner.factor = tensor([k]);
        assert.deepEqual(run(ones([2])).tolist(), [k + 1, k + 1]);
      }
      assert.equal(counter.frameCount, 1);
    });

    it('gives gradients to the tensors that each call found', () => {
      const module = new Outer();
      compiler.markRebound(module.inner, 'factor');
      const { counter, run } = compiled(module);
      for (const k of [2, 3]) {
        const factor = tensor([k], { requiresGrad: true });
        module.inner.factor = factor.mul(2);
        run(ones([2]))
          .sum()
          .backward();
        assert.deepEqual(factor.grad?.tolist(), [4]);
      }
      assert.equal(counter.frameCount, 1);
    });

    it('compares the metadata of the tensor, and says what differs', () => {
      const module = new Outer();
      compiler.markRebound(module.inner, 'factor');
      const { counter, run } = compiled(module);
      run(ones([2]));
      module.inner.factor = tensor([3, 4]);
      assert.deepEqual(run(ones([2])).tolist(), [4, 5]);
      assert.equal(counter.frameCount, 2);
      module.inner.factor = tensor([1], { dtype: 'float64' });
      const { recaptures } = compiler.explain(run)(ones([2]));
      assert.match(String(recaptures[0]?.because.at(-1)), /Outer\.inner\.factor was float32\[/);
    });

    it('holds for a mark after the first call, and for a method that is compiled', () => {
      const module = new Scale();
      const counter = CompileCounterWithBackend(backend);
      module.forward = compile(module.forward, { backend: counter }) as Scale['forward'];
      const run = (k: number): unknown => {
        module.factor = tensor([k]);
        return module(ones([1])).item();
      };
      assert.equal(run(1), 1);
      compiler.markRebound(module, 'factor');
      for (const k of [2, 3, 4]) assert.equal(run(k), k);
      assert.equal(counter.frameCount, 2);
    });

    it('keeps two tensors apart that were one', () => {
      const module = new nn.ModuleList([new Scale(), new Scale()]);
      const [a, b] = [...module] as [Scale, Scale];
      for (const each of [a, b]) compiler.markRebound(each, 'factor');
      class Both extends nn.Module {
        scales = module;
        forward(x: Tensor): Tensor {
          return b(a(x));
        }
      }
      const { run } = compiled(new Both());
      a.factor = b.factor = tensor([3]);
      assert.equal(run(ones([1])).item(), 9);
      b.factor = tensor([5]);
      assert.equal(run(ones([1])).item(), 15);
    });

    it('leaves the sizes of the attribute fixed in a dynamic graph', () => {
      const module = new Scale();
      module.factor = ones([4, 4]);
      compiler.markRebound(module, 'factor');
      const counter = CompileCounterWithBackend(backend);
      const run = compile(module, { backend: counter, dynamic: true });
      for (const n of [2, 3, 5]) assert.deepEqual(run(ones([n, 1, 4])).shape, [n, 4, 4]);
      assert.equal(counter.frameCount, 1);
    });

    it('compiles forward alone where a hook is disabled', () => {
      const module = new Outer();
      const seen: string[] = [];
      const hook = compiler.disable((m: nn.AnyModule) => {
        seen.push(m.constructor.name);
      });
      module.inner.registerForwardPreHook(hook);
      module.inner.registerForwardHook(hook);
      const counter = CompileCounterWithBackend(backend);
      module.inner.compile({ backend: counter, fullgraph: true });
      for (let i = 0; i < 3; i++) assert.deepEqual(module(ones([2])).tolist(), [3, 3]);
      assert.equal(seen.length, 6);
      assert.equal(counter.frameCount, 1);
    });

    it('compiles forward alone of a module below, and what follows a hook that replaces values', () => {
      const module = new Outer();
      let calls = 0;
      module.inner.registerForwardPreHook(compiler.disable((_, [x]: [Tensor]) => [x.add(++calls)]));
      module.inner.registerForwardHook((_, __, result) => (result as Tensor).mul(10));
      const { counter, run } = compiled(module);
      for (const k of [1, 2, 3]) assert.deepEqual(run(ones([1])).tolist(), [(1 + k) * 20 + 1]);
      assert.ok(counter.frameCount >= 1);
    });
  });

describe('compiler.disable', () => {
  it('gives its reason to explain and to the error', () => {
    const read = compiler.disable((x: Tensor) => x.add(1), { reason: 'a counter was read' });
    const [found] = compiler.explain((x: Tensor) => read(x))(ones([1])).breaks;
    assert.equal(found?.reason, 'a counter was read');
    assert.throws(() => compiler.disable(read, { reason: 1 as never }), ArgumentError);
  });
});

describe('markRebound', () => {
  it('refuses what is no module and no name', () => {
    for (const [module, name] of [
      [{}, 'weight'],
      [null, 'weight'],
      [new nn.ReLU(), 1],
    ])
      assert.throws(() => compiler.markRebound(module as never, name as never), ArgumentError);
  });
});
