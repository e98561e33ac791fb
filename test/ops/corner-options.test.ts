/** Dtypes and options that ops refuse, as PyTorch does, instead of making something of them. */
import assert from 'node:assert/strict';
import { bool, float16, heaviside, hsplit, int64, nn, ones, randn, rsub, ShardwiseError, type Tensor, tensor, vsplit, zeros } from '../../lib/index.js';

const { functional: F } = nn;
const ints = (...values: number[]): Tensor => tensor(values, { dtype: int64 });
const mask = (...values: boolean[]): Tensor => tensor(values, { dtype: bool });

describe('dtypes', () => {
  it('are the exported constants, wherever one is given', () => {
    const name = 'float32' as never;
    const calls = [
      () => tensor([1], { dtype: name }),
      () => randn([2], { dtype: name }),
      () => ones([1]).to({ dtype: name }),
      () => ones([1]).type(name),
      () => ones([1]).sum(null, { dtype: name }),
    ];
    for (const fn of calls) assert.throws(fn, /expected dtype to be one of the exported constants, such as float32, got string float32/);
  });

  it('of uniform and normal numbers are floating', () => {
    assert.throws(() => randn([2], { dtype: int64 }), /randn: expected a floating point dtype, got int64/);
    assert.throws(() => zeros([2], { dtype: int64 }).uniform_(), /uniform_: expected a floating point dtype/);
  });

  it('of heaviside are equal, and rsub knows no bools', () => {
    assert.throws(() => heaviside(tensor([1, 0]), ints(3)), /float32 and int64/);
    assert.throws(() => rsub(mask(true), mask(true)), ShardwiseError);
    assert.deepEqual(rsub(ints(1, 2), 5, { alpha: 2 }).tolist(), [3, 1]);
  });

  it('of normalised tensors stay', () => {
    const x = randn([2, 4]).to(float16);
    assert.equal(F.batchNorm(x, zeros([4]), ones([4]), { weight: ones([4]) }).dtype, float16);
    assert.equal(F.groupNorm(x, 2, ones([4]), ones([4])).dtype, float16);
  });
});

describe('options', () => {
  it('are no arguments of their own', () => {
    const x = ones([2, 2]);
    for (const fn of [() => x.max(1, true as never), () => x.kthvalue(1, 1, true as never), () => x.median(1, true as never)]) {
      assert.throws(fn, /options to be an object, got true/);
    }
  });

  it('of one kind are refused among others', () => {
    assert.throws(() => ones([2]).norm('nuc' as never), /expected p to be a number or 'fro'/);
    assert.throws(() => ones([2]).quantile(0.5, 0, { interpolation: 'x' as never }), /expected interpolation to be one of/);
    assert.throws(() => ones([2]).fill_(ones([2])), /Use copy_/);
  });
});

describe('hsplit and vsplit', () => {
  it('give equal parts, vsplit of two dims at least', () => {
    assert.throws(() => hsplit(ones([5]), 2), /does not divide into 2 equal parts/);
    assert.throws(() => vsplit(ones([4]), 2), /at least 2 dims/);
    assert.deepEqual(
      hsplit(ones([5]), [2]).map((t) => t.shape[0]),
      [2, 3],
    );
  });
});
