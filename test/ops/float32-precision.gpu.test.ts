/** setFloat32MatmulPrecision on a GPU: the error of products in TF32 and in three TF32 products. */
import assert from 'node:assert/strict';
import {
  addmm,
  type Float32MatmulPrecision,
  float64,
  noGrad,
  randn,
  setFloat32MatmulPrecision,
  type Tensor,
} from '../../lib/index.js';
import { findLibrary, libraryNamed } from '../../lib/native/libraries.js';
import { addon } from '../../lib/runtime.js';
import { skipBecause, skipWithoutCuda } from '../skip.js';

const device = 'cuda' as const;

/** Root mean square of the error relative to that of the values. */
async function errorOf(got: Tensor, exact: Tensor): Promise<number> {
  const ratio = got.to(float64).sub(exact).square().mean().div(exact.square().mean()).sqrt();
  return await ratio.itemAsync();
}

interface Product {
  readonly name: string;
  readonly make: () => { of: (...operands: Tensor[]) => Tensor; operands: Tensor[] };
}

const products: readonly Product[] = [
  {
    name: 'x w',
    make: () => ({
      of: (x, w) => (x as Tensor).matmul(w as Tensor),
      operands: [randn([1031, 2053], { device }), randn([2053, 777], { device })],
    }),
  },
  {
    name: 'x w^T',
    make: () => ({
      of: (x, w) => (x as Tensor).matmul((w as Tensor).t()),
      operands: [randn([512, 4096], { device }), randn([640, 4096], { device })],
    }),
  },
  {
    name: 'x^T w',
    make: () => ({
      of: (x, w) => (x as Tensor).t().matmul(w as Tensor),
      operands: [randn([1000, 515], { device }), randn([1000, 1024], { device })],
    }),
  },
  {
    name: 'batches',
    make: () => ({
      of: (x, w) => (x as Tensor).matmul(w as Tensor),
      operands: [randn([3, 600, 517], { device }), randn([3, 517, 530], { device })],
    }),
  },
  {
    name: 'x^T w of an odd number of rows',
    make: () => ({
      of: (x, w) => (x as Tensor).t().matmul(w as Tensor),
      operands: [randn([1001, 515], { device }), randn([1001, 640], { device })],
    }),
  },
  {
    name: 'x^T w^T',
    make: () => ({
      of: (x, w) => (x as Tensor).t().matmul((w as Tensor).t()),
      operands: [randn([1004, 515], { device }), randn([640, 1004], { device })],
    }),
  },
  {
    name: 'batches of whole vectors',
    make: () => ({
      of: (x, w) => (x as Tensor).matmul(w as Tensor),
      operands: [randn([3, 600, 516], { device }), randn([3, 516, 530], { device })],
    }),
  },
  {
    name: 'batches with one matrix for all',
    make: () => ({
      of: (x, w) => (x as Tensor).transpose(1, 2).matmul((w as Tensor).expand(3, 516, 530)),
      operands: [randn([3, 516, 600], { device }), randn([516, 530], { device })],
    }),
  },
  {
    name: 'parts of larger matrices',
    make: () => ({
      of: (x, w) => (x as Tensor).narrow(1, 3, 801).matmul((w as Tensor).narrow(1, 1, 601)),
      operands: [randn([700, 901], { device }), randn([801, 705], { device })],
    }),
  },
  {
    name: 'a sum with a row',
    make: () => ({
      of: (c, x, w) => addmm(c as Tensor, x as Tensor, w as Tensor, { alpha: 0.5 }),
      operands: [
        randn([768], { device }),
        randn([640, 1024], { device }),
        randn([1024, 768], { device }),
      ],
    }),
  },
  {
    name: 'a sum with a matrix',
    make: () => ({
      of: (c, x, w) => addmm(c as Tensor, x as Tensor, w as Tensor, { beta: 2 }),
      operands: [
        randn([640, 768], { device }),
        randn([640, 1024], { device }),
        randn([1024, 768], { device }),
      ],
    }),
  },
  // The float32 kernels split short and medium sums, which makes them more exact.
  ...[512, 800, 1024, 2048, 3000].map((k) => ({
    name: `sums of ${k}`,
    make: () => ({
      of: (x: Tensor | undefined, w: Tensor | undefined) => (x as Tensor).matmul(w as Tensor),
      operands: [randn([515, k], { device }), randn([k, 640], { device })],
    }),
  })),
];

describe('float32 matmul on a GPU', () => {
  before(function () {
    skipWithoutCuda(this);
    if (findLibrary(addon, libraryNamed('cuBLASLt')).found === undefined)
      skipBecause(this, 'no cuBLASLt, which has the products of TF32');
  });
  afterEach(() => setFloat32MatmulPrecision('highest'));

  const under = (precision: Float32MatmulPrecision, work: () => Tensor): Tensor => {
    setFloat32MatmulPrecision(precision);
    return noGrad(work);
  };

  for (const { name, make } of products) {
    it(`has nearly float32 precision with three TF32 products, and TF32 precision with one: ${name}`, async () => {
      const { of, operands } = make();
      const exact = of(...operands.map((t) => t.to(float64)));
      const [highest, three, one] = [
        await errorOf(
          under('highest', () => of(...operands)),
          exact,
        ),
        await errorOf(
          under('tf32x3', () => of(...operands)),
          exact,
        ),
        await errorOf(
          under('high', () => of(...operands)),
          exact,
        ),
      ];
      assert.ok(three < 4 * highest, `three products: ${three}, float32: ${highest}`);
      assert.ok(one > 20 * highest && one < 1e-3, `one product: ${one}, float32: ${highest}`);
    });
  }

  it('keeps values that are too large or too small for the rounding of TF32', async () => {
    const large = randn([512, 512], { device }).sign().mul(3.4028e38);
    const unit = randn([512], { device }).sign().diag();
    const small = randn([512, 512], { device }).mul(1e-30);
    assert.ok(
      under('tf32x3', () => large.matmul(unit)).equal(large.matmul(unit)),
      'of large numbers',
    );
    const error = await errorOf(
      under('tf32x3', () => small.matmul(unit)),
      small.to(float64).matmul(unit.to(float64)),
    );
    assert.ok(error < 1e-6, `of small numbers: ${error}`);
  });

  it('gives the same bits in every run', () => {
    const [a, b] = [randn([1024, 1024], { device }), randn([1024, 1024], { device })];
    const first = under('tf32x3', () => a.matmul(b));
    for (let i = 0; i < 5; i++) assert.ok(under('tf32x3', () => a.matmul(b)).equal(first));
  });

  it('applies the precision to gradients when they are computed', async () => {
    const [a, b, weight] = [
      randn([640, 640], { device, requiresGrad: true }),
      randn([640, 640], { device }),
      randn([640, 640], { device }),
    ];
    const loss = (): Tensor => a.matmul(b).mul(weight).sum();
    loss().backward();
    const exact = a.grad as Tensor;
    a.grad = null;
    const later = loss();
    setFloat32MatmulPrecision('high');
    later.backward();
    const error = await errorOf(a.grad as unknown as Tensor, exact.to(float64));
    assert.ok(error > 1e-6 && error < 1e-2, `${error}`);
  });
});
