/** The helpers of `shardwise/testing`. */
import assert from 'node:assert/strict';
import { ArgumentError, compile, ShardwiseError, type Tensor, tensor } from '../../lib/index.js';
import { CompileCounter, CompileCounterWithBackend, FileCheck } from '../../lib/testing/index.js';

describe('CompileCounterWithBackend', () => {
  it('counts graphs and passes them to the inner backend', () => {
    const inner = CompileCounter();
    for (const backend of ['eager', inner] as const) {
      const counter = CompileCounterWithBackend(backend);
      assert.deepEqual(
        compile((x: ReturnType<typeof tensor>) => x.add(1).mul(2), { backend: counter })(
          tensor([1]),
        ).tolist(),
        [4],
      );
      assert.deepEqual([counter.frameCount, counter.opCount, counter.graphs.length], [1, 2, 1]);
    }
    assert.equal(inner.frameCount, 1);
    assert.throws(() => CompileCounterWithBackend('nothing' as 'eager'), ArgumentError);
  });

  it('passes on what a function that runs backward is compiled as', () => {
    const step = (x: Tensor): Tensor => {
      const w = x.detach().requiresGrad_();
      w.mul(w).sum().backward();
      return w.grad as Tensor;
    };
    const inner = CompileCounterWithBackend('inductor');
    const counter = CompileCounterWithBackend(inner);
    const compiled = compile(step, { backend: counter, fullgraph: true });
    for (let call = 0; call < 2; call++)
      assert.deepEqual(compiled(tensor([1, 3])).tolist(), step(tensor([1, 3])).tolist());
    assert.deepEqual([counter.frameCount, inner.frameCount], [1, 1]);
    assert.ok(counter.opCount > 0);
    const through = compile(step, { backend: CompileCounter(), fullgraph: true });
    assert.throws(
      () => through(tensor([1])),
      /the backend runs graphs through autograd.* 'inductor' and those of aotAutograd do not/,
    );
  });
});

describe('FileCheck', () => {
  const text = 'wait sin sin cos return';
  const passing = [
    FileCheck().check('wait').check('cos'),
    FileCheck()
      .check('wait')
      .checkNot('cos')
      .check('sin')
      .checkNot('wait')
      .check('return')
      .checkNot('sin'),
    FileCheck().checkCount('sin', 2).check('cos'),
    FileCheck().checkCount('sin', 2, { exactly: true }),
    FileCheck().checkCount('sin', 1),
  ];
  const failing = [
    FileCheck().check('tan'),
    FileCheck().check('cos').check('sin'),
    FileCheck().check('wait').checkNot('sin').check('cos'),
    FileCheck().checkNot('return'),
    FileCheck().checkCount('sin', 3),
    FileCheck().checkCount('sin', 1, { exactly: true }),
  ];

  it('finds strings in order and names a missing one', () => {
    for (const check of passing) check.run(text);
    for (const check of failing)
      assert.throws(
        () => check.run(text),
        (error: Error) => error instanceof ShardwiseError && error.message.includes(text),
      );
    assert.throws(() => FileCheck().check(''), ArgumentError);
    assert.throws(() => FileCheck().checkCount('a', -1), ArgumentError);
  });
});
