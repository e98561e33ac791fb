/** `compiler.disable`: functions that keep out of graphs, always or at times. */
import assert from 'node:assert/strict';
import { captureStep } from '../../lib/compile/index.js';
import {
  ArgumentError,
  CompileError,
  compile,
  compiler,
  nn,
  ones,
  type Tensor,
} from '../../lib/index.js';
import { CompileCounter } from '../../lib/testing/index.js';

/** A function that is excluded while `isOff`, and its calls as JavaScript code. */
function switched() {
  const state = { isOff: false, calls: 0 };
  const fn = compiler.disable(
    function twice(x: Tensor): Tensor {
      state.calls++;
      return x.mul(2);
    },
    { when: () => state.isOff, reason: 'twice was called' },
  );
  return { state, fn };
}

describe('compiler.disable with when', () => {
  it('leaves the function in the graph while it is false', () => {
    const { state, fn } = switched();
    const counter = CompileCounter();
    const compiled = compile((x: Tensor) => fn(x).add(1), { backend: counter, fullgraph: true });
    for (let call = 0; call < 3; call++) assert.deepEqual(compiled(ones([1])).tolist(), [3]);
    assert.deepEqual([counter.frameCount, counter.opCount, state.calls], [1, 2, 1]);
  });

  it('runs it at every call while it is true, beside graphs of the rest', () => {
    const { state, fn } = switched();
    state.isOff = true;
    const compiled = compile((x: Tensor) => fn(x).add(1));
    for (let call = 1; call < 4; call++) {
      assert.deepEqual(compiled(ones([1])).tolist(), [3]);
      assert.equal(state.calls, call);
    }
    assert.throws(
      () => compile((x: Tensor) => fn(x), { fullgraph: true })(ones([1])),
      (error: Error) => error instanceof CompileError && /twice was called/.test(error.message),
    );
  });

  it('is asked at each call of a compiled function whose graph has it', () => {
    const { state, fn } = switched();
    const compiled = compile((x: Tensor) => fn(x).add(1));
    const calls: number[] = [];
    for (const isOff of [false, true, true, false, true]) {
      state.isOff = isOff;
      const before = state.calls;
      assert.deepEqual(compiled(ones([1])).tolist(), [3]);
      calls.push(state.calls - before);
    }
    // The first is a capture; the fourth runs its graph again.
    assert.deepEqual(calls, [1, 1, 1, 0, 1]);
    const strict = compile((x: Tensor) => fn(x), { fullgraph: true });
    state.isOff = false;
    strict(ones([1]));
    state.isOff = true;
    assert.throws(() => strict(ones([1])), /twice was called/);
  });

  it('stands among the guards', () => {
    const { fn } = switched();
    const report = compiler.explain((x: Tensor) => fn(x))(ones([1]));
    assert.ok(
      report.graphs[0]?.guards.includes('when() of the disabled function twice is false'),
      report.graphs[0]?.guards.join('\n'),
    );
  });

  it('is compared by captured steps, which say that it changed', () => {
    const { state, fn } = switched();
    const step = captureStep((x: Tensor) => fn(x), [ones([1])]);
    assert.deepEqual(step.run(ones([1])).tolist(), [2]);
    state.isOff = true;
    assert.throws(
      () => step.run(ones([1])),
      /when\(\) of the disabled function twice was false and is true/,
    );
  });

  it('takes hooks of modules out of graphs, and back', () => {
    const state = { isOff: false, calls: 0 };
    const hook = (_: unknown, __: unknown, out: Tensor): Tensor => {
      state.calls++;
      return out.mul(2);
    };
    const model = new nn.ReLU();
    model.registerForwardHook(compiler.disable(hook, { when: () => state.isOff }) as never);
    const counter = CompileCounter();
    const compiled = compile(model, { backend: counter, fullgraph: true });
    const seen: number[][] = [];
    for (const isOff of [false, false, true, true, false]) {
      state.isOff = isOff;
      assert.deepEqual(compiled(ones([1])).tolist(), [2]);
      seen.push([state.calls, counter.frameCount]);
    }
    assert.deepEqual(seen, [
      [1, 1],
      [1, 1],
      [2, 2],
      [3, 2],
      [3, 2],
    ]);
  });

  it('refuses what is no function', () => {
    assert.throws(() => compiler.disable(() => {}, { when: true as never }), ArgumentError);
  });
});
