/** Forward and backward graphs of training steps run as plans, beside eager training. */
import assert from 'node:assert/strict';
import { aotAutograd, type LoweredCompiler } from '../../../lib/compile/aot/aot-autograd.js';
import { buildPlan, type CompiledPlan } from '../../../lib/compile/schedule/plan.js';
import {
  arange,
  compile,
  crossEntropy,
  manualSeed,
  nn,
  optim,
  randn,
  type Tensor,
} from '../../../lib/index.js';
import { allocatedBytes, assertNotGrown, exactly } from './lowered.js';

type Model = nn.Sequential;

const models: Record<string, () => Model> = {
  'a perceptron': () =>
    new nn.Sequential(new nn.Linear(6, 16), new nn.GELU(), new nn.Linear(16, 4)),
  'layers with dropout and norms': () =>
    new nn.Sequential(
      new nn.Linear(6, 16),
      new nn.LayerNorm(16),
      new nn.Dropout(0.5),
      new nn.ReLU(true),
      new nn.Linear(16, 4),
    ),
  'layers that keep statistics': () =>
    new nn.Sequential(
      new nn.Linear(6, 8),
      new nn.BatchNorm1d(8),
      new nn.Tanh(),
      new nn.Linear(8, 4),
    ),
};

const target = (): Tensor => arange(0, 8).remainder(4);

/** The losses of some steps, and the parameters and buffers after them. */
function train(make: () => Model, wrap: (model: Model) => (x: Tensor) => Tensor): unknown {
  manualSeed(0);
  const model = make();
  const run = wrap(model);
  const optimizer = new optim.Adam([...model.parameters()], { lr: 1e-2 });
  const losses = Array.from({ length: 5 }, () => {
    const loss = crossEntropy(run(randn([8, 6])), target());
    optimizer.zeroGrad();
    loss.backward();
    optimizer.step();
    return loss.item();
  });
  return [losses, [...Object.values(model.stateDict())].map((t) => exactly(t as Tensor))];
}

/** A backend of plans, and the plans that it has made. */
function backendOfPlans() {
  const plans: CompiledPlan[] = [];
  const fwCompiler: LoweredCompiler = (module) => {
    const plan = buildPlan(module.graph);
    plans.push(plan);
    return (...inputs) => plan.run(inputs);
  };
  return { plans, backend: aotAutograd({ fwCompiler }) };
}

describe('training by plans', () => {
  for (const [what, make] of Object.entries(models))
    it(`has the losses and parameters of eager training for ${what}`, () => {
      const { plans, backend } = backendOfPlans();
      const expected = train(make, (model) => (x) => model(x) as Tensor);
      const actual = train(make, (model) => compile(model, { backend, fullgraph: true }) as never);
      assert.deepEqual(actual, expected);
      assert.equal(plans.length, 2);
      assert.deepEqual(
        plans.map(({ summary }) => summary.single),
        [0, 0],
      );
    });

  it('leaves the allocated bytes as they were', () => {
    const { backend } = backendOfPlans();
    const model = (models['a perceptron'] as () => Model)();
    const run = compile(model, { backend, fullgraph: true });
    const x = randn([8, 6]);
    const step = (): void => {
      crossEntropy(run(x) as Tensor, target()).backward();
      for (const p of model.parameters()) p.grad = null;
    };
    for (let i = 0; i < 20; i++) step();
    const before = allocatedBytes();
    for (let i = 0; i < 500; i++) step();
    assertNotGrown(before);
  });
});
