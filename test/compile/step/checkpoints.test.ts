/** Checkpoints in captured steps: backward computes again in the graph, by the numbers of forward. */
import assert from 'node:assert/strict';
import { captureStep } from '../../../lib/compile/index.js';
import {
  autograd,
  dropout,
  manualSeed,
  nn,
  noGrad,
  optim,
  randn,
  scaledDotProductAttention,
  type Tensor,
} from '../../../lib/index.js';
import { checkpoint, createSelectiveCheckpointContexts } from '../../../lib/parallel/index.js';
import { adam, captured, eager, type MakeStep, type Net, trained, training } from './train.js';

/** A step whose model runs by `run`. */
const stepBy =
  (run: (model: Net, x: Tensor) => Tensor): MakeStep =>
  (model, optimizer) =>
  (x) => {
    const loss = run(model, x).square().mean();
    loss.backward();
    optimizer.step();
    optimizer.zeroGrad();
    return loss;
  };

const runs: Record<string, (model: Net, x: Tensor) => Tensor> = {
  'a model with dropout': (model, x) => checkpoint((t: Tensor) => model(t), x),
  'two parts, and draws around them': (model, x) =>
    dropout(
      checkpoint(
        (t: Tensor) => dropout(model(t), 0.3),
        checkpoint((t: Tensor) => dropout(t.mul(model.first.weight.sum()).sin(), 0.5), dropout(x)),
      ),
    ),
  'parts of parts': (model, x) =>
    checkpoint(
      (t: Tensor) =>
        dropout(checkpoint((u: Tensor) => model(u).sin(), t))
          .mul(t)
          .exp(),
      x,
    ),
  'attention that drops nothing': (model, x) =>
    checkpoint((t: Tensor) => {
      const y = model(t).unsqueeze(0);
      return scaledDotProductAttention(y, y, y, { isCausal: true });
    }, x),
  'attention that drops': (model, x) =>
    checkpoint((t: Tensor) => {
      const y = model(t).unsqueeze(0);
      return scaledDotProductAttention(y, y, y, null, 0.5).add(
        scaledDotProductAttention(y, y, y, null, 0.2),
      );
    }, x),
  'chosen results': (model, x) =>
    checkpoint((t: Tensor) => model(t).exp(), x, {
      contextFn: () => createSelectiveCheckpointContexts(['matmul', 'gelu']),
    }),
  'a part that ends late, and draws anew': (model, x) =>
    checkpoint((t: Tensor) => model(t).exp(), x, { preserveRngState: false, earlyStop: false }),
  'code that seeds': (model, x) =>
    checkpoint((t: Tensor) => {
      manualSeed(3);
      return dropout(model(t).exp());
    }, x),
  'code under autograd.recomputed of the program': (model, x) =>
    autograd.recomputed((t: Tensor) => model(t).exp(), [x], {
      run: (fn, args) => fn(...args),
      settings: {},
    }),
};

describe('captureStep', () => {
  for (const [name, run] of Object.entries(runs))
    it(`replays a step with a checkpoint of ${name}`, () => {
      const make = training(adam, stepBy(run));
      assert.deepEqual(trained(make, captured), trained(make, eager));
    });

  it('replays a step with a checkpoint by a plan', () => {
    const make = training(adam, stepBy(runs['a model with dropout'] as never));
    const planned = trained(make, (step, x) => {
      const made = captureStep(step, [x]);
      const plan = made.plan();
      return (batch) => made.runWith(plan, batch);
    });
    assert.deepEqual(planned, trained(make, eager));
  });

  it('refuses a checkpoint whose second run draws more', () => {
    let runs = 0;
    const run = (model: Net, x: Tensor): Tensor =>
      checkpoint((t: Tensor) => (runs++ === 0 ? model(t).exp() : dropout(model(t)).exp()), x);
    const { step } = training(adam, stepBy(run))();
    assert.throws(
      () => captureStep(step, [randn([3, 4])]),
      /drew numbers that forward did not draw.*checkpoints\.test/,
    );
  });

  it('takes a checkpoint whose second run attends, and drops nothing', () => {
    const seen = new WeakSet<Net>();
    const run = (model: Net, x: Tensor): Tensor =>
      checkpoint((t: Tensor) => {
        if (seen.has(model)) noGrad(() => scaledDotProductAttention(t, t, t));
        seen.add(model);
        return model(t).exp();
      }, x);
    const { step } = training(adam, stepBy(run))();
    assert.ok(captureStep(step, [randn([3, 4])]).gradients.length > 0);
  });

  it('computes what a checkpoint did not keep once more in the graph, and tags it', () => {
    const model = new nn.Sequential(new nn.Linear(4, 4), new nn.Tanh(), new nn.Linear(4, 4));
    const optimizer = new optim.SGD(model.parameters(), { capturable: true });
    const makeStep = (forward: (x: Tensor) => Tensor) => (x: Tensor) => {
      const loss = forward(x).sum();
      loss.backward();
      optimizer.step();
      optimizer.zeroGrad();
      return loss;
    };
    const x = randn([2, 4]);
    const tanhs = (forward: (x: Tensor) => Tensor): string[] =>
      captureStep(makeStep(forward), [x])
        .graph.callNodes.filter(({ op }) => op?.name === 'tanh')
        .map(({ tags }) => [...tags].join());
    assert.deepEqual(
      tanhs((t) => model(t) as Tensor),
      [''],
    );
    assert.deepEqual(
      tanhs((t) => checkpoint((u: Tensor) => model(u) as Tensor, t)),
      ['', 'recomputed'],
    );
  });
});
