/**
 * What ops give at the corners of their domains, as PyTorch does: no dims, NaN, bounds, integers,
 * options. Values of PyTorch 1.13 and 2.11.
 */
import assert from 'node:assert/strict';
import {
  arange,
  atan2,
  autograd,
  bincount,
  bool,
  einsum,
  flip,
  float32,
  float64,
  fmax,
  fmin,
  gather,
  histc,
  hypot,
  int8,
  int64,
  isclose,
  logspace,
  nn,
  ones,
  randn,
  randperm,
  ShapeError,
  ShardwiseError,
  searchsorted,
  stdMean,
  type Tensor,
  takeAlongDim,
  tensor,
  uint8,
  zeros,
} from '../../lib/index.js';

const { functional: F } = nn;
const ints = (...values: number[]): Tensor => tensor(values, { dtype: int64 });
const mask = (...values: boolean[]): Tensor => tensor(values, { dtype: bool });
const gradient = (fn: (x: Tensor) => Tensor, values: number[]): unknown => {
  const x = tensor(values, { requiresGrad: true });
  return autograd.grad(fn(x).sum(), x)[0]?.tolist();
};

describe('masks', () => {
  it('without dims keep an element or none, in a new dim', () => {
    assert.deepEqual(tensor(3).maskedSelect(tensor(false)).shape, [0]);
    assert.deepEqual(tensor(3).maskedSelect(tensor(true)).tolist(), [3]);
    assert.deepEqual(ones([2]).index([tensor(true)]).shape, [1, 2]);
    assert.deepEqual(
      zeros([3])
        .indexPut_([tensor(false)], tensor(9))
        .tolist(),
      [0, 0, 0],
    );
    assert.deepEqual(
      zeros([3])
        .indexPut([tensor(true)], tensor(9))
        .tolist(),
      [9, 9, 9],
    );
    assert.deepEqual(
      zeros([2, 3])
        .indexPut_([null, tensor(true)], tensor(4))
        .tolist(),
      [
        [4, 4, 4],
        [4, 4, 4],
      ],
    );
  });

  it('of maskedSelect are bool', () => {
    assert.throws(
      () => ones([2, 3]).maskedSelect(ints(0, 1, 1)),
      /expected a bool mask, got int64/,
    );
  });

  it('of maskedScatter broadcast, with a source of the same dtype that may be empty where nothing is taken', () => {
    assert.deepEqual(
      tensor([1, 2, 3])
        .maskedScatter(mask(true, false, true).unsqueeze(0), tensor([8, 9]))
        .tolist(),
      [[8, 2, 9]],
    );
    assert.deepEqual(tensor([1, 2]).maskedScatter(mask(false, false), tensor([])).tolist(), [1, 2]);
    assert.throws(
      () => tensor([1, 2]).maskedScatter(mask(false, true), tensor([])),
      /holds no elements/,
    );
    assert.throws(
      () => zeros([1]).maskedScatter(mask(true), ones([1], { dtype: float64 })),
      /source of dtype float32, got float64/,
    );
  });

  it('of attention broadcast to the scores or are refused', () => {
    const [q, v] = [ones([2, 1]), tensor([[1], [2]])];
    assert.throws(
      () =>
        F.scaledDotProductAttention(q, q, v, { attnMask: mask(true, false, false).expand([2, 3]) }),
      /\[2, 3\] does not broadcast to the scores, \[2, 2\]/,
    );
    assert.deepEqual(
      F.scaledDotProductAttention(q, q, v, { attnMask: mask(true, false) }).tolist(),
      [[1], [1]],
    );
  });

  it('that are learned give 0 to a row that sees nothing', () => {
    const attnMask = tensor([
      [0, 0],
      [-Infinity, -Infinity],
    ]).requiresGrad_();
    const q = ones([2, 1]);
    assert.deepEqual(F.scaledDotProductAttention(q, q, tensor([[1], [2]]), { attnMask }).tolist(), [
      [1.5],
      [0],
    ]);
  });
});

describe('attention of 3 dims', () => {
  it('shares heads as attention of 4 dims does', () => {
    const [q, k, v] = [randn([4, 5, 8]), randn([2, 6, 8]), randn([2, 6, 8])];
    const shared = F.scaledDotProductAttention(q, k, v, { enableGqa: true });
    const four = F.scaledDotProductAttention(q.unsqueeze(0), k.unsqueeze(0), v.unsqueeze(0), {
      enableGqa: true,
    });
    assert.ok(shared.allclose(four.squeeze(0)));
    const attnMask = randn([4, 5, 6]);
    const masked = F.scaledDotProductAttention(q, k, v, { enableGqa: true, attnMask });
    const learned = F.scaledDotProductAttention(q, k, v, {
      enableGqa: true,
      attnMask: attnMask.clone().requiresGrad_(),
    });
    assert.ok(masked.allclose(learned, { atol: 1e-6 }));
  });
});

describe('copies', () => {
  it('of repeat and flip are never the memory of the input', () => {
    const x = tensor([1, 2]);
    for (const y of [
      x.repeat(1),
      x.repeat(1, 1),
      x.narrow(0, 0, 1).repeat(3),
      flip(x, []),
      tensor(2).flip([]),
    ])
      y.fill_(7);
    assert.deepEqual(x.tolist(), [1, 2]);
    assert.deepEqual(tensor([5]).repeat(3).add_(1).tolist(), [6, 6, 6]);
    assert.deepEqual(ones([2, 3]).t().repeat(2, 1).shape, [6, 2]);
  });
});

describe('einsum', () => {
  it('takes no diagonal of sizes that differ', () => {
    assert.throws(() => einsum('ii', ones([3, 4])), ShapeError);
    assert.throws(() => einsum('ii', ones([3, 1])), ShapeError);
  });

  it('keeps the order of more than ten dims', () => {
    const x = randn([1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 3, 2]);
    assert.deepEqual(einsum('...', x).shape, x.shape);
  });
});

describe('indices', () => {
  it('of takeAlongDim have the dims of the input', () => {
    assert.throws(() => takeAlongDim(ones([3, 3]), ints(2, 1, 0), 0), /the numbers of dims differ/);
  });

  it('of indexCopy are as many as the slices of the source', () => {
    for (const shape of [
      [3, 2],
      [2, 3],
    ]) {
      assert.throws(
        () => zeros([3, 2]).indexCopy(0, ints(0, 2), ones(shape)),
        /2 indices need a source of shape \[2, 2\]/,
      );
    }
  });

  it('of indexFill count from the end where they are negative', () => {
    assert.deepEqual(zeros([3]).indexFill(0, ints(-1), 3).tolist(), [0, 0, 3]);
  });

  it('of indexAdd are a vector, and alpha a whole number for integers', () => {
    assert.throws(
      () => zeros([3]).indexAdd(0, ints(0).unsqueeze(0), ones([1])),
      /expected a vector of indices/,
    );
    assert.throws(() => ints(1, 2).indexAdd(0, ints(0), ints(1), { alpha: 0.5 }), /whole number/);
  });

  it('of gather may be one for a tensor without dims, or none', () => {
    assert.deepEqual(gather(tensor(3), 0, ints(0)).tolist(), [3]);
    assert.deepEqual(gather(ones([2, 2]), 0, ints()).shape, [0]);
    assert.throws(() => tensor(3).indexSelect(0, ints(0, 0)), /one element, got 2 indices/);
  });

  it('that share a place are combined in a known way', () => {
    assert.throws(
      () => zeros([3]).scatterReduce(0, ints(0, 0), ones([2]), 'x' as never),
      /expected reduce to be one of/,
    );
    assert.throws(
      () => zeros([3]).scatter(0, ints(0, 0), ones([2]), { reduce: 'x' as never }),
      /expected reduce to be one of/,
    );
  });

  it('of the diagonal of three dims are equal', () => {
    const filled = zeros([3, 3, 3]).fillDiagonal_(1);
    assert.equal(filled.sum().item(), 3);
    assert.deepEqual(
      [0, 1, 2].map((i) => filled.select(0, i).select(0, i).select(0, i).item()),
      [1, 1, 1],
    );
    assert.throws(() => zeros([3, 3, 2]).fillDiagonal_(1), ShapeError);
  });
});

describe('ranges', () => {
  it('of powers are exact, of any dtype, and of negative bases', () => {
    assert.deepEqual(logspace(0, 1, 2, { dtype: float64 }).tolist(), [1, 10]);
    assert.deepEqual(logspace(0, 2, 3, { base: -2 }).tolist(), [1, -2, 4]);
    const integers = logspace(0, 2, 3, { dtype: int64 });
    assert.deepEqual([integers.dtype, integers.tolist()], [int64, [1, 10, 100]]);
  });

  it('whose step is 0 in the dtype are refused', () => {
    assert.throws(() => arange(0, 2, 0.5, { dtype: int64 }), /a step of 0.5 is 0 in int64/);
  });

  it('in random order have the dtype that is asked for, if it holds them', () => {
    const order = randperm(3, { dtype: float32, requiresGrad: true });
    assert.deepEqual([order.dtype, order.requiresGrad], [float32, true]);
    assert.throws(() => randperm(300, { dtype: int8 }), /randperm: int8 does not hold/);
    assert.throws(() => randperm(-1), /randperm: expected n/);
  });

  it('of random_ end at its only argument', () => {
    const drawn = zeros([200], { dtype: int64 }).random_(3).tolist() as number[];
    assert.deepEqual([...new Set(drawn)].sort(), [0, 1, 2]);
    assert.throws(() => zeros([3]).random_(5, 2), /expected low < high/);
  });
});

describe('activations', () => {
  it('keep NaN, and are exact for large arguments', () => {
    assert.ok(Number.isNaN(F.threshold(tensor(Number.NaN), 0, 5).item()));
    const far = tensor(-21, { dtype: float64 });
    assert.equal(F.logsigmoid(far).item(), -21 - Math.log1p(Math.exp(-21)));
  });

  it('with hard bounds have no gradient at them', () => {
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

  it('refuse options and dtypes without meaning', () => {
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

describe('losses', () => {
  it('of probabilities 0 and 1 have finite gradients', () => {
    const x = tensor([0, 1, 0]).requiresGrad_();
    const [g] = autograd.grad(F.binaryCrossEntropy(x, tensor([0, 1, 1]), { reduction: 'sum' }), x);
    const slopes = g?.tolist() as number[];
    assert.deepEqual(slopes.slice(0, 2), [1, -1]);
    assert.ok((slopes[2] as number) < -9e11);
  });

  it('take targets in the shape of the input', () => {
    assert.throws(
      () => F.binaryCrossEntropy(ones([2, 1]), ones([2])),
      /binaryCrossEntropy: expected a target in the shape/,
    );
    assert.throws(
      () => F.binaryCrossEntropyWithLogits(ones([2, 1]), ones([2])),
      /binaryCrossEntropyWithLogits: expected a target in the shape/,
    );
  });

  it('take a weight for each class', () => {
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

  it('of nothing are NaN', () => {
    assert.ok(Number.isNaN(F.crossEntropy(randn([0, 4]), randn([0, 4])).item()));
  });

  it('of cosines are 0 for targets that are neither 1 nor -1', () => {
    const losses = F.cosineEmbeddingLoss(ones([3, 2]), ones([3, 2]), tensor([1, -1, 0]), {
      reduction: 'none',
    });
    assert.ok(losses.allclose(tensor([0, 1, 0]), { atol: 1e-6 }));
  });
});

describe('statistics', () => {
  it('of equal values have a gradient of 0', () => {
    assert.deepEqual(
      gradient((x) => stdMean(x)[0], [2, 2, 2]),
      [0, 0, 0],
    );
  });

  it('of integers sum in the dtype that is asked for', () => {
    assert.equal(ints(1, 2).sum(null, { dtype: int8 }).dtype, int8);
    assert.equal(ints(1, 2).prod(null, { dtype: int8 }).dtype, int8);
  });

  it('count over the range of the data where the bounds are equal', () => {
    assert.deepEqual(histc(tensor([5, 6]), 2, { min: 5, max: 5 }).tolist(), [1, 1]);
  });

  it('count with weights as many as the numbers, in floating point', () => {
    assert.throws(
      () => bincount(ints(0, 2), tensor([1, 2, 3])),
      /expected weights of shape \[2\], got \[3\]/,
    );
    const counted = bincount(ints(0, 2), ints(1, 2));
    assert.deepEqual([counted.dtype, counted.tolist()], [float64, [1, 0, 2]]);
  });

  it('find NaN at the end of what is sorted', () => {
    for (const right of [false, true])
      assert.equal(
        searchsorted(tensor([1, 3, Number.NaN]), tensor(Number.NaN), { right }).item(),
        3,
      );
  });
});

describe('arithmetic', () => {
  it('of infinite legs is infinite, beside NaN too', () => {
    assert.equal(
      hypot(tensor(Number.POSITIVE_INFINITY), tensor(Number.NaN)).item(),
      Number.POSITIVE_INFINITY,
    );
    assert.equal(hypot(tensor(3), tensor(4)).item(), 5);
  });

  it('bounds integers by fractions in floating point, and not in place', () => {
    assert.deepEqual(ints(3, -4, 5).clamp({ min: 0.5, max: 2.5 }).tolist(), [2.5, 0.5, 2.5]);
    assert.deepEqual(ints(3, -4).clamp({ max: 2n }).tolist(), [2, -4]);
    assert.throws(
      () => ints(1).clamp_({ min: tensor(0.5) }),
      /clamp_: a float32 result cannot be written/,
    );
    assert.throws(() => ints(1).clamp_({ min: 0.5 }), /clamp_: a float32 result cannot be written/);
  });

  it('of integers takes no fractions', () => {
    assert.throws(
      () => ints(1).addcmul(ints(1), ints(1), { value: 0.5 }),
      /the value 0.5 is no integer/,
    );
  });

  it('rounds in known ways alone', () => {
    assert.throws(
      () => ones([1]).div(2, { roundingMode: 'ceil' as never }),
      /expected roundingMode to be one of/,
    );
    assert.throws(() => ones([1]).div(2, 'floor' as never), /roundingMode/);
  });

  it('sums to sizes that it can have been broadcast from', () => {
    assert.throws(() => ones([2, 3]).sumToSize([4, 3]), ShapeError);
    assert.throws(() => ones([3]).sumToSize([2, 3]), ShapeError);
    assert.deepEqual(ones([2, 3]).sumToSize([1, 3]).tolist(), [[2, 2, 2]]);
  });

  it('of batches takes batches of one size', () => {
    assert.throws(
      () => zeros([1]).baddbmm(ones([1, 2, 3]), ones([4, 3, 2])),
      /batches of one size/,
    );
  });
});

describe('what would leave the range of a dtype', () => {
  it('is refused as a bound of integers, and computed in floating point for gradients', () => {
    assert.throws(
      () => tensor([5, 200], { dtype: uint8 }).clamp({ min: 300, max: 1000 }),
      /uint8 does not hold the bound 300/,
    );
    const x = tensor([2.5], { dtype: float64, requiresGrad: true });
    const [g] = autograd.grad(atan2(tensor([100000], { dtype: int64 }).int(), x), x);
    assert.ok(Math.abs((g?.item() as number) + 1e-5) < 1e-9);
    assert.throws(() => histc(tensor([Number.NaN, 1, 2]), 3), /is not finite/);
  });
});

describe('norms of few or small values', () => {
  it("are PyTorch's", () => {
    assert.throws(() => F.groupNorm(tensor([[1, 2]]), 2), /more than one value for each group/);
    const loss = F.cosineEmbeddingLoss(tensor([[1e-6, 0]]), tensor([[1, 0]]), tensor([1]));
    assert.ok(Math.abs(loss.item() - 0.29289) < 1e-4);
  });
});

describe('pad', () => {
  it('takes no more away than there is', () => {
    assert.throws(() => F.pad(tensor([1, 2, 3]), [-4, 4]), /take more than all of dim 0/);
    assert.deepEqual(F.pad(tensor([1, 2, 3]), [-2, 1]).tolist(), [3, 0]);
  });

  it('knows its modes', () => {
    assert.throws(
      () => F.pad(ones([3]), [1, 1], { mode: 'x' as never }),
      /expected mode to be one of/,
    );
  });
});

describe('gradients at the places where formulas meet', () => {
  it('are those of one of the sides, or between them', () => {
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

  it('are shared, or given to one, at ties as in PyTorch', () => {
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

  it('are finite where one of the sides is infinite', () => {
    const x = tensor([Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY]).requiresGrad_();
    const [g] = autograd.grad(F.smoothL1Loss(x, zeros([2]), { reduction: 'sum' }), x);
    assert.deepEqual(g?.tolist(), [1, -1]);
  });
});
