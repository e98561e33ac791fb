/** Gradients where a formula divides by zero or meets NaN. Values of PyTorch 2.11. */
import assert from 'node:assert/strict';
import { arange, autograd, bfloat16, float16, float64, int8, int32, int64, type Tensor, tensor } from '../../lib/index.js';

function gradientOf(fn: (x: Tensor) => Tensor, values: number[]): unknown {
  const x = tensor(values, { dtype: float64, requiresGrad: true });
  fn(x).sum().backward();
  return x.grad?.tolist();
}

describe('gradients at the edges', () => {
  it('of std are 0 where all elements are equal', () => {
    assert.deepEqual(
      gradientOf((x) => x.std(), [2, 2, 2]),
      [0, 0, 0],
    );
  });

  it('of norms below 2 are 0 at zeros', () => {
    for (const p of [0.5, 1.5]) {
      const [atZero, other] = gradientOf((x) => x.norm(p), [0, 2]) as number[];
      assert.equal(atZero, 0);
      assert.ok(Math.abs((other as number) - 1) < 1e-12);
      assert.deepEqual(
        gradientOf((x) => x.norm(p), [0, 0]),
        [0, 0],
      );
    }
  });

  it('of extremes go to the NaN that wins', () => {
    const values = [1, Number.NaN, 3];
    assert.deepEqual(
      gradientOf((x) => x.max(), values),
      [0, 1, 0],
    );
    assert.deepEqual(
      gradientOf((x) => x.min(), values),
      [0, 1, 0],
    );
  });

  it('of relu pass through NaN and stop at 0', () => {
    assert.deepEqual(
      gradientOf((x) => x.relu(), [Number.NaN, 0, -1, 1]),
      [1, 0, 0, 1],
    );
  });

  it('of prod are right at zeros, also the second ones', () => {
    assert.deepEqual(
      gradientOf((x) => x.prod(), [0, 2, 3]),
      [6, 0, 0],
    );
    assert.deepEqual(
      gradientOf((x) => x.prod(), [0, 0, 3]),
      [0, 0, 0],
    );
    const x = tensor([0, 2, 3], { dtype: float64, requiresGrad: true });
    const [g] = autograd.grad(x.prod(), [x], { createGraph: true });
    assert.deepEqual(autograd.grad((g as Tensor).sum(), [x])[0]?.tolist(), [5, 3, 2]);
    for (const values of [
      [0, 0, 3, 2],
      [1, 0, 3, 2],
    ])
      assert.ok(autograd.gradgradcheck((t) => t.prod(), [tensor(values, { dtype: float64, requiresGrad: true })]));
  });
});

describe('the gradient of asStrided', () => {
  it('finds its places in long tensors of 16 bits', () => {
    for (const dtype of [bfloat16, float16]) {
      const x = arange(5000).to(dtype).requiresGrad_();
      x.asStrided([2], [1], 4001).sum().backward();
      const nonZero = (x.grad as Tensor).nonzero().reshape(-1).toTypedArray();
      assert.deepEqual([...nonZero].map(Number), [4001, 4002]);
    }
  });

  it('is that of the elements which the input shows, wherever the input lies', () => {
    const base = arange(12, { dtype: float64 });
    const x = base.narrow(0, 2, 6).reshape(2, 3).t().detach().requiresGrad_();
    const y = x.asStrided([4], [2], 1); // 1, 3, 5, 7 of the storage; x shows 2 to 7
    assert.deepEqual(y.tolist(), [1, 3, 5, 7]);
    y.mul(tensor([1, 10, 100, 1000], { dtype: float64 }))
      .sum()
      .backward();
    assert.deepEqual(x.grad?.tolist(), [
      [0, 100],
      [10, 0],
      [0, 1000],
    ]);
  });
});

describe('the gradients of scatterReduce', () => {
  const index = tensor([0, 0, 2, 2, 2], { dtype: int64 });
  const cases: ['prod' | 'amax' | 'amin', boolean, number[], number[], number[], number[]][] = [
    ['prod', true, [2, 3, 4], [5, 7, 0, 2, 3], [35, 1, 0], [14, 10, 24, 0, 0]],
    ['prod', false, [2, 3, 4], [5, 7, 0, 0, 3], [0, 1, 0], [7, 5, 0, 0, 0]],
    ['amax', true, [5, 3, 4], [5, 1, 9, 9, 2], [0.5, 1, 0], [0.5, 0, 0.5, 0.5, 0]],
    ['amin', false, [0, 3, 4], [5, 1, 9, 9, 2], [0, 1, 0], [0, 1, 0, 0, 1]],
  ];
  for (const [reduce, includeSelf, input, source, ofInput, ofSource] of cases) {
    it(`by ${reduce} ${includeSelf ? 'with' : 'without'} self are those of PyTorch, at zeros and ties too`, () => {
      const [x, s] = [input, source].map((values) => tensor(values, { dtype: float64, requiresGrad: true })) as [Tensor, Tensor];
      x.scatterReduce(0, index, s, reduce, { includeSelf }).sum().backward();
      assert.deepEqual([x.grad?.tolist(), s.grad?.tolist()], [ofInput, ofSource]);
    });
  }

  it('starts the extremes of integers from the limits of their dtype', () => {
    for (const dtype of [int8, int32, int64]) {
      const [zero, seven] = [tensor([0], { dtype }), tensor([7, -7], { dtype })];
      const at = tensor([0, 0], { dtype: int64 });
      const reduced = (['amin', 'amax'] as const).map((reduce) => Number(zero.scatterReduce(0, at, seven, reduce, { includeSelf: false }).item()));
      assert.deepEqual(reduced, [-7, 7]);
      assert.equal(Number(zero.scatterReduce(0, at.narrow(0, 0, 1), seven.narrow(0, 0, 1), 'amin', { includeSelf: false }).item()), 7);
    }
  });
});
