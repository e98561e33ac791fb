/** `compile(fn, { verify: n })` finds graphs that differ from the function. */
import assert from 'node:assert/strict';
import {
  ArgumentError,
  CompileError,
  compile,
  dropout,
  manualSeed,
  nn,
  ones,
  rand,
  type Tensor,
} from '../../lib/index.js';

describe('compile with verify', () => {
  it('finds what a graph cannot see, at the calls that are compared', () => {
    const HIDDEN = Symbol('hidden');
    const numbers = { [HIDDEN]: 1 };
    const run = (verify?: number) => {
      numbers[HIDDEN] = 1;
      const fn = compile((x: Tensor) => [x, x.mul(numbers[HIDDEN])], {
        ...(verify === undefined ? {} : { verify }),
      });
      fn(ones([2]));
      numbers[HIDDEN] = 5;
      return fn;
    };
    assert.equal(
      run()(ones([2]))[1]
        ?.sum()
        .item(),
      2,
    );
    assert.throws(
      () => run(1)(ones([2])),
      (error: Error) =>
        error instanceof CompileError &&
        /tensor 1 of the results of .* expected 5 at element 0, got 1 at element 0/.test(
          error.message,
        ),
    );
    const third = run(3);
    third(ones([2]));
    assert.throws(() => third(ones([2])), CompileError);
  });

  it('changes no arguments, buffers, gradients and random numbers', () => {
    const train = (verify?: number) => {
      manualSeed(3);
      const model = new nn.Sequential(new nn.Linear(4, 4), new nn.BatchNorm1d(4));
      const step = compile(
        (x: Tensor, sum: Tensor) => {
          const y = dropout(model(x), 0.5);
          sum.add_(y.detach().sum());
          return y.square().sum();
        },
        { fullgraph: true, ...(verify === undefined ? {} : { verify }) },
      );
      const sum = ones([]);
      for (let i = 0; i < 3; i++) step(rand([8, 4]), sum).backward();
      const state = Object.values(model.stateDict()) as Tensor[];
      const gradients = [...model.parameters()].map((p) => p.grad as Tensor);
      return [sum, ...state, ...gradients].map((t) => t.tolist());
    };
    assert.deepEqual(train(1), train());
  });

  it('takes a whole number of calls', () => {
    for (const verify of [0, 1.5, 'all'])
      assert.throws(() => compile((x: Tensor) => x, { verify: verify as number }), ArgumentError);
  });
});
