/**
 * Activations, losses and norms at kinks, bounds and special values. Values of PyTorch 1.13 and
 * 2.11.
 */
import assert from 'node:assert/strict';
import {
  autograd,
  float64,
  fmax,
  fmin,
  int64,
  isclose,
  nn,
  ones,
  randn,
  ShardwiseError,
  type Tensor,
  tensor,
  zeros,
} from '../../lib/index.js';

const { functional: F } = nn;
const ints = (...values: number[]): Tensor => tensor(values, { dtype: int64 });
const gradient = (fn: (x: Tensor) => Tensor, values: number[]): unknown => {
  const x = tensor(values, { requiresGrad: true });
  return autograd.grad(fn(x).sum(), x)[0]?.tolist();
};

describe('activations', () => {
  it('propagate NaN, and are exact for large arguments', () => {
    assert.ok(Number.isNaN(F.threshold(tensor(Number.NaN), 0, 5).item()));
    const far = tensor(-21, { dtype: float64 });
    assert.equal(F.logsigmoid(far).item(), -21 - Math.log1p(Math.exp(-21)));
  });

  it('with hard bounds have gradient 0 at the bounds', () => {
    assert.deepEqual(
      gradient((x) => F.hardtanh(x), [-1, 0.5, 1]),
      [0, 1, 0],
    );
    assert.deepEqual(
      gradient((x) => F.relu6(x), [0, 3, 6]),
      [0, 1, 0],
    );
    assert.deepEqual(
      gradient((x) => F.hardsigmoid(x).mul(6), [-3, 0, 3]),
      [0, 1, 0],
    );
  });

  it('refuse invalid options and integer dtypes', () => {
    const refused = [
      () => F.gelu(ones([1]), { approximate: 'x' as never }),
      () => F.softshrink(ones([1]), { lambd: -1 }),
      () => F.gumbelSoftmax(ints(1, 2)),
      () => ones([2]).softmax(0, { dtype: int64 }),
      () => isclose(ones([1]), ones([1]), { rtol: -1 }),
      () => F.scaledDotProductAttention(ones([1, 1]), ones([1, 1]), ones([1, 1]), { dropoutP: 2 }),
    ];
    for (const fn of refused) assert.throws(fn, ShardwiseError);
  });
});

describe('losses at the edges', () => {
  it('have finite gradients for probabilities 0 and 1', () => {
    const x = tensor([0, 1, 0]).requiresGrad_();
    const [g] = autograd.grad(F.binaryCrossEntropy(x, tensor([0, 1, 1]), { reduction: 'sum' }), x);
    const slopes = g?.tolist() as number[];
    assert.deepEqual(slopes.slice(0, 2), [1, -1]);
    assert.ok((slopes[2] as number) < -9e11);
  });

  it('require a target of the shape of the input', () => {
    assert.throws(
      () => F.binaryCrossEntropy(ones([2, 1]), ones([2])),
      /binaryCrossEntropy: expected a target in the shape/,
    );
    assert.throws(
      () => F.binaryCrossEntropyWithLogits(ones([2, 1]), ones([2])),
      /binaryCrossEntropyWithLogits: expected a target in the shape/,
    );
  });

  it('require one weight for each class', () => {
    for (const target of [ints(0, 1), ones([2, 4])])
      assert.throws(
        () => F.crossEntropy(ones([2, 4]), target, { weight: ones([5]) }),
        /crossEntropy: expected a weight for each of 4/,
      );
    assert.throws(
      () => F.nllLoss(ones([2, 4]), ints(0, 1), { weight: ones([5]) }),
      /nllLoss: expected a weight for each of 4/,
    );
  });

  it('are NaN for empty batches', () => {
    assert.ok(Number.isNaN(F.crossEntropy(randn([0, 4]), randn([0, 4])).item()));
  });

  it('are 0 in cosineEmbeddingLoss for targets that are neither 1 nor -1', () => {
    const losses = F.cosineEmbeddingLoss(ones([3, 2]), ones([3, 2]), tensor([1, -1, 0]), {
      reduction: 'none',
    });
    assert.ok(losses.allclose(tensor([0, 1, 0]), { atol: 1e-6 }));
  });
});

describe('norms of few or small values', () => {
  it("equal PyTorch's", () => {
    assert.throws(() => F.groupNorm(tensor([[1, 2]]), 2), /more than one value for each group/);
    const loss = F.cosineEmbeddingLoss(tensor([[1e-6, 0]]), tensor([[1, 0]]), tensor([1]));
    assert.ok(Math.abs(loss.item() - 0.29289) < 1e-4);
  });
});

describe('gradients where two cases of a formula meet', () => {
  it('are one-sided or between both sides', () => {
    assert.deepEqual(
      gradient((x) => F.celu(x), [0]),
      [1],
    );
    const logits = tensor([0, 0]).requiresGrad_();
    const [g] = autograd.grad(
      F.binaryCrossEntropyWithLogits(logits, tensor([0, 1]), { reduction: 'sum' }),
      logits,
    );
    assert.deepEqual(g?.tolist(), [0.5, -0.5]);
  });

  it('are shared among ties or given to one of them, as in PyTorch', () => {
    const share = (gradient((x) => x.median(), [1, 2, 2, 3, 2]) as number[]).map((g) =>
      Math.round(g * 3),
    );
    assert.deepEqual(share, [0, 1, 1, 0, 1]);
    const [a, b] = [tensor([1, 2]).requiresGrad_(), tensor([1, 1]).requiresGrad_()];
    for (const fn of [
      () => a.clamp({ min: b }),
      () => fmax(a, b),
      () => fmin(b.mul(0).add(a), b.add(1)),
    ]) {
      const [ga] = autograd.grad(fn().sum(), [a, b], { allowUnused: true });
      assert.deepEqual(ga?.tolist(), [1, 1]);
    }
  });

  it('are finite where one side is infinite', () => {
    const x = tensor([Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY]).requiresGrad_();
    const [g] = autograd.grad(F.smoothL1Loss(x, zeros([2]), { reduction: 'sum' }), x);
    assert.deepEqual(g?.tolist(), [1, -1]);
  });
});
