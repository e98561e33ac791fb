/**
 * Backward leaves no memory to the garbage collector, unless user code has seen a gradient.
 * `memory.stats().tokens` counts the storages that only the garbage collector frees.
 */
import assert from 'node:assert/strict';
import { autograd, memory, nn, ones, scope, type Tensor } from '../../lib/index.js';

const tokens = (): number => memory.stats().tokens;
const STEPS = 20;

type Watch = (model: nn.Module, hidden: Tensor, output: Tensor) => void;

const watches: Record<string, Watch> = {
  'without hooks': () => {},
  'with hooks on leaves that read no gradient': (model) => {
    for (const p of model.parameters()) p.registerPostAccumulateGradHook(() => {});
  },
  'with hooks on leaves that drop the gradient': (model) => {
    for (const p of model.parameters())
      p.registerPostAccumulateGradHook((leaf) => {
        leaf.grad = null;
      });
  },
  'with hooks on several tensors': (model, hidden, output) => {
    autograd.registerMultiGradHook([hidden, output], () => {}, { mode: 'any' });
    autograd.registerMultiGradHook([...model.parameters()], () => {});
  },
  'with a callback at its end': (_model, hidden) => {
    autograd.registerMultiGradHook([hidden], () => autograd.queueCallback(() => {}));
  },
};

function build(): { first: nn.Linear; second: nn.Linear; model: nn.Module; input: Tensor } {
  const [first, second] = [new nn.Linear(8, 8), new nn.Linear(8, 8)];
  return { first, second, model: new nn.Sequential(first, second), input: ones([4, 8]) };
}

describe('a backward pass', () => {
  for (const [which, watch] of Object.entries(watches)) {
    it(`${which} leaves no memory to the garbage collector`, () => {
      const { first, second, model, input } = build();
      for (let step = 0; step < STEPS; step++) {
        const hidden = first.forward(input).relu();
        const output = second.forward(hidden).softmax(-1);
        const loss = output.square().sum();
        watch(model, hidden, output);
        const before = tokens();
        loss.backward();
        model.zeroGrad();
        assert.ok(tokens() <= before, `step ${step}: ${before} before backward, ${tokens()} after`);
      }
    });

    it(`${which}, in a scope, leaves no memory that outlives .grad`, () => {
      const { first, second, model, input } = build();
      for (let step = 0; step < STEPS; step++) {
        const before = tokens();
        scope(() => {
          const hidden = first.forward(input).relu();
          const output = second.forward(hidden).softmax(-1);
          watch(model, hidden, output);
          output.square().sum().backward();
        });
        model.zeroGrad();
        assert.ok(tokens() <= before, `step ${step}: ${before} before it, ${tokens()} after`);
      }
    });
  }

  it('that accumulates into .grad leaves no memory to the garbage collector', () => {
    const { model, first, input } = build();
    for (const p of model.parameters()) p.registerPostAccumulateGradHook(() => {});
    const step = (): void => scope(() => first.forward(input).sum().backward());
    step();
    const before = tokens();
    for (let i = 0; i < STEPS; i++) step();
    assert.ok(tokens() <= before, `${before} before, ${tokens()} after`);
  });
});
