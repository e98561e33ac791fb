/** Reductions where a naive formula loses digits or leaves the range of the dtype. */
import assert from 'node:assert/strict';
import {
  arange,
  bfloat16,
  concat,
  float32,
  float64,
  full,
  nn,
  ones,
  randn,
  type Tensor,
  tensor,
  zeros,
} from '../../lib/index.js';

const list = (t: Tensor): number[] => t.flatten().tolist() as number[];

/** `actual` differs from `expected` by at most `relative` of it. */
function near(actual: number, expected: number, relative: number): void {
  assert.ok(
    Math.abs(actual - expected) <= relative * Math.abs(expected),
    `${actual} is not ${expected}`,
  );
}

describe('the variance', () => {
  for (const value of [1e8, 10000.3, 3.3, 1e-20, 3e38, -7e18])
    for (const dtype of [undefined, float64]) {
      const of = (size: number[]): Tensor => full(size, value, dtype ? { dtype } : {});
      it(`of ${value} alone is 0 in ${dtype ?? 'float32'}, over everything, rows and columns`, () => {
        const all = [
          of([1000]).std(),
          of([100_000]).std(),
          of([300_001]).var(),
          of([3, 5000]).var(1),
          of([5000, 3]).var(0),
          of([2, 3, 700]).var([0, 2]),
        ];
        for (const t of all)
          assert.ok(
            list(t).every((v) => v === 0),
            `${list(t)}`,
          );
      });
    }

  it('keeps the digits of small steps on a large offset', () => {
    const n = 200_000;
    const steps = arange(n).float().remainder(2); // variance 1/4 * n / (n - 1)
    for (const offset of [1e4, 1e6, 1e7])
      near(steps.add(offset).var().item(), (0.25 * n) / (n - 1), 1e-6);
    // all variance lies between the chunks of the threads
    const mixed = concat([zeros([70_000]), ones([70_000])]);
    near(mixed.add(1e6).var(undefined, { correction: 0 }).item(), 0.25, 1e-6);
  });

  it('of columns equals that of rows', () => {
    // Sizes around the numbers of rows and columns that kernels reduce together.
    for (const [rows, columns] of [
      [1, 3],
      [2, 1],
      [63, 5],
      [64, 513],
      [65, 512],
      [129, 1025],
      [4097, 7],
    ] as const)
      for (const dtype of [float64, float32, bfloat16]) {
        const x = randn([rows, columns], { dtype: float64 }).mul(3).add(1000).to(dtype);
        const want = x.to(float64).t().contiguous();
        const same = (got: Tensor, exact: Tensor, what: string): void => {
          const room = dtype === float64 ? 1e-9 : dtype === float32 ? 1e-5 : 1e-2;
          assert.deepEqual(got.shape, [columns]);
          assert.ok(
            got.to(float64).allclose(exact, { rtol: room, atol: 0, equalNan: true }),
            `${what} of ${dtype} [${rows}, ${columns}]`,
          );
        };
        same(x.var(0), want.var(1), 'the variance');
        same(
          x.var(0, { correction: 0 }),
          want.var(1, { correction: 0 }),
          'the variance without a correction',
        );
        same(x.std(0), want.std(1), 'the standard deviation');
      }
  });

  it('of a column with NaN is NaN, and other columns are unaffected', () => {
    const x = randn([200, 600]);
    const before = list(x.var(0));
    x.narrow(1, 7, 1).narrow(0, 130, 1).fill_(Number.NaN);
    x.narrow(1, 9, 1).narrow(0, 0, 1).fill_(Number.POSITIVE_INFINITY);
    for (const [i, value] of list(x.var(0)).entries())
      assert.ok(
        i === 7 || i === 9 ? Number.isNaN(value) : value === before[i],
        `column ${i}: ${value}`,
      );
  });

  it('does not depend on the first element', () => {
    near(tensor([1e8, 1, 2, 3]).std().item(), 49999999, 1e-6);
  });

  it('is infinite or NaN only where it must be', () => {
    near(tensor([3e38, -3e38], { dtype: float64 }).var().item(), 1.8e77, 1e-12);
    near(
      full([4096], 1e18).mul(arange(4096).float().remainder(2)).var().item(),
      2.5e35 * (4096 / 4095),
      1e-5,
    );
    assert.ok(Number.isNaN(tensor([1, Infinity]).var().item()));
    assert.ok(Number.isNaN(tensor([1, Number.NaN]).var().item()));
    assert.ok(Number.isNaN(zeros([0]).var().item()));
    assert.equal(tensor([3]).var(undefined, { correction: 0 }).item(), 0);
  });
});

describe('the norm', () => {
  it('stays in range even if squares do not', () => {
    for (const value of [9e17, 1e19, 1e30, 1.1e-18, 1e-22, 1e-30]) {
      near(full([100_000], value).norm().item(), value * Math.sqrt(100_000), 1e-6);
      for (const v of list(full([2, 3000], value).norm(2, 1)))
        near(v, value * Math.sqrt(3000), 1e-6);
      for (const v of list(full([3000, 2], value).norm(2, 0)))
        near(v, value * Math.sqrt(3000), 1e-6);
    }
  });

  it('of all gradients stays in range even if squares do not', () => {
    const p = new nn.Parameter(zeros([100_000]));
    p.grad = full([100_000], 9e17);
    near(nn.utils.clipGradNorm_([p], 1).item(), 9e17 * Math.sqrt(100_000), 1e-6);
  });

  it('of long rows is exact to the last digits for every order', () => {
    const x = full([3_000_000], 0.1);
    const value = Math.fround(0.1);
    near(x.norm(1).item(), value * 3e6, 2e-7);
    near(x.norm(3).item(), value * 3e6 ** (1 / 3), 2e-7);
    assert.deepEqual(
      [x.norm(Infinity).item(), x.norm(-Infinity).item(), x.norm(0).item()],
      [value, value, 3e6],
    );
    near(x.logsumexp(0).item(), value + Math.log(3e6), 2e-7);
  });

  it('propagates NaN and infinity for every order', () => {
    for (const order of [1, 2, 3, Infinity, -Infinity])
      assert.ok(Number.isNaN(tensor([1, Number.NaN, 2]).norm(order).item()), `${order}`);
    for (const order of [1, 2, 3, Infinity])
      assert.equal(tensor([1, -Infinity]).norm(order).item(), Infinity);
  });
});

describe('logsumexp over several chunks', () => {
  it('subtracts the maximum of all chunks', () => {
    const low = full([5000], -1e4);
    near(
      concat([low, tensor([500]), low])
        .logsumexp(0)
        .item(),
      500,
      1e-7,
    );
    assert.equal(
      concat([full([5000], -Infinity), tensor([-700])])
        .logsumexp(0)
        .item(),
      -700,
    );
    assert.equal(full([5000], -Infinity).logsumexp(0).item(), -Infinity);
    assert.equal(
      concat([low, tensor([Infinity]), low])
        .logsumexp(0)
        .item(),
      Infinity,
    );
    assert.ok(
      Number.isNaN(
        concat([low, tensor([Number.NaN]), low])
          .logsumexp(0)
          .item(),
      ),
    );
  });
});

describe('a sum of many rows', () => {
  it('has the same precision over columns as over rows', () => {
    const n = 1_000_000;
    for (const v of list(full([n, 2], 0.1, { dtype: float64 }).sum(0))) near(v, n * 0.1, 1e-14);
    for (const v of list(full([2, n], 0.1, { dtype: float64 }).sum(1))) near(v, n * 0.1, 1e-14);
    for (const v of list(full([n, 2], 0.1, { dtype: float64 }).mean(0))) near(v, 0.1, 1e-14);
    for (const v of list(full([100_000, 2], 1 + 1e-9, { dtype: float64 }).prod(0)))
      near(v, Math.exp(1e5 * Math.log1p(1e-9)), 1e-11);
  });
});
