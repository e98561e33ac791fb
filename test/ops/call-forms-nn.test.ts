/** Call forms of nn.functional, arithmetic and random numbers. */
import assert from 'node:assert/strict';
import {
  cat,
  float32,
  manualSeed,
  multinomial,
  nn,
  normal,
  ones,
  rand,
  randint,
  randn,
  type Tensor,
  tensor,
} from '../../lib/index.js';
import { type CallForms, f64, itGivesTheSame, x, y } from './call-forms.js';

const F = nn.functional;

const calls: CallForms = {
  'pad(x, p, "reflect")': [
    '[[1,3,1,2]]',
    () => F.pad(x.narrow(0, 0, 1), [1, 0], 'reflect'),
    () => F.pad(x.narrow(0, 0, 1), { pad: [1, 0], mode: 'reflect' }),
  ],
  'pad(x, p, value=7)': [
    '[[7,3,1,2]]',
    () => F.pad(x.narrow(0, 0, 1), [1, 0], 'constant', 7),
    () => F.pad(x.narrow(0, 0, 1), [1, 0], { value: 7 }),
  ],
  'normalize(x, 1, 1)': [
    '[[0.5,0.16666666666666666,0.3333333333333333]]',
    () => F.normalize(x.narrow(0, 0, 1), 1, 1),
    () => F.normalize(x.narrow(0, 0, 1), { p: 1, dim: 1 }),
  ],
  'leaky_relu(x, 0.5)': [
    '[-1,1]',
    () => F.leakyRelu(tensor([-2, 1]), 0.5),
    () => tensor([-2, 1]).leakyRelu({ negativeSlope: 0.5 }),
    () => tensor([-2, 1]).leakyRelu_(0.5),
  ],
  'hardtanh(x, -2, 2)': [
    '[-2,2]',
    () => F.hardtanh(tensor([-3, 3]), -2, 2),
    () => F.hardtanh(tensor([-3, 3]), { minVal: -2, maxVal: 2 }),
  ],
  'softplus(x, 1, 0)': [
    '[1,2]',
    () => F.softplus(tensor([1, 2]), 1, 0),
    () => F.softplus(tensor([1, 2]), { threshold: 0 }),
  ],
  'elu(x, 0)': [
    '[0,1]',
    () => F.elu(tensor([-1, 1]), 0).abs(),
    () => F.elu(tensor([-1, 1]), { alpha: 0 }).abs(),
  ],
  'glu(x, dim=0)': [
    '[[1.5,0.5,1]]',
    () => F.glu(cat([x.narrow(0, 0, 1), x.narrow(0, 0, 1).mul(0)]), 0),
    () => F.glu(cat([x.narrow(0, 0, 1), x.narrow(0, 0, 1).mul(0)]), { dim: 0 }),
  ],
  'huber_loss(a, b, "sum", 2)': [
    '0.5',
    () => F.huberLoss(tensor([1]), tensor([2]), 'sum', 2),
    () => F.huberLoss(tensor([1]), tensor([2]), { reduction: 'sum', delta: 2 }),
  ],
  'mse_loss(reduction="sum")': [
    '4',
    () => F.mseLoss(tensor([0]), tensor([2]), { reduction: 'sum' }),
    () => F.mseLoss(tensor([0]), { target: tensor([2]) }),
  ],
  'embedding(i, w, 0)': [
    '[[1,1,1]]',
    () => F.embedding(tensor([0n]), y, 0),
    () => F.embedding(tensor([0n]), y, { paddingIdx: 0 }),
    () => F.embedding(tensor([0n]), { weight: y, paddingIdx: 0 }),
  ],
  'addmm(c, a, b, beta=2)': [
    '[[8]]',
    () => ones([1, 1]).addmm(ones([1, 6]), ones([6, 1]), { beta: 2 }),
    () => ones([1, 1]).addmm({ mat1: ones([1, 6]), mat2: ones([6, 1]), beta: 2 }),
  ],
  'lerp(end=y, weight=1)': [
    '[[1,1,1],[2,2,2]]',
    () => x.lerp(y, 1),
    () => x.lerp({ end: y, weight: 1 }),
  ],
  'nan_to_num(1, 2)': [
    '[1,2]',
    () => tensor([Number.NaN, Number.POSITIVE_INFINITY]).nanToNum(1, 2),
    () => tensor([Number.NaN, Number.POSITIVE_INFINITY]).nanToNum({ nan: 1, posinf: 2 }),
  ],
};

/** Random functions, which draw the same numbers in every form. */
const drawn: Record<string, (() => Tensor)[]> = {
  'multinomial(w, 3, True)': [
    () => multinomial(tensor([1, 2]), 3, true),
    () => multinomial(tensor([1, 2]), 3, { replacement: true }),
    () => tensor([1, 2]).multinomial({ numSamples: 3, replacement: true }),
  ],
  'rand(2, 3)': [() => rand(2, 3), () => rand([2, 3]), () => rand({ size: [2, 3] })],
  'randn(2, 3)': [() => randn(2, 3), () => randn([2, 3]), () => randn(2, 3, { dtype: float32 })],
  'randint(0, 9, (4,))': [
    () => randint(0, 9, [4]),
    () => randint(9, [4]),
    () => randint({ high: 9, size: [4] }),
  ],
  'normal(0, 1, (2,))': [
    () => normal(0, 1, [2]),
    () => normal(0, 1, { size: [2] }),
    () => randn(2),
  ],
  'dropout(x, 0.5, True)': [
    () => F.dropout(x, 0.5, true),
    () => F.dropout(x, { p: 0.5, training: true }),
  ],
  'gumbel_softmax(x, 1, True)': [
    () => F.gumbelSoftmax(x, 1, true),
    () => F.gumbelSoftmax(x, { hard: true }),
  ],
};

describe("PyTorch's call form of nn.functional and random functions", () => {
  itGivesTheSame(calls);

  for (const [call, forms] of Object.entries(drawn)) {
    it(`${call} draws the same numbers by position and as options`, () => {
      const results = forms.map((form) => {
        manualSeed(7);
        return form().tolist();
      });
      for (const result of results) assert.deepEqual(result, results[0]);
    });
  }

  it('cross_entropy(x, y, w) and scaled_dot_product_attention(q, k, v, mask) take tensors by position', () => {
    const [target, weight] = [tensor([0n, 2n]), tensor([1, 2, 3], f64)];
    assert.deepEqual(
      F.crossEntropy(x, target, weight).tolist(),
      F.crossEntropy(x, { target, weight }).tolist(),
    );
    const [q, mask] = [
      randn([1, 2, 2]),
      tensor([
        [true, false],
        [true, true],
      ]),
    ];
    assert.deepEqual(
      F.scaledDotProductAttention(q, q, q, mask).tolist(),
      F.scaledDotProductAttention(q, q, q, { attnMask: mask }).tolist(),
    );
    assert.deepEqual(
      F.scaledDotProductAttention(q, q, q, null, 0, true).tolist(),
      F.scaledDotProductAttention(q, { key: q, value: q, attnMask: mask }).tolist(),
    );
    assert.deepEqual(F.gelu(x, 'tanh').tolist(), F.gelu(x, { approximate: 'tanh' }).tolist());
  });
});
