/** Second gradients: what gradient rules save comes back with the history that it had, and with no other. */
import assert from 'node:assert/strict';
import { autograd, float64, int64, manualSeed, nn, randn, type Tensor, tensor } from '../../lib/index.js';

const input = (): Tensor => tensor([1, 2, 3, 4], { dtype: float64 }).requiresGrad_();

describe('the second gradient', () => {
  it('does not flow into the mask that dropout saves', () => {
    manualSeed(3);
    const x = input();
    const [first] = autograd.grad(x.dropout(0.5).sum(), x, { createGraph: true });
    assert.equal(first?.requiresGrad, false);
    const [second] = autograd.grad(first.mul(x).sum(), x);
    assert.ok(second?.equal(first));
  });

  it('flows through tensors that hooks packed: leaves, inputs and outputs', () => {
    const fn = (x: Tensor): Tensor =>
      autograd.savedTensorsHooks(
        (t) => t.tolist() as number[],
        (packed) => tensor(packed, { dtype: float64 }),
        () => x.mul(x).mul(x.mul(0.3).exp()),
      );
    assert.ok(autograd.gradcheck(fn, [input()]));
    assert.ok(autograd.gradgradcheck(fn, [input()]));
  });

  it('flows through tensors that hooks give back as they were', () => {
    const fn = (x: Tensor): Tensor =>
      autograd.savedTensorsHooks(
        (t) => t,
        (t) => t,
        () => x.mul(x).mul(x.mul(0.3).exp()),
      );
    assert.ok(autograd.gradgradcheck(fn, [input()]));
  });

  for (const shape of [
    [5, 1],
    [2, 3],
  ]) {
    it(`of layerNorm takes a weight with the normalised shape [${shape}]`, () => {
      const x = randn([5, ...shape], { dtype: float64 }).requiresGrad_();
      const weight = randn(shape, { dtype: float64 }).requiresGrad_();
      const run = (createGraph: boolean): Tensor[] => autograd.grad(x.layerNorm(shape, weight).sin().sum(), [x, weight], { createGraph });
      const recorded = run(true);
      run(false).forEach((g, i) => {
        assert.ok(g.allclose(recorded[i] as Tensor));
      });
      assert.ok(autograd.gradgradcheck((a, b) => a.layerNorm(shape, b), [x, weight]));
    });
  }
});

describe('the class weight of crossEntropy', () => {
  for (const reduction of ['none', 'sum', 'mean'] as const) {
    it(`gets a gradient where it requires one, with reduction ${reduction}`, () => {
      const target = tensor([0, 1, -100, 2, 0], { dtype: int64 });
      const fn = (x: Tensor, weight: Tensor): Tensor => nn.functional.crossEntropy(x, target, { weight, reduction, labelSmoothing: 0.1 });
      const weight = tensor([0.5, 1, 2], { dtype: float64 }).requiresGrad_();
      assert.ok(autograd.gradcheck(fn, [randn([5, 3], { dtype: float64 }).requiresGrad_(), weight]));
    });
  }
});
