/**
 * Random ops have their distribution: randomUniform, randomNormal, randomInteger, randomBernoulli.
 */
import assert from 'node:assert/strict';
import {
  ArgumentError,
  arange,
  DtypeError,
  dropout,
  float64,
  Generator,
  randint,
  randn,
  type Tensor,
  zeros,
} from '../../lib/index.js';

const count = 20_000;
const drawn = (fill: (t: Tensor, options: { generator: Generator }) => Tensor, seed = 5): Tensor =>
  fill(zeros([count], { dtype: float64 }), { generator: new Generator().manualSeed(seed) });

/** Checks mean, variance, skewness and excess kurtosis, each within five standard errors. */
function assertMoments(t: Tensor, mean: number, variance: number, fourth: number): void {
  const centred = t.sub(mean);
  const near = (actual: Tensor, expected: number, scale: number, what: string): void =>
    assert.ok(
      Math.abs(actual.item() - expected) < (5 * scale) / Math.sqrt(count),
      `${what}: ${actual.item()}, expected ${expected}`,
    );
  near(t.mean(), mean, Math.sqrt(variance), 'mean');
  near(centred.square().mean(), variance, Math.sqrt(fourth - variance ** 2), 'variance');
  // Neighbours are independent.
  near(
    centred
      .narrow(0, 0, count - 1)
      .mul(centred.narrow(0, 1, count - 1))
      .mean(),
    0,
    variance,
    'covariance of neighbours',
  );
}

const fills: Record<
  string,
  {
    fill: (t: Tensor, options: { generator: Generator }) => Tensor;
    mean: number;
    variance: number;
    fourth: number;
  }
> = {
  randomUniform: {
    fill: (t, options) => t.uniform_(-1, 3, options),
    mean: 1,
    variance: 16 / 12,
    fourth: 4 ** 4 / 80,
  },
  randomNormal: {
    fill: (t, options) => t.normal_(2, 3, options),
    mean: 2,
    variance: 9,
    fourth: 3 * 81,
  },
  randomInteger: {
    fill: (t, options) => t.random_(-2, 3, options),
    mean: 0,
    variance: 2,
    fourth: 34 / 5,
  },
  randomBernoulli: {
    fill: (t, options) => t.bernoulli_(0.25, options),
    mean: 0.25,
    variance: 3 / 16,
    fourth: 0.25 * 0.75 ** 4 + 0.75 * 0.25 ** 4,
  },
};

describe('random numbers', () => {
  for (const [name, { fill, mean, variance, fourth }] of Object.entries(fills)) {
    it(`have the moments of their distribution: ${name}`, () =>
      assertMoments(drawn(fill), mean, variance, fourth));

    it(`depend on the seed only: ${name}`, () => {
      assert.ok(drawn(fill).equal(drawn(fill)));
      assert.ok(!drawn(fill).equal(drawn(fill, 6)));
    });

    it(`cut the history of the tensor that they overwrite: ${name}`, () => {
      const x = randn([4], { dtype: float64 }).requiresGrad_();
      const y = x.mul(2);
      fill(y.narrow(0, 0, 2), { generator: new Generator().manualSeed(1) });
      y.sum().backward();
      assert.deepEqual(x.grad?.tolist(), [0, 0, 2, 2]);
    });

    it(`do not depend on the layout that they are written into: ${name}`, () => {
      const options = () => ({ generator: new Generator().manualSeed(2) });
      const plain = fill(zeros([3, 5], { dtype: float64 }), options());
      assert.ok(fill(zeros([5, 3], { dtype: float64 }).t(), options()).equal(plain));
      assert.ok(
        fill(zeros([3, 10], { dtype: float64 }).slice(1, 0, null, 2), options()).equal(plain),
      );
    });
  }

  it('lie within their bounds', () => {
    const uniform = drawn((t, options) => t.uniform_(-1, 3, options));
    assert.ok(uniform.amin().item() >= -1 && uniform.amax().item() < 3);
    const whole = randint(-2, 3, [count]);
    assert.deepEqual([Number(whole.amin().item()), Number(whole.amax().item())], [-2, 2]);
  });

  it('require whole bounds, and dtypes that can hold them', () => {
    const message = (fn: () => unknown): string => {
      try {
        fn();
      } catch (error) {
        if (error instanceof ArgumentError || error instanceof DtypeError) return error.message;
      }
      return 'no error';
    };
    assert.equal(
      message(() => randint(0, 2 ** 53, [1])),
      'randint: expected high to be an integer between -2^53 and 2^53, got 9007199254740992',
    );
    assert.equal(
      message(() => randint(0n as unknown as number, 2, [1])),
      'randint: expected low to be an integer between -2^53 and 2^53, got 0n',
    );
    assert.equal(
      message(() => randint(2, 2, [1])),
      'randint: expected low < high, got 2 and 2',
    );
    assert.equal(
      message(() => dropout(arange(8), 0.3)),
      'dropout: expected input to be a floating point tensor, got int64; convert it with .float()',
    );
    assert.deepEqual(dropout(arange(3), 0.3, false).tolist(), [0, 1, 2]);
  });
});
