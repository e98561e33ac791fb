/** multinomial and bernoulli do not look at values when they are called: the kernel checks them. */
import assert from 'node:assert/strict';
import {
  bernoulli,
  float16,
  float64,
  int64,
  KernelError,
  manualSeed,
  multinomial,
  ones,
  type Tensor,
  tensor,
} from '../../lib/index.js';
import { countReads } from './count-reads.js';

const { NaN: nan, POSITIVE_INFINITY: infinity } = Number;

describe('a draw by values of tensors', () => {
  const draws: Record<string, (t: Tensor) => Tensor> = {
    bernoulli: (t) => bernoulli(t),
    multinomial: (t) => multinomial(t, 2),
    'multinomial with replacement': (t) => multinomial(t, 5, { replacement: true }),
  };
  for (const [name, draw] of Object.entries(draws))
    it(`does not wait for values: ${name}`, () => {
      const weights = ones([3, 4]).div(2);
      assert.equal(
        countReads(() => draw(weights)),
        0,
      );
    });

  const refused: Record<string, [draw: () => Tensor, expected: RegExp]> = {
    'a weight below 0': [
      () => multinomial(tensor([1, -2]), 1),
      /^multinomial: .*: expected finite weights of 0 or more, got -2 at position 1/,
    ],
    'a weight that is no number': [
      () => multinomial(tensor([1, nan]), 1, { replacement: true }),
      /finite weights of 0 or more, got nan at position 1/,
    ],
    'an infinite weight in float16': [
      () =>
        multinomial(
          tensor(
            [
              [1, 1],
              [infinity, 1],
            ],
            { dtype: float16 },
          ),
          1,
        ),
      /finite weights of 0 or more, got inf at position 2/,
    ],
    'an infinite weight': [() => multinomial(tensor([infinity, 1]), 1), /got inf/],
    'a row without weights': [
      () =>
        multinomial(
          tensor([
            [1, 1],
            [0, 0],
          ]),
          1,
          { replacement: true },
        ),
      /expected a positive sum of weights in row 1/,
    ],
    'fewer weights than draws': [
      () => multinomial(tensor([1, 0, 1]), 3),
      /expected 3 weights above 0 or replacement, got 2 in row 0/,
    ],
    'a negative integer': [
      () => multinomial(tensor([3, -1], { dtype: int64 }), 1),
      /got -1 at position 1/,
    ],
    'a probability above 1': [
      () => bernoulli(tensor([0.5, 2], { dtype: float64 })),
      /^bernoulli: .*: expected probabilities between 0 and 1, got 2 at position 1/,
    ],
    'a probability that is no number': [() => bernoulli(tensor(nan)), /got nan at position 0/],
  };
  for (const [what, [draw, expected]] of Object.entries(refused))
    it(`reports ${what} when its values are read, or before`, () =>
      assert.throws(
        () => draw().tolist(),
        (error: unknown) => {
          assert.ok(error instanceof KernelError, String(error));
          assert.match(error.message, expected);
          assert.match(error.stack ?? '', /sampling\.test\.[jt]s/);
          return true;
        },
      ));

  it('gives what float32 probabilities give, in each dtype', () => {
    const expected = ones([64]).div(4);
    const drawn = [expected, expected.to(float16), expected.to(float64)].map((p) => {
      manualSeed(7);
      return bernoulli(p);
    });
    assert.deepEqual(drawn[1]?.float().tolist(), drawn[0]?.tolist());
    assert.equal(drawn[2]?.dtype, float64);
    assert.equal(drawn[1]?.dtype, float16);
  });

  it('takes rows without elements, and no rows', () => {
    assert.deepEqual(bernoulli(ones([0, 3])).shape, [0, 3]);
    assert.deepEqual(multinomial(ones([0, 3]), 2).shape, [0, 2]);
  });
});

describe('multinomial', () => {
  it('draws each index once unless replacement is true', () => {
    const drawn = multinomial(tensor([1, 0, 1, 5]), 3).tolist() as number[];
    assert.deepEqual([...drawn].sort(), [0, 2, 3]);
    assert.equal(
      multinomial(tensor([0, 1]), 5, { replacement: true })
        .sum()
        .item(),
      5,
    );
  });
});
