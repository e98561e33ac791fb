/** Sums whose terms cancel or overflow on the way. */
import assert from 'node:assert/strict';
import { float64, full, layerNorm, nn, optim, type Tensor, tensor } from '../../lib/index.js';

const near = (given: unknown, expected: number, relative: number): void => {
  assert.ok(Math.abs((given as number) - expected) <= relative * Math.abs(expected), `${given} is not ${expected}`);
};

describe('sums on the CPU', () => {
  it('give equal elements no variance, however large they are', () => {
    for (const [count, value] of [
      [1000, 1e8],
      [100_000, 10000.3],
    ] as const) {
      assert.equal(full([count], value).std().item(), 0);
      assert.deepEqual(full([count, 2], value).var(0).tolist(), [0, 0]);
    }
    const normal = layerNorm(full([4, 1000], 1e8), [1000]);
    assert.equal(normal.abs().max().item(), 0);
  });

  it('keep the spread of elements that are far from zero', () => {
    const x = tensor([1e6, 1e6 + 1, 1e6 + 2, 1e6 + 3]);
    near(x.var().item(), 5 / 3, 1e-6);
    near(x.add(1e3).mean().item(), 1001001.5, 1e-7);
    const outlier = tensor([1e8, 1, 2, 3]);
    near(outlier.std().item(), 49999999, 1e-6);
  });

  it('give norms whose squares would overflow or vanish', () => {
    near(full([100_000], 9e17).norm().item(), 9e17 * Math.sqrt(1e5), 1e-5);
    near(full([100_000], 1e-18).norm().item(), 1e-18 * Math.sqrt(1e5), 1e-5);
  });

  it('of a million doubles are right to the last digits, along both dims', () => {
    const x = full([1_000_000, 2], 0.1, { dtype: float64 });
    for (const sum of [x.sum(0), x.t().contiguous().sum(1)]) near((sum.tolist() as number[])[0], 1e5, 1e-13);
  });
});

describe('optimizer steps on the CPU', () => {
  const infinite = (): Tensor => new nn.Parameter(tensor([Number.POSITIVE_INFINITY, 1]));
  const step = (p: Tensor, optimizer: optim.Optimizer): unknown => {
    p.grad = tensor([1, 1]);
    optimizer.step();
    return p.detach().tolist();
  };

  it('of SGD without decay leave an infinite parameter infinite', () => {
    const p = infinite();
    assert.deepEqual(step(p, new optim.SGD([p], { lr: 1 })), [Number.POSITIVE_INFINITY, 0]);
  });

  it('of AMSGrad keep a NaN in the largest second moment', () => {
    const p = new nn.Parameter(tensor([1, 1]));
    const optimizer = new optim.Adam([p], { lr: 0.1, amsgrad: true });
    p.grad = tensor([Number.NaN, 1]);
    optimizer.step();
    const [first, second] = step(p, optimizer) as number[];
    assert.ok(Number.isNaN(first) && Number.isFinite(second));
  });
});
