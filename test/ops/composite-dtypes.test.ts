/** Dtypes of compositions, and values that depend on them. Values of PyTorch 1.13 and 2.11. */
import assert from 'node:assert/strict';
import {
  addbmm,
  bfloat16,
  blockDiag,
  bool,
  type DType,
  float16,
  float32,
  float64,
  hypot,
  int8,
  int32,
  int64,
  isin,
  logaddexp,
  logaddexp2,
  logit,
  nn,
  ones,
  ShapeError,
  square,
  stdMean,
  type Tensor,
  tensor,
  uint8,
  unique,
  uniqueConsecutive,
  where,
  xlogy,
} from '../../lib/index.js';

const { functional: F } = nn;
const vector = (dtype: DType): Tensor => ones([2], { dtype });
const scalar = (dtype: DType): Tensor => ones([], { dtype });

describe('dtypes of compositions of two operands', () => {
  const pairs: [Tensor, Tensor, DType][] = [
    [vector(float16), scalar(float64), float16],
    [scalar(float64), vector(float16), float16],
    [vector(int64), scalar(float64), float64],
    [scalar(float64), vector(int32), float64],
    [vector(bfloat16), vector(int64), bfloat16],
    [vector(float16), vector(bfloat16), float32],
    [vector(float32), vector(float64), float64],
    [vector(int8), vector(bool), float32],
    [scalar(bfloat16), scalar(int64), bfloat16],
  ];
  for (const [name, op] of Object.entries({ logaddexp, logaddexp2, hypot, xlogy }))
    it(`are promoted as in a single kernel by ${name}`, () => {
      for (const [a, b, dtype] of pairs)
        assert.equal(op(a, b).dtype, dtype, `${a.dtype}[${a.shape}] with ${b.dtype}[${b.shape}]`);
    });

  it('depend only on the category of a number in xlogy', () => {
    assert.equal(xlogy(2.5, vector(float16)).dtype, float16);
    assert.equal(xlogy(2.5, vector(int64)).dtype, float32);
    assert.ok(
      Math.abs(Number(xlogy(2.5, tensor([3], { dtype: int64 })).item()) - 2.5 * Math.log(3)) < 1e-6,
    );
  });

  it('are promoted before either operand is rounded', () => {
    assert.ok(
      Math.abs(
        Number(xlogy(tensor([2]), tensor([3.178], { dtype: float16 })).item()) -
          2 * Math.log(3.177734375),
      ) < 1e-6,
    );
    const sum = logaddexp2(
      tensor([0.5], { dtype: bfloat16 }),
      tensor([-0.2], { dtype: float64 }),
    ).item();
    assert.ok(Math.abs(Number(sum) - Math.log2(2 ** 0.5 + 2 ** -0.2)) < 1e-12);
  });

  it('treat 0-dim tensors like others in losses', () => {
    const losses: readonly ((
      input: Tensor,
      target: Tensor,
      options: { reduction: 'none' },
    ) => Tensor)[] = [F.l1Loss, F.mseLoss, F.smoothL1Loss, F.huberLoss];
    for (const loss of losses) {
      assert.equal(loss(vector(float16), scalar(float64), { reduction: 'none' }).dtype, float64);
      assert.equal(loss(scalar(float32), vector(bfloat16), { reduction: 'none' }).dtype, float32);
    }
    assert.equal(F.l1Loss(vector(int8), scalar(int64), { reduction: 'none' }).dtype, int64);
  });

  it('ignore 0-dim tensors in blockDiag', () => {
    assert.equal(blockDiag(ones([1, 1], { dtype: bfloat16 }), scalar(float32)).dtype, bfloat16);
    assert.equal(blockDiag(ones([1, 1], { dtype: int32 }), scalar(float32)).dtype, float32);
    assert.equal(blockDiag(scalar(float32), scalar(float64)).dtype, float64);
  });
});

describe('dtypes of integer inputs', () => {
  it('are kept by addbmm', () => {
    const sum = addbmm(
      ones([1, 1], { dtype: int32 }),
      ones([2, 1, 3], { dtype: int32 }),
      ones([2, 3, 1], { dtype: int32 }),
    );
    assert.equal(sum.dtype, int32);
    assert.deepEqual(sum.tolist(), [[7]]);
  });

  it('are the requested dtype in cumsum and cumprod, which wrap around', () => {
    const sums = tensor([100, 100], { dtype: int64 }).cumsum(0, { dtype: int8 });
    assert.equal(sums.dtype, int8);
    assert.deepEqual(sums.tolist(), [100, -56]);
    const products = tensor([3, 50], { dtype: int64 }).cumprod(0, { dtype: int8 });
    assert.equal(products.dtype, int8);
    assert.deepEqual(products.tolist(), [3, -106]);
    assert.deepEqual(tensor([1.5, 2.5]).cumsum(0, { dtype: int32 }).tolist(), [1, 3]);
  });

  it('become floating in logsumexp and logit', () => {
    assert.ok(
      Math.abs(Number(tensor([1, 2, 3], { dtype: int64 }).logsumexp(0).item()) - 3.4076059644) <
        1e-6,
    );
    assert.ok(Math.abs(Number(tensor([true, false]).logsumexp(0).item()) - 1.3132616875) < 1e-6);
    assert.equal(ones([1, 2], { dtype: int8 }).logsumexp(1, { keepdim: true }).dtype, float32);
    assert.deepEqual(logit(tensor([1, 3, 0], { dtype: uint8 })).tolist(), [
      Number.POSITIVE_INFINITY,
      Number.NaN,
      Number.NEGATIVE_INFINITY,
    ]);
    assert.deepEqual(logit(tensor([true, false])).tolist(), [
      Number.POSITIVE_INFINITY,
      Number.NEGATIVE_INFINITY,
    ]);
  });

  it('become int64 for squares of bools', () => {
    assert.equal(tensor([true, false]).square().dtype, int64);
    assert.deepEqual(square(tensor([true, false])).tolist(), [1, 0]);
  });

  it('become int64 for bools that are clamped to numbers', () => {
    const clamped = tensor([true, false]).clamp({ min: 2 });
    assert.equal(clamped.dtype, int64);
    assert.deepEqual(clamped.tolist(), [2, 2]);
    assert.deepEqual(tensor([true, false]).clamp({ min: -1, max: 2 }).tolist(), [1, 0]);
  });
});

describe('the standard deviation of 16-bit floats', () => {
  it('is finite where the variance exceeds the range of 16 bits', () => {
    const wide = tensor([1000, -1000], { dtype: float16 });
    assert.equal(wide.std().dtype, float16);
    assert.equal(wide.std().item(), 1414);
    assert.equal(stdMean(wide)[0].item(), 1414);
    assert.deepEqual(
      stdMean(wide).map((t) => t.dtype),
      [float16, float16],
    );
    assert.equal(wide.var().item(), Number.POSITIVE_INFINITY);
    const near = tensor([1e-4, 2e-4, 3e-4], { dtype: float16 });
    assert.ok(Math.abs(Number(near.std().item()) - 9.9957e-5) < 6e-8);
  });

  it('has a gradient in the dtype of the input', () => {
    const x = tensor([1000, -1000], { dtype: float16, requiresGrad: true });
    x.std().backward();
    assert.equal(x.grad?.dtype, float16);
    assert.deepEqual(x.grad?.tolist(), tensor([0.70703125, -0.70703125]).tolist());
  });
});

describe('cosineSimilarity of operands that broadcast', () => {
  it('reduces a dim of the common shape', () => {
    assert.deepEqual(F.cosineSimilarity(ones([2, 4]), ones([4])).tolist(), [1, 1]);
    const cosines = F.cosineSimilarity(
      tensor([
        [1, 2, 3, 4],
        [1, 1, 1, 1],
        [0, 1, 0, 0],
      ]),
      tensor([2]),
    );
    for (const [i, expected] of [0.9128709292, 1, 0.5].entries())
      assert.ok(Math.abs((cosines.tolist() as number[])[i] as number) - expected < 1e-6);
    assert.ok(Math.abs((cosines.tolist() as number[])[0] as number) < 0.913);
    assert.deepEqual(
      F.cosineSimilarity(tensor([[3, 4]], { dtype: int64 }), tensor([[3, 4]])).tolist(),
      [1],
    );
    assert.throws(() => F.cosineSimilarity(ones([3, 4]), ones([3])), ShapeError);
  });
});

describe('the condition of where', () => {
  it('is bool or uint8, because other dtypes would be truncated to integers', () => {
    for (const condition of [tensor([0.5, 0, 1]), tensor([1, 0, 1], { dtype: int64 })])
      assert.throws(() => where(condition, 1, 2), {
        code: 'ERR_DTYPE',
        message:
          `where: expected a bool condition, got ${condition.dtype.name}; compare it, such as ` +
          'with .ne(0)',
      });
    assert.deepEqual(where(tensor([2, 0], { dtype: uint8 }), 1, 2).tolist(), [1, 2]);
    assert.deepEqual(
      where(tensor([0.5, 0, 1])).map((t) => t.tolist()),
      [[0, 2]],
    );
  });
});

describe('options without an effect', () => {
  it('are accepted as in PyTorch: sorted of unique, assumeUnique of isin', () => {
    assert.deepEqual([unique(tensor([2, 1, 2]), { sorted: true })].flat()[0]?.tolist(), [1, 2]);
    assert.deepEqual(isin(tensor([1, 2]), tensor([2, 3]), { assumeUnique: true }).tolist(), [
      false,
      true,
    ]);
  });

  it('are refused if PyTorch does not have them: sorted of uniqueConsecutive', () => {
    // @ts-expect-error: PyTorch has no such option
    assert.throws(() => uniqueConsecutive(tensor([2, 1]), { sorted: true }), {
      code: 'ERR_ARGUMENT',
    });
  });
});
