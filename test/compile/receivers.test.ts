/** Compiled methods run on the object that they are called on. */
import assert from 'node:assert/strict';
import { CompileError, compile, nn, ones, type Tensor, tensor } from '../../lib/index.js';
import { CompileCounter } from '../../lib/testing/index.js';

const x = tensor([1, -2]);

describe('a compiled method', () => {
  it('runs on its object as a property of a plain object', () => {
    const backend = CompileCounter();
    const scale = {
      by: 2,
      bias: tensor([1, 1]),
      run(t: Tensor): Tensor {
        return t.mul(this.by).add(this.bias);
      },
    };
    scale.run = compile(scale.run, { fullgraph: true, backend });
    for (let i = 0; i < 2; i++) assert.deepEqual(scale.run(x).tolist(), [3, -3]);
    assert.equal(backend.frameCount, 1);
    scale.by = 3;
    scale.bias.fill_(2);
    for (let i = 0; i < 2; i++) assert.deepEqual(scale.run(x).tolist(), [5, -4]);
    scale.bias = tensor([0, 0]);
    assert.deepEqual(scale.run(x).tolist(), [3, -6]);
    assert.equal(backend.frameCount, 3);
  });

  it('runs on its instance as a field and as a method of a class', () => {
    class Scale {
      #secret = 1;
      by: number;
      constructor(by: number) {
        this.by = by;
      }
      plain(t: Tensor): Tensor {
        return t.mul(this.by).add(this.#secret);
      }
      field = compile(this.plain, { fullgraph: true });
    }
    const shared = compile(Scale.prototype.plain, { fullgraph: true });
    for (let i = 0; i < 2; i++)
      for (const by of [2, 5]) {
        const scale = new Scale(by);
        const expected = scale.plain(x).tolist();
        assert.deepEqual(scale.field(x).tolist(), expected);
        assert.deepEqual(shared.call(scale, x).tolist(), expected);
      }
  });

  it('throws what the method throws that has lost its object', () => {
    const scale = {
      by: 2,
      run(t: Tensor): Tensor {
        return t.mul(this.by);
      },
    };
    const lost = compile(scale.run) as (t: Tensor) => Tensor;
    assert.throws(() => lost(x), TypeError);
  });

  it('is of a module, whose parameters and flags it sees', () => {
    class Layer extends nn.Module<[Tensor], Tensor> {
      linear = new nn.Linear(2, 2);
      override forward(t: Tensor): Tensor {
        return this.linear(t);
      }
      twice(t: Tensor): Tensor {
        return this.training ? this.forward(this.forward(t)) : this.forward(t);
      }
    }
    const layer = new Layer();
    const compiled = compile(layer.twice, { fullgraph: true });
    for (let i = 0; i < 2; i++) {
      assert.deepEqual(compiled.call(layer, x).tolist(), layer.twice(x).tolist());
      layer.linear.weight.data.mul_(2);
    }
    layer.eval();
    assert.deepEqual(compiled.call(layer, x).tolist(), layer(x).tolist());
  });

  it('runs uncompiled where it changes its object', () => {
    const counter = {
      calls: 0,
      run(t: Tensor): Tensor {
        this.calls++;
        return t.add(1).mul(2);
      },
    };
    const run = compile(counter.run, { fullgraph: true });
    assert.throws(() => run.call(counter, x), CompileError);
    counter.calls = 0;
    counter.run = compile(counter.run);
    for (let i = 0; i < 5; i++) assert.deepEqual(counter.run(x).tolist(), [4, -2]);
    assert.equal(counter.calls, 5);
  });

  it('of an object that it does not use is one for all objects', () => {
    const backend = CompileCounter();
    const owner = { by: 2, arrow: (): ((t: Tensor) => Tensor) => (t) => t.mul(owner.by) };
    const options = { fullgraph: true, backend };
    const arrow = compile(owner.arrow(), options);
    const plain = compile(function twice(t: Tensor) {
      return t.mul(2);
    }, options);
    for (let step = 0; step < 3; step++) {
      const holder = { step, arrow, plain };
      assert.deepEqual(holder.arrow(x).tolist(), [2, -4]);
      assert.deepEqual(holder.plain(x).tolist(), [2, -4]);
    }
    assert.equal(backend.frameCount, 2);
  });

  it('may be asynchronous', async () => {
    const scale = {
      by: 3,
      async run(t: Tensor): Promise<Tensor> {
        await null;
        return t.mul(this.by);
      },
    };
    scale.run = compile(scale.run);
    assert.deepEqual((await scale.run(ones([1]))).tolist(), [3]);
  });
});
