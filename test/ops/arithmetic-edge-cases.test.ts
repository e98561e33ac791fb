/** Ranges, statistics and arithmetic at the edges of dtypes. Values of PyTorch 1.13 and 2.11. */
import assert from 'node:assert/strict';
import {
  arange,
  atan2,
  autograd,
  bincount,
  float32,
  float64,
  histc,
  hypot,
  int8,
  int64,
  logspace,
  ones,
  randperm,
  ShapeError,
  searchsorted,
  stdMean,
  type Tensor,
  tensor,
  uint8,
  zeros,
} from '../../lib/index.js';

const ints = (...values: number[]): Tensor => tensor(values, { dtype: int64 });
const gradient = (fn: (x: Tensor) => Tensor, values: number[]): unknown => {
  const x = tensor(values, { requiresGrad: true });
  return autograd.grad(fn(x).sum(), x)[0]?.tolist();
};

describe('numeric ranges', () => {
  it('from logspace are exact for every dtype and for negative bases', () => {
    assert.deepEqual(logspace(0, 1, 2, { dtype: float64 }).tolist(), [1, 10]);
    assert.deepEqual(logspace(0, 2, 3, { base: -2 }).tolist(), [1, -2, 4]);
    const integers = logspace(0, 2, 3, { dtype: int64 });
    assert.deepEqual([integers.dtype, integers.tolist()], [int64, [1, 10, 100]]);
  });

  it('from arange are refused if the step is 0 in the dtype', () => {
    assert.throws(() => arange(0, 2, 0.5, { dtype: int64 }), /a step of 0.5 is 0 in int64/);
  });

  it('from randperm have the requested dtype, if it can hold them', () => {
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

describe('statistics', () => {
  it('of equal values have gradient 0', () => {
    assert.deepEqual(
      gradient((x) => stdMean(x)[0], [2, 2, 2]),
      [0, 0, 0],
    );
  });

  it('of integers sum in the requested dtype', () => {
    assert.equal(ints(1, 2).sum(null, { dtype: int8 }).dtype, int8);
    assert.equal(ints(1, 2).prod(null, { dtype: int8 }).dtype, int8);
  });

  it('of histc cover the range of the data if its bounds are equal', () => {
    assert.deepEqual(histc(tensor([5, 6]), 2, { min: 5, max: 5 }).tolist(), [1, 1]);
  });

  it('of bincount require as many weights as numbers, and are floating', () => {
    assert.throws(
      () => bincount(ints(0, 2), tensor([1, 2, 3])),
      /expected weights of shape \[2\], got \[3\]/,
    );
    const counted = bincount(ints(0, 2), ints(1, 2));
    assert.deepEqual([counted.dtype, counted.tolist()], [float64, [1, 0, 2]]);
  });

  it('of searchsorted sort NaN last', () => {
    for (const right of [false, true])
      assert.equal(
        searchsorted(tensor([1, 3, Number.NaN]), tensor(Number.NaN), { right }).item(),
        3,
      );
  });
});

describe('arithmetic at the edges', () => {
  it('gives hypot of infinity and NaN as infinity', () => {
    assert.equal(
      hypot(tensor(Number.POSITIVE_INFINITY), tensor(Number.NaN)).item(),
      Number.POSITIVE_INFINITY,
    );
    assert.equal(hypot(tensor(3), tensor(4)).item(), 5);
  });

  it('clamps integers to fractions in floating point, but not in place', () => {
    assert.deepEqual(ints(3, -4, 5).clamp({ min: 0.5, max: 2.5 }).tolist(), [2.5, 0.5, 2.5]);
    assert.deepEqual(ints(3, -4).clamp({ max: 2n }).tolist(), [2, -4]);
    assert.throws(
      () => ints(1).clamp_({ min: tensor(0.5) }),
      /clamp_: a float32 result cannot be written/,
    );
    assert.throws(() => ints(1).clamp_({ min: 0.5 }), /clamp_: a float32 result cannot be written/);
  });

  it('refuses a fractional value in addcmul of integers', () => {
    assert.throws(
      () => ints(1).addcmul(ints(1), ints(1), { value: 0.5 }),
      /the value 0.5 is no integer/,
    );
  });

  it('refuses unknown rounding modes', () => {
    assert.throws(
      () => ones([1]).div(2, { roundingMode: 'ceil' as never }),
      /expected roundingMode to be one of/,
    );
    assert.throws(() => ones([1]).div(2, 'floor' as never), /roundingMode/);
  });

  it('sums only to sizes that broadcast to the shape', () => {
    assert.throws(() => ones([2, 3]).sumToSize([4, 3]), ShapeError);
    assert.throws(() => ones([3]).sumToSize([2, 3]), ShapeError);
    assert.deepEqual(ones([2, 3]).sumToSize([1, 3]).tolist(), [[2, 2, 2]]);
  });

  it('refuses baddbmm of batches of different sizes', () => {
    assert.throws(
      () => zeros([1]).baddbmm(ones([1, 2, 3]), ones([4, 3, 2])),
      /batches of one size/,
    );
  });
});

describe('values out of the range of a dtype', () => {
  it('are refused as bounds of integers, and computed in floating point for gradients', () => {
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
