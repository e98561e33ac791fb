/**
 * Compiled modules: guards on what a function closes over, `module.compile()`, and excluded
 * functions.
 */
import assert from 'node:assert/strict';
import {
  ArgumentError,
  CompileError,
  compile,
  compiler,
  float64,
  graphBreak,
  inferenceMode,
  nn,
  noGrad,
  ones,
  type Tensor,
  tensor,
  zeros,
} from '../../lib/index.js';
import { CompileCounter } from '../../lib/testing/index.js';

const values = (t: Tensor): unknown => t.tolist();

class Scale extends nn.Module {
  factor = 2;
  weight = new nn.Parameter(tensor([3]));
  forward(x: Tensor): Tensor {
    return x.mul(this.weight).mul(this.factor);
  }
}

describe('compile of a module', () => {
  it('returns a module with the same parameters, and captures it once', () => {
    const counter = CompileCounter();
    const model = new Scale();
    const compiled = compile(model, { backend: counter, fullgraph: true });
    assert.deepEqual(values(compiled(ones([1]))), [6]);
    assert.deepEqual(values(compiled(ones([1]).mul(2))), [12]);
    assert.equal(counter.frameCount, 1);
    assert.deepEqual(Object.keys(compiled.stateDict()), ['weight']);
    assert.equal(compiled.eval().training || model.training, false);
    compiled.train();
    assert.equal(compiled instanceof Scale && compiled.weight === model.weight, true);
    compiled(ones([1]))
      .sum()
      .backward();
    assert.deepEqual(values(model.weight.grad as Tensor), [2]);
  });

  it('captures anew when the training flag of a module that is closed over changes', () => {
    const counter = CompileCounter();
    const dropout = new nn.Dropout(0.999999);
    const fn = compile((x: Tensor) => dropout(x), { backend: counter, fullgraph: true });
    assert.deepEqual(values(fn(ones([4]))), [0, 0, 0, 0]);
    dropout.eval();
    assert.deepEqual(values(fn(ones([4]))), [1, 1, 1, 1]);
    dropout.train();
    assert.deepEqual(values(fn(ones([4]))), [0, 0, 0, 0]);
    assert.equal(counter.frameCount, 2, 'the first capture serves again');
  });

  it('sees a training flag that is read without a call', () => {
    const model = new nn.Identity();
    const fn = compile((x: Tensor) => (model.training ? x.mul(2) : x.mul(3)), { fullgraph: true });
    assert.deepEqual(values(fn(ones([1]))), [2]);
    model.eval();
    assert.deepEqual(values(fn(ones([1]))), [3]);
  });

  it('sees other attributes, replaced and converted parameters, and hooks', () => {
    const model = new Scale();
    const fn = compile((x: Tensor) => model(x), { fullgraph: true });
    assert.deepEqual(values(fn(ones([1]))), [6]);
    model.factor = 5;
    assert.deepEqual(values(fn(ones([1]))), [15]);
    model.weight = new nn.Parameter(tensor([1]));
    assert.deepEqual(values(fn(ones([1]))), [5]);
    const handle = model.registerForwardHook((_m, _args, result) => result.add(1));
    assert.deepEqual(values(fn(ones([1]))), [6]);
    handle.remove();
    assert.deepEqual(values(fn(ones([1]))), [5]);
    model.double();
    assert.equal(fn(ones([1], { dtype: float64 })).dtype, float64);
  });

  it('sees in-place changes of parameters without a new capture', () => {
    const counter = CompileCounter();
    const model = new Scale();
    const fn = compile((x: Tensor) => model(x), { backend: counter, fullgraph: true });
    fn(ones([1]));
    noGrad(() => model.weight.fill_(10));
    assert.deepEqual(values(fn(ones([1]))), [20]);
    assert.equal(counter.frameCount, 1);
  });

  it('guards on modes', () => {
    const counter = CompileCounter();
    const fn = compile((x: Tensor) => x.add(1), { backend: counter, fullgraph: true });
    fn(ones([1]));
    noGrad(() => fn(ones([1])));
    inferenceMode(() => fn(ones([1])));
    assert.equal(counter.frameCount, 3);
  });

  it('by module.compile() captures calls of the module, including hooks', () => {
    const counter = CompileCounter();
    const model = new nn.Sequential(new nn.Linear(2, 2), new nn.ReLU());
    let calls = 0;
    model.registerForwardHook(() => {
      calls++;
    });
    const expected = values(model(ones([1, 2])));
    model.compile({ backend: counter, fullgraph: true });
    assert.deepEqual(values(model(ones([1, 2]))), expected);
    assert.deepEqual(values(model(ones([1, 2]))), expected);
    assert.equal(counter.frameCount, 1);
    assert.equal(calls, 2, 'the hook ran once eagerly and once while capturing');
    assert.throws(() => model.compile({ backend: 'nothing' as 'eager' }), ArgumentError);
  });
});

describe('the compiler namespace', () => {
  it('has isCompiling, which is true during a capture only', () => {
    const fn = compile((x: Tensor) => x.add(compiler.isCompiling() ? 1 : 5), { fullgraph: true });
    assert.deepEqual([fn(ones([1])), fn(ones([1]))].map(Number), [2, 2]);
    assert.equal(compiler.isCompiling(), false);
  });

  it('has reset, which drops captures', () => {
    const counter = CompileCounter();
    const fn = compile((x: Tensor) => x.add(1), { backend: counter });
    fn(ones([1]));
    compiler.reset();
    fn(ones([1]));
    assert.equal(counter.frameCount, 2);
  });

  it('has disable, which like graphBreak makes a function run uncompiled, and is an error with fullgraph', () => {
    const disabled = compiler.disable((x: Tensor) => x.mul(4));
    const cases = [
      { fn: (x: Tensor) => (graphBreak(), x.mul(4)), frames: 1 },
      { fn: (x: Tensor) => disabled(x), frames: 0 },
    ];
    for (const { fn, frames } of cases) {
      const counter = CompileCounter();
      assert.deepEqual(values(compile(fn, { backend: counter })(ones([1]))), [4]);
      assert.equal(counter.frameCount, frames);
      assert.throws(() => compile(fn, { fullgraph: true })(ones([1])), CompileError);
    }
    graphBreak();
  });

  it('has disable, which also excludes the functions that are called, unless recursive is false', () => {
    const counter = CompileCounter();
    const inner = compile((x: Tensor) => x.add(1), { backend: counter });
    compiler.disable(inner)(zeros([1]));
    assert.equal(counter.frameCount, 0);
    compiler.disable((x: Tensor) => inner(x), { recursive: false })(zeros([1]));
    assert.equal(counter.frameCount, 1);
  });
});
