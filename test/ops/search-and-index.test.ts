/** Ops that look up or write elements by index, and order statistics. */
import assert from 'node:assert/strict';
import {
  ArgumentError,
  arange,
  autograd,
  bfloat16,
  bincount,
  bool,
  bucketize,
  DtypeError,
  embedding,
  float16,
  IndexError,
  int32,
  int64,
  isin,
  max,
  min,
  ones,
  searchsorted,
  type Tensor,
  tensor,
  unique,
  uniqueConsecutive,
  where,
  zeros,
} from '../../lib/index.js';

const whole = (data: Parameters<typeof tensor>[0]): Tensor => tensor(data, { dtype: int64 });
const NaN = Number.NaN;

const cases: Record<string, [actual: () => Tensor | readonly Tensor[], expected: unknown]> = {
  'searchsorted on the left of equal elements': [
    () => searchsorted(whole([1, 3, 5, 7]), whole([3, 0, 8, 6])),
    [1, 0, 4, 3],
  ],
  'searchsorted on the right of equal elements': [
    () => searchsorted(whole([1, 3, 3, 7]), whole([[3], [1]]), { right: true }),
    [[3], [1]],
  ],
  'searchsorted by rows': [
    () =>
      searchsorted(
        whole([
          [1, 2, 3],
          [4, 5, 6],
        ]),
        whole([[2], [9]]),
      ),
    [[1], [3]],
  ],
  'searchsorted in an empty tensor': [() => searchsorted(zeros([0]), tensor([1])), [0]],
  bucketize: [() => bucketize(tensor([0.5, 2]), tensor([1, 2, 3])), [0, 1]],
  isin: [
    () =>
      isin(
        whole([
          [1, 2],
          [3, 4],
        ]),
        whole([2, 4]),
      ),
    [
      [false, true],
      [false, true],
    ],
  ],
  'isin inverted': [() => isin(whole([1, 2]), whole([]), { invert: true }), [true, true]],
  'unique, sorted': [() => unique(whole([3, 1, 3, 2])), [1, 2, 3]],
  'unique with inverse and counts': [
    () =>
      unique(
        whole([
          [3, 1],
          [3, 2],
        ]),
        { returnInverse: true, returnCounts: true },
      ),
    [
      [1, 2, 3],
      [
        [2, 0],
        [2, 1],
      ],
      [1, 1, 2],
    ],
  ],
  'unique of an empty tensor': [
    () => unique(whole([]), { returnInverse: true, returnCounts: true }),
    [[], [], []],
  ],
  uniqueConsecutive: [
    () => uniqueConsecutive(whole([1, 1, 2, 1]), { returnCounts: true }),
    [
      [1, 2, 1],
      [2, 1, 1],
    ],
  ],
  bincount: [() => bincount(whole([0, 2, 2])), [1, 0, 2]],
  'bincount with weights': [
    () => bincount(whole([0, 2, 2]), tensor([0.5, 1, 1]), 4),
    [0.5, 0, 2, 0],
  ],
  'histc including the last edge': [
    () => tensor([0, 1, 1.5, 4]).histc(4, { min: 0, max: 4 }),
    [1, 2, 0, 1],
  ],
  'take by negative indices': [
    () =>
      arange(6)
        .reshape(2, 3)
        .take(whole([[0, -1]])),
    [[0, 5]],
  ],
  'takeAlongDim of indices that broadcast': [
    () =>
      arange(6)
        .reshape(2, 3)
        .takeAlongDim(whole([[2], [0]]), 1),
    [[2], [3]],
  ],
  indexFill: [() => zeros([3]).indexFill(0, whole([0, 2]), 7), [7, 0, 7]],
  indexCopy: [() => zeros([3]).indexCopy(0, whole([2, 0]), tensor([5, 6])), [6, 0, 5]],
  'scatterReduce of the mean with self': [
    () => tensor([2, 2]).scatterReduce(0, whole([0, 0]), tensor([5, 8]), 'mean'),
    [5, 2],
  ],
  'scatterReduce of the mean without self': [
    () =>
      tensor([2, 2]).scatterReduce(0, whole([0, 0]), tensor([5, 8]), 'mean', {
        includeSelf: false,
      }),
    [6.5, 2],
  ],
  'scatterReduce of the maximum without self': [
    () =>
      tensor([9, 2]).scatterReduce(0, whole([0, 0]), tensor([5, 8]), 'amax', {
        includeSelf: false,
      }),
    [8, 2],
  ],
  'scatterReduce of products': [
    () => tensor([2, 3]).scatterReduce(0, whole([0, 0]), tensor([5, 8]), 'prod'),
    [80, 3],
  ],
  'maskedScatter in order of the source': [
    () =>
      zeros([2, 2]).maskedScatter(
        tensor([
          [true, false],
          [true, true],
        ]),
        tensor([1, 2, 3]),
      ),
    [
      [1, 0],
      [2, 3],
    ],
  ],
  argwhere: [
    () =>
      tensor([
        [0, 1],
        [1, 0],
      ]).argwhere(),
    [
      [0, 1],
      [1, 0],
    ],
  ],
  'nonzero as a tuple of vectors': [
    () =>
      tensor([
        [0, 1],
        [1, 0],
      ]).nonzero({ asTuple: true }),
    [
      [0, 1],
      [1, 0],
    ],
  ],
  'indexPut without an index on the whole tensor': [
    () => tensor([1, 2]).indexPut([null], tensor([10]), { accumulate: true }),
    [11, 12],
  ],
  'indexPut_ without an index on the whole tensor': [
    () => tensor([1, 2]).indexPut_([null], tensor([10]), { accumulate: true }),
    [11, 12],
  ],
  'indexPut without an index in the dtype of the input': [
    () => whole([1, 2]).indexPut([null], tensor([2.5])),
    [2, 2],
  ],
  'where of a condition alone': [() => where(tensor([false, true])), [[1]]],
  'the median of an even count as the lower one': [() => tensor([4, 1, 3, 2]).median(), 2],
  'the median of NaN as NaN': [() => tensor([4, NaN]).median(), NaN],
  'the median along a dim with its index': [
    () =>
      Object.values(
        tensor([
          [3, 1, 2],
          [NaN, 5, 6],
        ]).median(1),
      ),
    [
      [2, NaN],
      [2, 0],
    ],
  ],
  'kthvalue counting from 1': [() => tensor([4, 1, 3]).kthvalue(2).indices, 2],
  'quantile between elements': [() => tensor([0, 1, 2, 4]).quantile(0.5), 1.5],
  'several quantiles in a leading dim': [
    () =>
      tensor([
        [0, 1],
        [4, 3],
      ]).quantile(tensor([0, 0.25, 1]), 0),
    [
      [0, 1],
      [1, 1.5],
      [4, 3],
    ],
  ],
  'quantile with another interpolation': [
    () => tensor([0, 1, 2, 4]).quantile(0.5, 0, { interpolation: 'higher', keepdim: true }),
    [2],
  ],
  'the quantile of NaN as NaN': [() => tensor([0, NaN]).quantile(0.1), NaN],
  'nansum and nanmean without NaN': [
    () => [tensor([1, NaN, 3]).nansum(), tensor([1, NaN, 3]).nanmean()],
    [4, 2],
  ],
  countNonzero: [
    () =>
      tensor([
        [0, 1],
        [2, 3],
      ]).countNonzero(1),
    [1, 2],
  ],
  aminmax: [
    () =>
      Object.values(
        tensor([
          [0, 1],
          [2, 3],
        ]).aminmax({ dim: 0 }),
      ),
    [
      [0, 1],
      [2, 3],
    ],
  ],
  'diff twice': [() => whole([1, 4, 9, 16]).diff(2), [2, 2]],
  'diff of bools': [() => tensor([true, false, false]).diff(), [true, false]],
  'diff with an appended element': [
    () => whole([1, 4]).diff(1, 0, { append: whole([10]) }),
    [3, 6],
  ],
  'max and min of two tensors': [
    () => [max(tensor([1, 5]), tensor([3, 2])), min(tensor([1, 5]), tensor([3, 2]))],
    [
      [3, 5],
      [1, 2],
    ],
  ],
  'trace, kron and inner': [
    () => [
      arange(4).reshape(2, 2).float().trace(),
      whole([1, 2]).kron(whole([1, 10])),
      tensor([1, 2]).inner(tensor([3, 4])),
    ],
    [3, [1, 10, 2, 20], 11],
  ],
};

describe('search, index and order ops', () => {
  for (const [what, [actual, expected]] of Object.entries(cases)) {
    it(`compute ${what}`, () => {
      const got = actual();
      assert.deepEqual(
        Array.isArray(got) ? got.map((t: Tensor) => t.tolist()) : (got as Tensor).tolist(),
        expected,
      );
    });
  }

  it('change the tensor in their in-place forms', () => {
    const t = zeros([3]);
    assert.equal(t.indexFill_(0, whole([1]), 2), t);
    assert.deepEqual(t.tolist(), [0, 2, 0]);
    assert.deepEqual(zeros([2, 2]).fillDiagonal_(3).tolist(), [
      [3, 0],
      [0, 3],
    ]);
    assert.deepEqual(arange(4).reshape(2, 2).triu_().tolist(), [
      [0, 1],
      [0, 3],
    ]);
    assert.deepEqual(tensor([1, 2, 3]).cumsum_(0).tolist(), [1, 3, 6]);
    assert.deepEqual(tensor([true, false]).bitwiseNot_().tolist(), [false, true]);
  });

  for (const dtype of [bfloat16, float16]) {
    it(`round sums into one element once: ${dtype.name}`, () => {
      const [count, places] = [12_288, 3];
      const [values, at] = [ones([count], { dtype }), arange(count).remainder(places)];
      const zero = zeros([places], { dtype });
      const expected = arange(places)
        .mul(-1)
        .add(count + places - 1)
        .div(places, { roundingMode: 'floor' })
        .to(dtype)
        .tolist();
      const table = zeros([places, 2], { dtype }).requiresGrad_();
      const [gradient] = autograd.grad(embedding(at, table), [table], {
        gradOutputs: ones([count, 2], { dtype }),
      }) as [Tensor];
      const sums = {
        scatterAdd: zero.scatterAdd(0, at, values),
        scatterReduce: zero.scatterReduce(0, at, values, 'sum'),
        indexAdd: zero.indexAdd(0, at, values),
        indexPut: zero.indexPut([at], values, { accumulate: true }),
        embedding: gradient.select(1, 0),
      };
      for (const [op, sum] of Object.entries(sums)) assert.deepEqual(sum.tolist(), expected, op);
    });
  }

  it('name the argument that does not fit', () => {
    assert.throws(() => bincount(tensor([1.5])), DtypeError);
    assert.throws(() => bincount(whole([-1])), ArgumentError);
    assert.throws(() => tensor([1]).kthvalue(2), ArgumentError);
    assert.throws(() => tensor([1]).quantile(1.5), ArgumentError);
    assert.throws(() => zeros([0]).median(0), IndexError);
    assert.throws(() => zeros([2]).maskedScatter(zeros([2]), zeros([2])), DtypeError);
    assert.equal(searchsorted(tensor([1]), 0, { outInt32: true }).dtype, int32);
    assert.equal(isin(whole([1]), 1).dtype, bool);
  });
});
