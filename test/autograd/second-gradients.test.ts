/** Second gradients: gradient rules get saved tensors back with their own history. */
import assert from 'node:assert/strict';
import {
  autograd,
  float64,
  int64,
  manualSeed,
  nn,
  randn,
  type Tensor,
  tensor,
} from '../../lib/index.js';

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

  it('flows through leaves, inputs and outputs that hooks packed', () => {
    const fn = (x: Tensor): Tensor =>
      autograd.savedTensorsHooks(
        (t) => t.tolist() as number[],
        (packed) => tensor(packed, { dtype: float64 }),
        () => x.mul(x).mul(x.mul(0.3).exp()),
      );
    assert.ok(autograd.gradcheck(fn, [input()]));
    assert.ok(autograd.gradgradcheck(fn, [input()]));
  });

  it('flows through tensors that hooks return unchanged', () => {
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
    it(`of layerNorm exists for a weight of the normalised shape [${shape}]`, () => {
      const x = randn([5, ...shape], { dtype: float64 }).requiresGrad_();
      const weight = randn(shape, { dtype: float64 }).requiresGrad_();
      const run = (createGraph: boolean): Tensor[] =>
        autograd.grad(x.layerNorm(shape, weight).sin().sum(), [x, weight], { createGraph });
      const recorded = run(true);
      run(false).forEach((g, i) => {
        assert.ok(g.allclose(recorded[i] as Tensor));
      });
      assert.ok(autograd.gradgradcheck((a, b) => a.layerNorm(shape, b), [x, weight]));
    });
  }
});

describe('the gradients of every order', () => {
  const rows = [
    [2, 3, 0.5, 1.5, -1],
    [2, 0, 3, 0.5, 4],
    [0, 2, 0, 3, 1],
    [0, 0, 0, 2, 3],
    [1, 2, 3, 4, 0],
  ];
  const slope = (fn: (x: Tensor) => Tensor) => (x: Tensor) =>
    autograd.grad(fn(x).sin().sum(), x, { createGraph: true })[0] as Tensor;

  for (const dim of [0, 1]) {
    it(`of cumprod over dim ${dim} are right at factors of 0`, () => {
      const fn = (x: Tensor): Tensor => x.cumprod(dim);
      const x = tensor(rows, { dtype: float64 }).requiresGrad_();
      assert.ok(autograd.gradcheck(fn, [x]));
      assert.ok(autograd.gradgradcheck(fn, [x]));
      assert.ok(autograd.gradgradcheck(slope(fn), [x]));
    });
  }

  it('of prod are right at factors of 0', () => {
    const fn = (x: Tensor): Tensor => x.prod(1);
    const x = tensor(rows, { dtype: float64 }).requiresGrad_();
    assert.ok(autograd.gradgradcheck(fn, [x]));
    assert.ok(autograd.gradgradcheck(slope(fn), [x]));
  });

  it('of scatterReduce by products are right at single zeros, and refused for several zeros in one element', () => {
    const index = tensor([0, 0, 1, 1, 1], { dtype: int64 });
    const fn = (self: Tensor, source: Tensor): Tensor =>
      self.scatterReduce(0, index, source, 'prod');
    const self = tensor([2, 3], { dtype: float64 }).requiresGrad_();
    assert.ok(
      autograd.gradgradcheck(fn, [
        self,
        tensor([2, 0, 1, 3, 0], { dtype: float64 }).requiresGrad_(),
      ]),
    );
    const twice = tensor([2, 1, 0, 3, 0], { dtype: float64 }).requiresGrad_();
    assert.ok(autograd.gradcheck(fn, [self, twice]));
    const sum = fn(self, twice).sum();
    assert.throws(
      () => autograd.grad(sum, twice, { createGraph: true }),
      /more than one 0 in the same place/,
    );
  });

  it('of cumprod are equal with and without recording', () => {
    const x = randn([3, 37], { dtype: float64 }).requiresGrad_();
    for (const shape of [[111], [3, 37], [3, 1, 37]]) {
      const y = x.reshape(shape).cumprod(-1).sum();
      const [plain] = autograd.grad(y, x, { retainGraph: true });
      const [recorded] = autograd.grad(y, x, { createGraph: true });
      assert.ok(plain?.allclose(recorded as Tensor));
    }
    assert.equal(
      autograd.grad(tensor(3, { dtype: float64 }).requiresGrad_().cumprod(0), [], {}).length,
      0,
    );
  });
});

describe('the class weight of crossEntropy', () => {
  for (const reduction of ['none', 'sum', 'mean'] as const) {
    it(`gets a gradient if it requires one, with reduction ${reduction}`, () => {
      const target = tensor([0, 1, -100, 2, 0], { dtype: int64 });
      const fn = (x: Tensor, weight: Tensor): Tensor =>
        nn.functional.crossEntropy(x, target, { weight, reduction, labelSmoothing: 0.1 });
      const weight = tensor([0.5, 1, 2], { dtype: float64 }).requiresGrad_();
      assert.ok(
        autograd.gradcheck(fn, [randn([5, 3], { dtype: float64 }).requiresGrad_(), weight]),
      );
    });
  }
});
