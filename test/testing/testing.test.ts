/** The helpers of `shardwise/testing`. */
import assert from 'node:assert/strict';
import { ArgumentError, compile, ShardwiseError, tensor } from '../../lib/index.js';
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
