/** Arguments that PyTorch refuses are refused with the op, the expected and the given value. */
import assert from 'node:assert/strict';
import {
  add,
  bool,
  cat,
  crossEntropy,
  float64,
  full,
  histc,
  int8,
  int64,
  layerNorm,
  multinomial,
  nanmean,
  nllLoss,
  normal,
  ones,
  quantile,
  randint,
  repeatInterleave,
  rmsNorm,
  ShardwiseError,
  type Tensor,
  tensor,
  uint8,
  zeros,
} from '../../lib/index.js';

const ints = (...values: number[]): Tensor => tensor(values, { dtype: int64 });
const x = ones([2, 3]);
/** A value of any type, as plain JavaScript may pass it. */
const anything = (value: unknown): never => value as never;

describe('an invalid argument', () => {
  const refused: Record<string, [() => unknown, string, RegExp]> = {
    'a NaN as an integer': [
      () => tensor([Number.NaN], { dtype: int64 }),
      'tensor',
      /NaN cannot be an element of int64/,
    ],
    'a number beyond its dtype': [
      () => tensor([300, -1], { dtype: uint8 }),
      'tensor',
      /300 .* uint8/,
    ],
    'a negative number in uint8': [() => tensor([-1], { dtype: uint8 }), 'tensor', /-1 .* uint8/],
    'a float beyond int64': [() => tensor([1e30], { dtype: int64 }), 'tensor', /1e\+30 .* int64/],
    'a bigint beyond int64': [() => tensor([2n ** 64n + 5n]), 'tensor', /18446744073709551621/],
    'a typed array beyond the dtype': [
      () => tensor(new Float32Array([1e10]), { dtype: int8 }),
      'tensor',
      /int8/,
    ],
    'a fill value beyond the dtype': [
      () => full([2], 300, { dtype: uint8 }),
      'full',
      /300 .* uint8/,
    ],
    'an in-place fill beyond the dtype': [
      () => zeros([2], { dtype: int8 }).fill_(1000),
      'fill_',
      /1000 .* int8/,
    ],
    'random integers beyond the dtype': [
      () => randint(0, 1000, [2], { dtype: int8 }),
      'randint',
      /int8 .* 0 to 999/,
    ],
    'random integers beyond the dtype in place': [
      () => zeros([2], { dtype: uint8 }).random_(0, 300),
      'random_',
      /uint8/,
    ],
    'a fractional alpha of integers': [
      () => ints(1).add(ints(2), { alpha: 0.5 }),
      'add',
      /alpha must be an integer, got 0.5/,
    ],
    'integers to a negative power': [() => ints(2).pow(-1), 'pow', /negative power \(-1\)/],
    'a difference of bools': [() => tensor([true]).sub(tensor([false])), 'sub', /logicalXor/],
    'a negative bool': [() => tensor([true]).neg(), 'neg', /logicalNot/],
    'a source of another dtype': [
      () => zeros([2]).indexAdd(0, ints(0), ones([1], { dtype: float64 })),
      'indexAdd',
      /float32, got float64/,
    ],
    'a negative deviation': [() => normal(0, -1, [2]), 'normal', /got -1/],
    'a range with reversed bounds': [() => zeros([2]).uniform_(5, 1), 'uniform_', /5 and 1/],
    'negative counts': [
      () => repeatInterleave(ones([2]), ints(2, -1)),
      'repeatInterleave',
      /negative/,
    ],
    'a fractional diagonal': [() => x.tril({ diagonal: 0.5 }), 'tril', /0.5/],
    'no dims to flip': [() => x.flip(), 'flip', /dims to flip/],
    'a scalar to be joined': [() => cat([tensor(1), tensor(2)]), 'cat', /stack/],
    'a scalar to be split': [() => tensor(1).split(1), 'split', /without dims/],
    'a scalar in chunks': [() => tensor(1).chunk(2), 'chunk', /without dims/],
    'a dim that is text': [() => x.sum(anything('a')), 'sum', /string a/],
    'a softmax along no dim': [() => x.softmax(anything(undefined)), 'softmax', /got none/],
    'a bound that is not a number': [
      () => ints(1).clamp({ max: anything('2') }),
      'clamp',
      /string/,
    ],
    'an unknown option': [
      () => add(x, x, anything({ into: x })),
      'add',
      /no option "into"; options are alpha, out/,
    ],
    'a keepdim that is a number': [
      () => x.sum(0, anything(1)),
      'sum',
      /keepdim to be true or false, got 1/,
    ],
    'a diagonal that is true': [() => x.tril(anything(true)), 'tril', /integer, got true/],
    'a largest that is a number': [
      () => x.topk(2, 0, anything(0)),
      'topk',
      /largest to be true or false, got 0/,
    ],
    'a dtype as an argument of its own': [
      () => zeros([2], anything('float64')),
      'zeros',
      /options/,
    ],
    'an index that is not in a list': [
      () => x.index(anything(ints(1))),
      'index',
      /list of indices/,
    ],
    'an accumulate that is a number': [
      () => x.indexPut_([ints(1)], ones([3]), anything(1)),
      'indexPut_',
      /accumulate to be true or false, got 1/,
    ],
    'an array without a dtype': [
      () => tensor(new Uint8ClampedArray([1])),
      'tensor',
      /Uint8ClampedArray/,
    ],
    'an infinity among integers': [
      () => ints(1, 2).maskedFill(tensor([true, false]), Number.NEGATIVE_INFINITY),
      'maskedFill',
      /-Infinity .* int64/,
    ],
    'more draws than weights': [
      () => multinomial(tensor([1, 0, 1]), 4),
      'multinomial',
      /cannot draw 4 of 3/,
    ],
    'a number in the place of a gradient': [
      () => ones([1], { requiresGrad: true }).sum().backward(anything(3)),
      'backward',
      /the gradient to be a tensor, or null/,
    ],
    'a flag of backward that is not a boolean': [
      () => ones([1], { requiresGrad: true }).sum().backward(null, anything('yes')),
      'backward',
      /retainGraph to be true, false or null/,
    ],
    'batches for a product of matrices': [
      () => ones([2, 2, 2]).mm(x),
      'mm',
      /2 dims, got float32\[2, 2, 2\]/,
    ],
    'decimals of integers': [() => ints(1).round({ decimals: 1 }), 'round', /no decimals/],
    'a shape that does not fit the others': [
      () => cat([ones([0]), ones([2, 3]), ones([3, 2])], 0),
      'cat',
      /tensor 2 has shape \[3, 2\], tensor 1 has \[2, 3\]/,
    ],
  };
  for (const [what, [fn, op, message]] of Object.entries(refused)) {
    it(`is refused by ${op}: ${what}`, () => {
      assert.throws(fn, (error: unknown) => {
        assert.ok(error instanceof ShardwiseError, String(error));
        assert.match(error.message, message);
        assert.ok(error.message.startsWith(`${op}:`), error.message);
        assert.equal(error.details['op'], op);
        return true;
      });
    });
  }
});

describe('a tensor in plain JavaScript', () => {
  it('converts to a number if it has one element, and is refused otherwise', () => {
    assert.equal((tensor([3]) as unknown as number) * 2, 6);
    assert.throws(() => (x as unknown as number) * 2, /is no number/);
  });

  it('refuses operators with the method to call, where JavaScript would join two texts', () => {
    const other = tensor([1, 2, 3]) as unknown as number;
    for (const joined of [() => other + other, () => other + 1, () => 1 + other])
      assert.throws(joined, /no operators: write a\.add\(b\)/);
  });

  it('has no elements by number', () => {
    assert.throws(() => tensor([1, 2])[0], /read x\.select\(0, 0\)/);
  });

  it('converts to text that shows it', () => {
    assert.match(`${tensor([1.5])}`, /1.5/);
    assert.equal(JSON.stringify({ x: tensor([[1, 2]]) }), '{"x":[[1,2]]}');
  });
});

describe('integer tensors where floating ones are required', () => {
  const [table, labels] = [ones([2, 3], { dtype: int64 }), ints(0, 1)];
  const ops: Record<string, () => unknown> = {
    crossEntropy: () => crossEntropy(table, labels),
    histc: () => histc(labels),
    layerNorm: () => layerNorm(table, [3]),
    mean: () => table.mean(),
    nanmean: () => nanmean(table),
    nllLoss: () => nllLoss(table, labels),
    quantile: () => quantile(labels, 0.5),
    rmsNorm: () => rmsNorm(table, [3]),
  };
  for (const [op, call] of Object.entries(ops))
    it(`are refused by ${op}, with what to do`, () =>
      assert.throws(call, {
        code: 'ERR_DTYPE',
        message:
          `${op}: expected input to be a floating point tensor, got int64; convert it with ` +
          '.float()',
      }));
});

describe('round', () => {
  it('keeps the requested decimals', () => {
    const rounded = tensor([1.2345, 15, 25], { dtype: float64 });
    assert.deepEqual(rounded.round({ decimals: 2 }).tolist(), [1.23, 15, 25]);
    assert.deepEqual(rounded.round({ decimals: -1 }).tolist(), [0, 20, 20]);
  });
});

describe('values at the edges of integer dtypes', () => {
  it('are exact', () => {
    const most = 2n ** 63n - 1n;
    assert.deepEqual(full([2], most).tolist(), [most, most]);
    assert.deepEqual(zeros([1], { dtype: int64 }).fill_(-most).tolist(), [-most]);
    assert.deepEqual(
      tensor([most, -most - 1n])
        .clamp({ min: 0 })
        .tolist(),
      [most, 0],
    );
    assert.deepEqual(full([1], -3, { dtype: int8 }).tolist(), [-3]);
    assert.deepEqual(full([1], 1.9, { dtype: int64 }).tolist(), [1]);
    assert.equal(full([1], 2n).dtype, int64);
    assert.equal(full([1], true).dtype, bool);
  });

  it('become floats beyond the range of the dtype', () => {
    const product = ints(2).mul(1e30);
    assert.ok(product.dtype.isFloatingPoint);
    assert.ok(Math.abs((product.item() as number) / 2e30 - 1) < 1e-6);
  });

  it('are unchanged by flip without dims', () => {
    assert.deepEqual(x.flip([]).tolist(), x.tolist());
  });
});
