/** Pointwise compositions and losses at points that are easy to get wrong. */
import assert from 'node:assert/strict';
import {
  ArgumentError,
  absolute,
  asTensor,
  bfloat16,
  binaryCrossEntropy,
  binaryCrossEntropyWithLogits,
  clip,
  concat,
  cosineSimilarity,
  DtypeError,
  finfo,
  float16,
  float32,
  float64,
  fmax,
  fromBlob,
  getRngState,
  gumbelSoftmax,
  heaviside,
  hypot,
  iinfo,
  int8,
  int16,
  int64,
  isTensor,
  klDiv,
  logaddexp,
  logspace,
  manualSeed,
  nanToNum,
  nn,
  normal,
  ones,
  rand,
  randintLike,
  resultType,
  ShapeError,
  setRngState,
  smoothL1Loss,
  type Tensor,
  tensor,
  uint8,
  xlogy,
  zeros,
} from '../../lib/index.js';

const { POSITIVE_INFINITY: inf, NaN: nan } = Number;
const values = (t: Tensor): unknown => t.tolist();
const near = (t: Tensor, expected: number[], tolerance = 1e-6): void => {
  const got = t.reshape(-1).tolist() as number[];
  assert.equal(got.length, expected.length);
  got.forEach((v, i) =>
    assert.ok(
      Math.abs(v - (expected[i] as number)) <=
        tolerance * Math.max(1, Math.abs(expected[i] as number)),
      `${i}: ${v}, expected ${expected[i]}`,
    ),
  );
};

describe('pointwise compositions', () => {
  it('nanToNum replaces NaN and infinities', () => {
    assert.deepEqual(values(nanToNum(tensor([nan, inf, -inf, 2]), { nan: 1, posinf: 5 })), [
      1,
      5,
      -finfo(float32).max,
      2,
    ]);
    assert.deepEqual(values(tensor([inf], { dtype: float16 }).nanToNum()), [65504]);
  });

  it('logaddexp and hypot are correct for distant numbers and infinities', () => {
    near(logaddexp(tensor([1000, -1000]), tensor([1000, 0])), [1000 + Math.LN2, 0]);
    assert.deepEqual(values(logaddexp(tensor([inf, -inf]), tensor([inf, -inf]))), [inf, -inf]);
    near(hypot(tensor([3e20, 0]), tensor([4e20, 0])), [5e20, 0]);
  });

  it('xlogy is 0 at 0, fmax ignores NaN, and heaviside steps', () => {
    assert.deepEqual(values(xlogy(tensor([0, 1]), tensor([0, 1]))), [0, 0]);
    assert.deepEqual(values(xlogy(0, tensor([nan, inf]))), [nan, 0]);
    const x = zeros([2], { requiresGrad: true });
    xlogy(x, tensor([Math.E, 0]))
      .sum()
      .backward();
    near(x.grad as Tensor, [1, 0]);
    assert.deepEqual(values(fmax(tensor([nan, 1]), tensor([2, nan]))), [2, 1]);
    assert.deepEqual(values(heaviside(tensor([-1, 0, 2]), tensor([0.5]))), [0, 0.5, 1]);
  });

  it('activations have their values at hand-checked points', () => {
    near(tensor([-4, 0, 4]).hardswish(), [0, 0, 4]);
    near(tensor([1]).mish(), [Math.tanh(Math.log1p(Math.E))]);
    near(tensor([1, -1]).selu(), [
      1.0507009873554805,
      1.0507009873554805 * 1.6732632423543772 * Math.expm1(-1),
    ]);
    near(tensor([-1]).celu({ alpha: 2 }), [2 * Math.expm1(-0.5)]);
    near(tensor([2, 0]).glu(), [1]);
    near(tensor([-100]).logsigmoid(), [-100]);
    near(tensor([-2, 2]).prelu(tensor([0.25])), [-0.5, 2]);
    near(tensor([-2, 0.2, 2]).softshrink(), [-1.5, 0, 1.5]);
    assert.throws(() => ones([3]).glu(), ShapeError);
  });

  it('gumbelSoftmax with hard returns one 1 and has a gradient', () => {
    const logits = zeros([4, 3], { requiresGrad: true });
    const drawn = gumbelSoftmax(logits, { hard: true });
    near(drawn.sum(-1), [1, 1, 1, 1]);
    near(drawn.amax(-1), [1, 1, 1, 1]);
    drawn
      .mul(tensor([1, 2, 3]))
      .sum()
      .backward();
    assert.notEqual(logits.grad?.abs().sum().item(), 0);
  });

  it('losses equal their formulas', () => {
    near(smoothL1Loss(tensor([0, 0]), tensor([0.5, 3]), { reduction: 'none' }), [0.125, 2.5]);
    near(
      nn.functional.huberLoss(tensor([0, 0]), tensor([0.5, 3]), { delta: 2, reduction: 'none' }),
      [0.125, 4],
    );
    near(klDiv(tensor([0.5, 0.5]).log(), tensor([1, 0]), { reduction: 'sum' }), [Math.LN2]);
    near(binaryCrossEntropy(tensor([1, 0.5]), tensor([0, 1]), { reduction: 'none' }), [
      100,
      Math.LN2,
    ]);
    near(binaryCrossEntropyWithLogits(tensor([0]), tensor([1]), { posWeight: tensor([3]) }), [
      3 * Math.LN2,
    ]);
    near(binaryCrossEntropyWithLogits(tensor([-200]), tensor([1])), [200]);
    near(cosineSimilarity(tensor([[1, 0]]), tensor([[1, 1]])), [Math.SQRT1_2]);
    assert.throws(() => smoothL1Loss(ones([1]), ones([1]), { beta: -1 }), ArgumentError);
  });

  it('aliases are the same functions', () => {
    assert.deepEqual(values(absolute(tensor([-1]))), [1]);
    assert.deepEqual(values(clip(tensor([-1]), { min: 0 })), [0]);
    assert.deepEqual(values(concat([tensor([1]), tensor([2])])), [1, 2]);
    assert.equal(ones([1]).multiply, ones([1]).mul);
  });
});

describe('creation, dtypes and random state:', () => {
  it('fromBlob shares the memory of a typed array', () => {
    const data = new Float32Array([1, 2, 3, 4]);
    const t = fromBlob(data, [2, 2]);
    t.mul_(10);
    assert.equal(t.sum().item(), 100);
    assert.deepEqual([...data], [10, 20, 30, 40]);
    assert.throws(() => fromBlob(data, [3]), ShapeError);
    assert.equal(asTensor(t), t);
    assert.equal(asTensor(new Int16Array([1])).dtype, int16);
    assert.equal(asTensor([1], { dtype: int64 }).dtype, int64);
  });

  it('finfo and iinfo return the limits of dtypes', () => {
    assert.deepEqual(
      [finfo(float16).max, finfo(float16).tiny, finfo(bfloat16).eps],
      [65504, 2 ** -14, 2 ** -7],
    );
    assert.deepEqual([finfo(float64).max, finfo(float64).eps], [Number.MAX_VALUE, Number.EPSILON]);
    assert.deepEqual(
      [iinfo(int8).min, iinfo(uint8).max, iinfo(int64).max],
      [-128, 255, 9223372036854775807n],
    );
    assert.throws(() => finfo(int8), DtypeError);
    assert.throws(() => iinfo(float32), DtypeError);
  });

  it('every dtype shorthand converts', () => {
    const t = tensor([1.5]);
    assert.deepEqual(
      [
        t.short().dtype,
        t.char().dtype,
        t.typeAs(ones([1]).double()).dtype,
        t.type(),
        t.type(int64).dtype,
      ],
      [int16, int8, float64, float32, int64],
    );
    assert.equal(t.to('cpu', float16).dtype, float16);
    assert.equal(resultType(t, 1), float32);
    assert.equal(isTensor(t) && t.isSigned() && t.isCpu && !t.isCuda, true);
    assert.equal(t.itemsize, 4);
  });

  it('a saved random state draws the same numbers again', () => {
    manualSeed(3);
    const state = getRngState();
    const first = values(rand([4]));
    setRngState(state);
    assert.deepEqual(values(rand([4])), first);
  });

  it('random functions draw in the requested shapes and ranges', () => {
    manualSeed(1);
    assert.deepEqual(randintLike(zeros([2, 3], { dtype: int64 }), 0, 5).shape, [2, 3]);
    const spread = normal(tensor([0, 100]), 1);
    assert.ok(Math.abs((spread.select(0, 1).item() as number) - 100) < 10);
    const waits = zeros([2000]).exponential_(4);
    assert.ok(
      Math.abs((waits.mean().item() as number) - 0.25) < 0.03 &&
        (waits.amin().item() as number) >= 0,
    );
    const whole = zeros([50], { dtype: int8 }).random_();
    assert.ok((whole.amin().item() as number) >= 0 && (whole.amax().item() as number) <= 127);
    near(logspace(0, 2, 3), [1, 10, 100], 1e-4);
  });
});
