/** A captured step runs for what it was captured for, and refuses what a graph cannot repeat. */
import assert from 'node:assert/strict';
import { captureStep } from '../../../lib/compile/index.js';
import {
  ArgumentError,
  CompileError,
  ones,
  optim,
  randn,
  type Tensor,
} from '../../../lib/index.js';
import { adam, ending, type MakeStep, stateOf, type Training, training } from './train.js';

describe('captureStep', () => {
  it('refuses to run with other arguments, settings, state or gradients, and says what differs', () => {
    const changes: [RegExp, (t: Training & { x: Tensor }) => Tensor][] = [
      [/argument 0 was float32\[3, 4\] on cpu and is float32\[5, 4\]/, () => randn([5, 4])],
      [
        /Adam: group 0, betas\[0\] was 0.9 and is 0.5/,
        ({ optimizer, x }) => {
          Object.assign(optimizer.paramGroups[0] as object, { betas: [0.5, 0.999] });
          return x;
        },
      ],
      [
        /Adam: group 0, step of parameter 0 was the tensor and is another one/,
        ({ optimizer, x }) => {
          optimizer.loadStateDict(optimizer.stateDict());
          return x;
        },
      ],
      [
        /\.grad was null/,
        ({ model, x }) => {
          for (const p of model.parameters()) p.grad = ones(p.shape);
          return x;
        },
      ],
      [
        /model.training was true and is false/,
        ({ model, x }) => {
          model.eval();
          return x;
        },
      ],
    ];
    for (const [message, change] of changes) {
      const made = training(adam, ending)();
      const x = randn([3, 4]);
      const step = captureStep(made.step, [x]);
      step.run(x);
      assert.ok(step.matches(x));
      assert.equal(step.difference(x), null);
      const other = change({ ...made, x });
      assert.ok(!step.matches(other));
      assert.match(step.difference(other) ?? '', message);
      assert.throws(
        () => step.run(other),
        (error: Error) => error instanceof CompileError && message.test(error.message),
      );
      captureStep(made.step, [other]).run(other);
    }
  });

  it('refuses what a graph cannot repeat, and leaves everything as it was', () => {
    const refused: [RegExp, MakeStep][] = [
      [
        /a value of a tensor, float32\[\], was read/,
        (model) => (x) => {
          const loss = model(x).mean();
          loss.backward();
          return loss.item();
        },
      ],
      [
        /made without capturable: true/,
        (model) => {
          const other = new optim.Adam(model.parameters());
          return (x) => {
            model(x).mean().backward();
            other.step();
          };
        },
      ],
      [
        /a hook was registered on a leaf/,
        (model) => (x) => {
          model.first.weight.registerHook((grad) => grad);
          model(x).mean().backward();
        },
      ],
      [
        /requiresGrad_\(\) changed a tensor/,
        (model) => (x) => {
          model.first.weight.requiresGrad_(false);
          model(x).mean().backward();
        },
      ],
      [
        /loadStateDict\(\) of Adam was called/,
        (_, optimizer) => () => {
          optimizer.loadStateDict(optimizer.stateDict());
        },
      ],
      [
        /was changed/,
        (model) => (x) => {
          model(x).mean().backward();
          (model as unknown as { count: number }).count = 1;
        },
      ],
    ];
    for (const [message, makeStep] of refused) {
      const made = training(adam, makeStep)();
      const before = stateOf(made);
      const x = randn([3, 4]);
      assert.throws(
        () => captureStep(made.step, [x]),
        (error: Error) => error instanceof CompileError && message.test(error.message),
      );
      assert.deepEqual(stateOf(made), before);
    }
  });

  it('refuses a step that is asynchronous', () => {
    const calls: number[] = [];
    const step = async (): Promise<void> => {
      await null;
      calls.push(1);
    };
    assert.throws(() => captureStep(step, []), /captureStep: expected a synchronous step/);
    assert.deepEqual(calls, []);
    assert.throws(
      () => captureStep(() => step(), []),
      /captureStep: the function returned before its end, as asynchronous ones/,
    );
  });

  it('refuses arguments of wrong kinds', () => {
    const calls: [RegExp, () => unknown][] = [
      [/fn/, () => captureStep(1 as never, [])],
      [/args/, () => captureStep(() => 0, 1 as never)],
      [
        /there is no option "placements"/,
        () => captureStep(() => 0, [], { placements: 1 } as never),
      ],
      [/distribute/, () => captureStep(() => 0, [], { distribute: {} as never })],
      [/distribute/, () => captureStep(() => 0, [], { distribute: new Map([[1, 2]]) as never })],
    ];
    for (const [message, call] of calls)
      assert.throws(
        call,
        (error: Error) => error instanceof ArgumentError && message.test(error.message),
      );
  });
});
