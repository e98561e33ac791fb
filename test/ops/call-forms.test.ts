/**
 * What PyTorch takes by position is taken by position, and all of it as options: the values of both
 * forms.
 */
import assert from 'node:assert/strict';
import {
  arange,
  argmax,
  bfloat16,
  bool,
  cat,
  chunk,
  clamp,
  einsum,
  empty,
  eye,
  float32,
  float64,
  full,
  int64,
  isclose,
  linspace,
  logspace,
  manualSeed,
  max,
  meshgrid,
  multinomial,
  nn,
  normal,
  ones,
  rand,
  randint,
  randn,
  sort,
  split,
  stack,
  std,
  type Tensor,
  tensor,
  topk,
  triu,
  unique,
  zeros,
} from '../../lib/index.js';

const F = nn.functional;
const f64 = { dtype: float64 } as const;
const x = tensor(
  [
    [3, 1, 2],
    [0, 5, 4],
  ],
  f64,
);
const y = tensor(
  [
    [1, 1, 1],
    [2, 2, 2],
  ],
  f64,
);
const index = tensor([
  [0n, 1n],
  [2n, 0n],
]);

/** Values of all tensors in a result. */
function values(result: unknown): unknown {
  if (result !== null && typeof result === 'object' && 'tolist' in result)
    return (result as Tensor).tolist();
  if (result !== null && typeof result === 'object' && Symbol.iterator in result)
    return [...(result as Iterable<unknown>)].map(values);
  return result !== null && typeof result === 'object' ? Object.values(result).map(values) : result;
}

/** By name: what PyTorch gives, and the forms of the call. */
const same: Record<string, [expected: string, ...forms: (() => unknown)[]]> = {
  'sum(1, True)': [
    '[[6],[9]]',
    () => x.sum(1, true),
    () => x.sum(1, { keepdim: true }),
    () => x.sum({ dim: 1, keepdim: true }),
  ],
  'max(1, True)': [
    '[[[3],[5]],[[0],[1]]]',
    () => x.max(1, true),
    () => x.max({ dim: 1, keepdim: true }),
    () => max(x, 1, { keepdim: true }),
  ],
  'max(other=y)': ['[[3,1,2],[2,5,4]]', () => x.max(y), () => max(x, y)],
  'argmax(1, True)': [
    '[[0],[1]]',
    () => x.argmax(1, true),
    () => argmax(x, { dim: 1, keepdim: true }),
  ],
  'std(0, False)': [
    '[1.5,2,1]',
    () => x.std(0, false),
    () => x.std({ dim: 0, unbiased: false }),
    () => std(x, 0, { correction: 0 }),
  ],
  'std(unbiased=False)': [
    '1.707825127659933',
    () => tensor([3, 1, 2, 0, 5, 4], f64).std(false),
    () => x.std({ unbiased: false }),
    () => x.std({ correction: 0 }),
  ],
  'cat(xs, dim=1)': [
    '[[3,1,2,1,1,1],[0,5,4,2,2,2]]',
    () => cat([x, y], 1),
    () => cat([x, y], { dim: 1 }),
  ],
  'stack(xs, dim=1)': [
    '[[[3,1,2],[1,1,1]],[[0,5,4],[2,2,2]]]',
    () => stack([x, y], 1),
    () => stack([x, y], { dim: 1 }),
  ],
  'split(2, dim=1)': [
    '[[[3,1],[0,5]],[[2],[4]]]',
    () => x.split(2, 1),
    () => split(x, 2, { dim: 1 }),
    () => x.split({ splitSize: 2, dim: 1 }),
  ],
  'chunk(2, dim=1)': [
    '[[[3,1],[0,5]],[[2],[4]]]',
    () => x.chunk(2, 1),
    () => chunk(x, 2, { dim: 1 }),
  ],
  'softmax(dim=-1)': [
    '[0.5,0.5]',
    () => tensor([1, 1]).softmax(-1),
    () => tensor([1, 1]).softmax({ dim: -1 }),
    () => F.softmax(tensor([1, 1]), { dim: 0 }),
  ],
  'sort(-1, True)': [
    '[[[3,2,1],[5,4,0]],[[0,2,1],[1,2,0]]]',
    () => x.sort(-1, true),
    () => sort(x, { descending: true }),
    () => x.sort({ dim: 1, descending: true, stable: true }),
  ],
  'argsort(dim=1, descending=True)': [
    '[[0,2,1],[1,2,0]]',
    () => x.argsort(1, true),
    () => x.argsort({ dim: 1, descending: true }),
  ],
  'topk(2, -1, False)': [
    '[[[1,2],[0,4]],[[1,2],[0,2]]]',
    () => x.topk(2, -1, false),
    () => topk(x, 2, { largest: false }),
    () => x.topk({ k: 2, largest: false, sorted: true }),
  ],
  'kthvalue(2, 1, True)': [
    '[[[2],[4]],[[2],[2]]]',
    () => x.kthvalue(2, 1, true),
    () => x.kthvalue(2, { dim: 1, keepdim: true }),
  ],
  'median(1, True)': [
    '[[[2],[4]],[[2],[2]]]',
    () => x.median(1, true),
    () => x.median({ dim: 1, keepdim: true }),
  ],
  'quantile(0.5, 1, True)': [
    '[[2],[4]]',
    () => x.quantile(0.5, 1, true),
    () => x.quantile(0.5, { dim: 1, keepdim: true }),
  ],
  'norm(1, 1, True)': [
    '[[6],[9]]',
    () => x.norm(1, 1, true),
    () => x.norm(1, { dim: 1, keepdim: true }),
    () => x.norm({ p: 1, dim: 1, keepdim: true }),
  ],
  'nansum(1, True)': [
    '[[6],[9]]',
    () => x.nansum(1, true),
    () => x.nansum({ dim: 1, keepdim: true }),
  ],
  'aminmax(dim=1)': ['[[1,0],[3,5]]', () => x.aminmax({ dim: 1 })],
  'diff(1, 0)': ['[[-3,4,2]]', () => x.diff(1, 0), () => x.diff({ dim: 0 })],
  'cumsum(dim=1)': [
    '[[3,4,6],[0,5,9]]',
    () => x.cumsum(1),
    () => x.cumsum({ dim: 1 }),
    () => x.clone().cumsum_({ dim: 1 }),
  ],
  'clamp(1, 3)': [
    '[[3,1,2],[1,3,3]]',
    () => x.clamp(1, 3),
    () => clamp(x, { min: 1, max: 3 }),
    () => x.clone().clamp_(1, 3),
    () => x.clip(1, { max: 3 }),
  ],
  'clamp(max=1)': ['[[1,1,1],[0,1,1]]', () => x.clamp({ max: 1 }), () => x.clamp(null, 1)],
  'triu(1)': [
    '[[0,1,2],[0,0,4]]',
    () => x.triu(1),
    () => triu(x, { diagonal: 1 }),
    () => x.clone().triu_(1),
  ],
  'tril(-1)': [
    '[[0,0,0],[0,0,0]]',
    () => x.tril(-1),
    () => x.tril({ diagonal: -1 }),
    () => x.clone().tril_(-1),
    () => x.clone().tril_({ diagonal: -2 }),
  ],
  'diagonal(1)': [
    '[1,4]',
    () => x.diagonal(1),
    () => x.diagonal({ offset: 1 }),
    () => x.diagonal(1, 0, 1),
  ],
  'isclose(a, b, 1e-1)': [
    '[true,false]',
    () => isclose(tensor([1, 1]), tensor([1.05, 1.5]), 0.1),
    () => tensor([1, 1]).isclose(tensor([1.05, 1.5]), { rtol: 0.1 }),
  ],
  'zeros(2, 3)': [
    '[[0,0,0],[0,0,0]]',
    () => zeros(2, 3),
    () => zeros([2, 3]),
    () => zeros({ size: [2, 3] }),
    () => zeros(2, 3, { dtype: bfloat16 }),
    () => x.newZeros(2, 3),
  ],
  'ones(2)': [
    '[1,1]',
    () => ones(2),
    () => ones([2]),
    () => ones(2, { dtype: int64 }).float(),
    () => x.newOnes(2, { dtype: float32 }),
  ],
  'full((2,), 1)': [
    '[1,1]',
    () => full([2], 1),
    () => full({ size: [2], fillValue: 1 }),
    () => full([2], { fillValue: 1 }),
    () => x.newFull([2], { fillValue: 1 }),
  ],
  'eye(2, 1)': ['[[1],[0]]', () => eye(2, 1), () => eye(2, { m: 1 })],
  'arange(0, 6, step=2)': [
    '[0,2,4]',
    () => arange(0, 6, 2),
    () => arange(0, 6, { step: 2 }),
    () => arange({ end: 6, step: 2 }),
  ],
  'linspace(0, 1, steps=3)': [
    '[0,0.5,1]',
    () => linspace(0, 1, 3),
    () => linspace(0, 1, { steps: 3 }),
  ],
  'logspace(0, 2, 3, 2)': [
    '[1,2,4]',
    () => logspace(0, 2, 3, 2),
    () => logspace(0, 2, 3, { base: 2 }),
  ],
  'tensor([t1, t2])': [
    '[1,2.5]',
    () => tensor([tensor(1), tensor(2.5)]),
    () => tensor([tensor(1n), 2.5]),
  ],
  'einsum(eq, [a, b])': [
    '[[6,12],[9,18]]',
    () => einsum('ij,kj->ik', [x, y]),
    () => einsum('ij,kj->ik', x, y),
  ],
  'meshgrid(a, b)': [
    '[[[1,1],[2,2]],[[3,4],[3,4]]]',
    () => meshgrid(tensor([1, 2]), tensor([3, 4])),
    () => meshgrid([tensor([1, 2]), tensor([3, 4])]),
    () => meshgrid(tensor([1, 2]), tensor([3, 4]), { indexing: 'ij' }),
  ],
  'flip(dims=[1])': [
    '[[2,1,3],[4,5,0]]',
    () => x.flip(1),
    () => x.flip([1]),
    () => x.flip({ dims: [1] }),
  ],
  'permute(1, 0)': [
    '[[3,0],[1,5],[2,4]]',
    () => x.permute(1, 0),
    () => x.permute([1, 0]),
    () => x.permute({ dims: [1, 0] }),
  ],
  'transpose(0, 1)': [
    '[[3,0],[1,5],[2,4]]',
    () => x.transpose(0, 1),
    () => x.transpose({ dim0: 0, dim1: 1 }),
    () => x.swapaxes(0, { dim1: 1 }),
  ],
  'roll(1, dims=1)': [
    '[[2,3,1],[4,0,5]]',
    () => x.roll(1, 1),
    () => x.roll(1, { dims: 1 }),
    () => x.roll({ shifts: 1, dims: 1 }),
  ],
  'gather(dim=1, index=i)': [
    '[[3,1],[4,0]]',
    () => x.gather(1, index),
    () => x.gather({ dim: 1, index }),
  ],
  'scatter(1, i, 9)': [
    '[[9,9,2],[9,5,9]]',
    () => x.scatter(1, index, 9),
    () => x.scatter({ dim: 1, index, src: 9 }),
    () => x.clone().scatter_(1, index, { src: 9 }),
  ],
  'index_add(0, i, s, alpha=2)': [
    '[[5,3,4],[4,9,8]]',
    () => x.indexAdd(0, tensor([0n, 1n]), y, { alpha: 2 }),
    () => x.indexAdd({ dim: 0, index: tensor([0n, 1n]), source: y, alpha: 2 }),
  ],
  'unflatten(1, (3, 1))': [
    '[[[3],[1],[2]],[[0],[5],[4]]]',
    () => x.unflatten(1, [3, 1]),
    () => x.unflatten({ dim: 1, sizes: [3, 1] }),
  ],
  'unsqueeze(dim=0)': [
    '[[1]]',
    () => tensor([1]).unsqueeze(0),
    () => tensor([1]).unsqueeze({ dim: 0 }),
  ],
  'squeeze(dim=0)': [
    '[1]',
    () => tensor([[1]]).squeeze(0),
    () => tensor([[1]]).squeeze({ dim: 0 }),
  ],
  'unique(True, True)': [
    '[[1,2],[0,1,0]]',
    () => tensor([1, 2, 1]).unique(true, true),
    () => unique(tensor([1, 2, 1]), { sorted: true, returnInverse: true }),
  ],
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
  'repeat_interleave(2, dim=1)': [
    '[[1,1]]',
    () => tensor([[1]]).repeatInterleave(2, 1),
    () => tensor([[1]]).repeatInterleave(2, { dim: 1, outputSize: null }),
  ],
  'histc(2, 0, 4)': [
    '[1,1]',
    () => tensor([1, 3]).histc(2, 0, 4),
    () => tensor([1, 3]).histc(2, { min: 0, max: 4 }),
  ],
};

/** Draws: the same numbers in every form. */
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

function close(actual: unknown, expected: unknown, form: string): void {
  if (Array.isArray(expected)) {
    assert.ok(Array.isArray(actual) && actual.length === expected.length, form);
    for (const [i, e] of expected.entries()) close(actual[i], e, form);
  } else if (typeof expected === 'number')
    assert.ok(
      Math.abs(Number(actual) - expected) < 1e-6,
      `${form} gives ${actual} instead of ${expected}`,
    );
  else assert.equal(actual, expected, form);
}

describe("PyTorch's calls", () => {
  for (const [call, [expected, ...forms]] of Object.entries(same)) {
    it(call, () => {
      for (const form of forms) {
        const actual = values(form());
        close(actual, JSON.parse(expected), String(form));
      }
    });
  }
  for (const [call, forms] of Object.entries(drawn)) {
    it(call, () => {
      const results = forms.map((form) => {
        manualSeed(7);
        return form().tolist();
      });
      for (const result of results) assert.deepEqual(result, results[0]);
    });
  }

  it('empty(2, 3)', () => {
    assert.deepEqual(empty(2, 3).shape, [2, 3]);
    assert.deepEqual(empty([]).shape, []);
    assert.equal(empty(2, { dtype: bool }).dtype, bool);
  });

  it('tensor([t1, t2]) has the dtype that they promote to, and refuses tensors with dims', () => {
    assert.equal(tensor([tensor(1, f64), tensor(2n)]).dtype, float64);
    assert.equal(tensor([tensor(1n), 2n]).dtype, int64);
    assert.equal(tensor([tensor(1n), 2.5]).dtype, float32);
    assert.equal(tensor([[tensor(true)], [tensor(false)]]).dtype, bool);
    assert.throws(
      () => tensor([tensor([1]), tensor([2])]),
      /tensor: among numbers expected tensors without dims, got shape \[1\]; use stack\(\) or cat\(\)/,
    );
  });

  it('cross_entropy(x, y, w) and scaled_dot_product_attention(q, k, v, mask)', () => {
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
