/** A backward pass to some inputs computes no gradients of others. */
import assert from 'node:assert/strict';
import { autograd, nn, profiler, randn, type Tensor } from '../../lib/index.js';

/** The number of calls of each op in `fn`. */
function opsIn(fn: () => unknown): Map<string, number> {
  const prof = profiler.profile({ activities: ['cpu'] }, () => void fn());
  return new Map([...prof.keyAverages()].map(({ key, count }) => [key, count]));
}

const products = (fn: () => unknown): number =>
  [...opsIn(fn)].reduce((sum, [op, n]) => sum + (/^(mm|matmul|rowsProduct)$/.test(op) ? n : 0), 0);

const operands = (): [Tensor, Tensor] => [
  randn([6, 4]).requiresGrad_(),
  randn([5, 4]).requiresGrad_(),
];

describe('gradients of some inputs', () => {
  it('cost one product of a linear layer each', () => {
    const [x, w] = operands();
    const y = nn.functional.linear(x, w);
    const gradOutputs = [randn([6, 5])];
    const of = (inputs: Tensor[]): number =>
      products(() => autograd.grad([y], inputs, { gradOutputs, retainGraph: true }));
    assert.equal(of([x, w]), 2);
    assert.equal(of([x]), 1);
    assert.equal(of([w]), 1);
  });

  it('are those of a pass to all inputs', () => {
    const [x, w] = operands();
    const y = nn.functional.linear(x.tanh(), w).gelu().sum();
    const all = autograd.grad(y, [x, w], { retainGraph: true });
    const alone = [x, w].map((each) => autograd.grad(y, [each], { retainGraph: true })[0]);
    all.forEach((g, i) => assert.ok(g?.equal(alone[i] as Tensor)));
  });

  it('of backward to given inputs leave the others without a gradient', () => {
    const [x, w] = operands();
    const y = nn.functional.linear(x, w).sum();
    assert.equal(
      products(() => y.backward({ inputs: [w] })),
      1,
    );
    assert.equal(x.grad, null);
    assert.deepEqual(w.grad?.shape, [5, 4]);
  });

  it('of a nested pass are those that it asks for, whatever the outer pass asks for', () => {
    const [x, w] = operands();
    const [gx] = autograd.grad(nn.functional.linear(x, w).square().sum(), [x], {
      createGraph: true,
    });
    const [gw] = autograd.grad((gx as Tensor).square().sum(), [w]);
    assert.deepEqual(gw?.shape, [5, 4]);
  });
});
