/** Gradients where a formula divides by 0 or meets NaN. Values of PyTorch 2.11. */
import assert from 'node:assert/strict';
import {
  arange,
  autograd,
  bfloat16,
  clamp,
  float16,
  float32,
  float64,
  int8,
  int32,
  int64,
  logit,
  nn,
  ones,
  type Tensor,
  tensor,
  uint8,
} from '../../lib/index.js';

const { functional: F } = nn;

function gradientOf(fn: (x: Tensor) => Tensor, values: number[]): unknown {
  const x = tensor(values, { dtype: float64, requiresGrad: true });
  fn(x).sum().backward();
  return x.grad?.tolist();
}

describe('gradients at the edges', () => {
  it('of std are 0 if all elements are equal', () => {
    assert.deepEqual(
      gradientOf((x) => x.std(), [2, 2, 2]),
      [0, 0, 0],
    );
  });

  it('of norms of order below 2 are 0 at zeros', () => {
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

  it('of amax and amin go to NaN, which wins', () => {
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

  it('of relu pass through NaN and are 0 at 0', () => {
    assert.deepEqual(
      gradientOf((x) => x.relu(), [Number.NaN, 0, -1, 1]),
      [1, 0, 0, 1],
    );
  });

  it('of prod are correct at zeros, and so are the second ones', () => {
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
      assert.ok(
        autograd.gradgradcheck(
          (t) => t.prod(),
          [tensor(values, { dtype: float64, requiresGrad: true })],
        ),
      );
  });
});

describe('the gradient of asStrided', () => {
  it('finds its elements in long tensors of 16-bit floats', () => {
    for (const dtype of [bfloat16, float16]) {
      const x = arange(5000).to(dtype).requiresGrad_();
      x.asStrided([2], [1], 4001).sum().backward();
      const nonZero = (x.grad as Tensor).nonzero().reshape(-1).toTypedArray();
      assert.deepEqual([...nonZero].map(Number), [4001, 4002]);
    }
  });

  it('covers exactly the elements that the input views, wherever it lies', () => {
    const base = arange(12, { dtype: float64 });
    const x = base.narrow(0, 2, 6).reshape(2, 3).t().detach().requiresGrad_();
    const y = x.asStrided([4], [2], 1); // elements 1, 3, 5, 7 of the storage; x views 2 to 7
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
    it(`by ${reduce} ${includeSelf ? 'with' : 'without'} self equal PyTorch's, also at zeros and ties`, () => {
      const [x, s] = [input, source].map((values) =>
        tensor(values, { dtype: float64, requiresGrad: true }),
      ) as [Tensor, Tensor];
      x.scatterReduce(0, index, s, reduce, { includeSelf }).sum().backward();
      assert.deepEqual([x.grad?.tolist(), s.grad?.tolist()], [ofInput, ofSource]);
    });
  }

  it('start the extremes of integers from the limits of their dtype', () => {
    for (const dtype of [int8, int32, int64]) {
      const [zero, seven] = [tensor([0], { dtype }), tensor([7, -7], { dtype })];
      const at = tensor([0, 0], { dtype: int64 });
      const reduced = (['amin', 'amax'] as const).map((reduce) =>
        Number(zero.scatterReduce(0, at, seven, reduce, { includeSelf: false }).item()),
      );
      assert.deepEqual(reduced, [-7, 7]);
      assert.equal(
        Number(
          zero
            .scatterReduce(0, at.narrow(0, 0, 1), seven.narrow(0, 0, 1), 'amin', {
              includeSelf: false,
            })
            .item(),
        ),
        7,
      );
    }
  });
});

describe('gradients at NaN', () => {
  it('are 0 in relu6, hardtanh, hardsigmoid, hardshrink and softshrink, as beyond their kinks', () => {
    const values = [Number.NaN, -7, -1, 0, 0.25, 2, 6, 9];
    const sixth = 1 / 6;
    const expected: [(x: Tensor) => Tensor, number[]][] = [
      [F.relu6, [0, 0, 0, 0, 1, 1, 0, 0]],
      [F.hardtanh, [0, 0, 0, 1, 1, 0, 0, 0]],
      [F.hardsigmoid, [0, 0, sixth, sixth, sixth, sixth, 0, 0]],
      [F.hardshrink, [0, 1, 1, 0, 0, 1, 1, 1]],
      [F.softshrink, [0, 1, 1, 0, 0, 1, 1, 1]],
    ];
    for (const [fn, gradient] of expected) {
      assert.deepEqual(gradientOf(fn, values), gradient, fn.name);
      assert.equal(fn(tensor(Number.NaN, { requiresGrad: true })).item(), Number.NaN);
    }
  });

  it('are NaN in celu', () => {
    assert.deepEqual(gradientOf(F.celu, [Number.NaN, 1]), [Number.NaN, 1]);
  });

  it('are 0 in clamp, whose bounds may be NaN, too', () => {
    const values = [1, Number.NaN, 3, 2];
    for (const [side, ofElements, ofBounds] of [
      ['min', [0, 0, 1, 0], [0, 0, 0, 1]],
      ['max', [0, 0, 0, 1], [0, 0, 1, 0]],
    ] as const) {
      const [x, bound] = [values, [Number.NaN, 0, 1, 5]].map((v) =>
        tensor(v, { dtype: float64, requiresGrad: true }),
      ) as [Tensor, Tensor];
      const clamped = clamp(x, { [side]: bound });
      assert.deepEqual((clamped.tolist() as number[]).slice(0, 2), [Number.NaN, Number.NaN]);
      clamped.sum().backward();
      assert.deepEqual([x.grad?.tolist(), bound.grad?.tolist()], [ofElements, ofBounds]);
    }
  });

  it('go to the NaN that a median or quantile selects', () => {
    for (const fn of [
      (x: Tensor) => x.median(0).values,
      (x: Tensor) => x.median(0, { keepdim: true }).values,
      (x: Tensor) => x.quantile(0.5, 0),
    ])
      assert.deepEqual(gradientOf(fn, [1, Number.NaN, 2]), [0, 1, 0]);
  });
});

describe('gradients of elements', () => {
  it('do not vanish far below 0 in celu', () => {
    for (const [alpha, expected] of [
      [1, [0.3678794503211975, 1.5229979055675358e-8, 2.06115369216775e-9]],
      [2, [0.6065306663513184, 0.00012340980174485594, 4.539993096841499e-5]],
    ] as const) {
      const x = tensor([-1, -18, -20], { dtype: float32, requiresGrad: true });
      F.celu(x, { alpha }).sum().backward();
      expected.forEach((e, i) => {
        const given = ((x.grad as Tensor).tolist() as number[])[i] as number;
        assert.ok(Math.abs(given - e) < 1e-6 * e, `${given}, expected ${e}`);
      });
    }
    const [grown] = gradientOf((x) => F.celu(x, { alpha: -1 }), [-1]) as number[];
    assert.ok(Math.abs((grown as number) - Math.E) < 1e-12);
  });

  it('do not vanish in binaryCrossEntropyWithLogits where logit and label agree', () => {
    const x = tensor([-6, -15, -20, 20], { dtype: float32, requiresGrad: true });
    F.binaryCrossEntropyWithLogits(x, tensor([0, 0, 0, 1]), { reduction: 'sum' }).backward();
    [
      0.0024726231566347743, 3.059022269256247e-7, 2.0611536181902037e-9, -2.0611536181902037e-9,
    ].forEach((e, i) => {
      const given = ((x.grad as Tensor).tolist() as number[])[i] as number;
      assert.ok(Math.abs(given - e) < 1e-6 * Math.abs(e), `${given}, expected ${e}`);
    });
  });

  it('of binaryCrossEntropyWithLogits are correct for labels of every dtype', () => {
    for (const dtype of [uint8, int8, int64])
      assert.deepEqual(
        gradientOf(
          (x) => F.binaryCrossEntropyWithLogits(x, tensor([1, 0, 1, 0], { dtype })),
          [-2, -2, 2, 2],
        ),
        gradientOf(
          (x) => F.binaryCrossEntropyWithLogits(x, tensor([1, 0, 1, 0], { dtype: float64 })),
          [-2, -2, 2, 2],
        ),
      );
  });

  it('of logit are NaN where the result is NaN', () => {
    assert.deepEqual(gradientOf(logit, [-1, 0.25, 2]), [Number.NaN, 16 / 3, Number.NaN]);
  });

  it('that equal a tensor bound of clamp go to the element', () => {
    const low = tensor([0, 0, 0], { dtype: float64 });
    assert.deepEqual(
      gradientOf((x) => clamp(x, { min: low, max: 1 }), [1, 2, 0]),
      [1, 0, 1],
    );
  });

  it('of indexFill go to the value once, even if an index repeats', () => {
    const [x, value] = [
      tensor([1, 2, 3], { dtype: float64, requiresGrad: true }),
      tensor(7, { dtype: float64, requiresGrad: true }),
    ];
    const filled = x.indexFill(0, tensor([0, 0, -3], { dtype: int64 }), value);
    filled
      .mul(tensor([2, 3, 4]))
      .sum()
      .backward();
    assert.deepEqual(
      [filled.tolist(), x.grad?.tolist(), value.grad?.item()],
      [[7, 2, 3], [0, 3, 4], 2],
    );
  });
});

describe('prelu', () => {
  it('gives its weight no gradient for elements above 0, even infinite ones', () => {
    const weight = tensor([0.5], { requiresGrad: true });
    nn.functional.prelu(tensor([Number.POSITIVE_INFINITY, -2]), weight).backward(ones([2]));
    assert.deepEqual(weight.grad?.tolist(), [-2]);
  });
});
