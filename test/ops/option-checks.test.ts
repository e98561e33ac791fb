/** Ops refuse wrong dtypes and options, as PyTorch does, instead of converting them. */
import assert from 'node:assert/strict';
import {
  ArgumentError,
  bernoulli,
  bool,
  compile,
  float16,
  float64,
  heaviside,
  hsplit,
  int64,
  nn,
  ones,
  optim,
  rand,
  randn,
  randnLike,
  rsub,
  ShardwiseError,
  type Tensor,
  tensor,
  trilIndices,
  vsplit,
  zeros,
  zerosLike,
} from '../../lib/index.js';

const { functional: F } = nn;
const ints = (...values: number[]): Tensor => tensor(values, { dtype: int64 });
const mask = (...values: boolean[]): Tensor => tensor(values, { dtype: bool });

describe('dtype options', () => {
  it('accept only the ten dtypes in every function', () => {
    const name = 'float33' as never;
    const calls = [
      () => tensor([1], { dtype: name }),
      () => randn([2], { dtype: name }),
      () => ones([1]).to({ dtype: name }),
      () => ones([1]).type(name),
      () => ones([1]).sum(null, { dtype: name }),
    ];
    for (const fn of calls)
      assert.throws(
        fn,
        /: expected dtype to be one of float32, float64, float16, bfloat16, int64, int32, int16, int8, uint8, bool, got 'float33'/,
      );
  });

  it('must be floating for uniform and normal numbers', () => {
    assert.throws(
      () => randn([2], { dtype: int64 }),
      /randn: expected a floating point dtype, got int64/,
    );
    assert.throws(
      () => zeros([2], { dtype: int64 }).uniform_(),
      /uniform_: expected a floating point dtype/,
    );
  });

  it('must be equal for the operands of heaviside, and not bool for rsub', () => {
    assert.throws(() => heaviside(tensor([1, 0]), ints(3)), /float32 and int64/);
    assert.throws(() => rsub(mask(true), mask(true)), ShardwiseError);
    assert.deepEqual(rsub(ints(1, 2), 5, { alpha: 2 }).tolist(), [3, 1]);
  });

  it('are kept by functions that normalise', () => {
    const x = randn([2, 4]).to(float16);
    assert.equal(F.batchNorm(x, zeros([4]), ones([4]), { weight: ones([4]) }).dtype, float16);
    assert.equal(F.groupNorm(x, 2, ones([4]), ones([4])).dtype, float16);
  });
});

describe('options of ops', () => {
  it('are checked when they are given by position', () => {
    const x = ones([2, 2]);
    for (const fn of [
      () => x.max(1, 2 as never),
      () => x.kthvalue(1, 1, 2 as never),
      () => x.median(1, 2 as never),
    ]) {
      assert.throws(fn, /keepdim to be true or false, got 2/);
    }
  });

  it('are refused under unknown names by functions, layers and optimizers', () => {
    const x = ones([2, 3]);
    const misspelt = [
      () => F.gelu(x, { aproximate: 'tanh' } as never),
      () => x.sum(0, { keepDim: true } as never),
      () => x.clamp({ minimum: 1 } as never),
      () => zerosLike(x, { dtyp: int64 } as never),
      () => rand([2], { seed: 1 } as never),
      () => randnLike(x, { mean: 1 } as never),
      () => bernoulli(x, { p: 0.5 } as never),
      () => compile((t: Tensor) => t, { fullGraph: true } as never),
      () => new nn.Linear(2, 3, { bais: false } as never),
      () => new nn.LayerNorm(3, { epsilon: 1 } as never),
      () => F.crossEntropy(x, ints(0, 1), { labelsmoothing: 0.1 } as never),
      () => new optim.SGD([ones([1]).requiresGrad_()], { learningRate: 1 } as never),
    ];
    for (const fn of misspelt) assert.throws(fn, /there is no option/);
  });

  it('may stand in the place of a dim, like keyword arguments in PyTorch', () => {
    const x = tensor([
      [3, 1],
      [2, 4],
    ]);
    assert.equal(x.sum({ dtype: float64 }).dtype, float64);
    assert.deepEqual(x.sum({ keepdim: true }).shape, [1, 1]);
    assert.equal(x.var({ correction: 0 }).item(), 1.25);
    assert.deepEqual(x.argmax({ keepdim: true }).tolist(), [[3]]);
    assert.deepEqual(x.sort({ descending: true }).values.tolist(), [
      [3, 1],
      [4, 2],
    ]);
    assert.deepEqual(x.topk(1, { largest: false }).values.tolist(), [[1], [2]]);
    assert.deepEqual(x.quantile(0.5, { interpolation: 'lower', keepdim: true }).tolist(), [[2]]);
    assert.deepEqual(x.norm(1, { keepdim: true }).tolist(), [[10]]);
    assert.deepEqual(x.mul(0).norm({ keepdim: true }).tolist(), [[0]]);
    assert.deepEqual(x.nansum({ keepdim: true }).tolist(), [[10]]);
    assert.equal(x.long().nansum({ dtype: float64 }).dtype, float64);
    assert.deepEqual(x.nanmean({ keepdim: true }).tolist(), [[2.5]]);
    assert.deepEqual(x.kthvalue(2, { keepdim: true }).values.tolist(), [[3], [4]]);
  });

  it('are refused if an option belongs to another form of the call', () => {
    assert.throws(() => ones([2]).norm('nuc' as never), /expected p to be a number or 'fro'/);
    assert.throws(
      () => ones([2]).quantile(0.5, 0, { interpolation: 'x' as never }),
      /expected interpolation to be one of/,
    );
    assert.throws(() => ones([2]).fill_(ones([2])), /Use copy_/);
  });
});

describe('a result that would be too large', () => {
  it('is refused before it fills the memory', () => {
    const endless = [
      () => trilIndices(1e9, 1e9),
      () => ones([1e9, 0]).unbind(),
      () => ones([1e9, 0]).split(1),
      () => ones([1e9, 0]).tolist(),
      () => ones([2]).tensorSplit(1e9),
    ];
    for (const fn of endless) assert.throws(fn, ArgumentError);
    assert.equal(String(zeros([1e9, 0])), 'tensor([], size=[1000000000, 0])');
  });
});

describe('batchNorm in low precision', () => {
  it('computes in float32', () => {
    const x = randn([64, 2]).mul(2).add(300);
    const expected = F.batchNorm(x.to(float16).float(), null, null, { training: true });
    const given = F.batchNorm(x.to(float16), null, null, { training: true });
    assert.equal(given.dtype, float16);
    assert.ok(given.float().allclose(expected, { atol: 2e-3, rtol: 1e-3 }));
  });
});

describe('hsplit and vsplit', () => {
  it('return equal chunks, and vsplit needs at least two dims', () => {
    assert.throws(() => hsplit(ones([5]), 2), /does not divide into 2 equal parts/);
    assert.throws(() => vsplit(ones([4]), 2), /at least 2 dims/);
    assert.deepEqual(
      hsplit(ones([5]), [2]).map((t) => t.shape[0]),
      [2, 3],
    );
  });
});
