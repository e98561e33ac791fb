/** The GPU checks what multinomial and bernoulli draw by, as the CPU does. */
import assert from 'node:assert/strict';
import {
  bernoulli,
  type DType,
  float16,
  float32,
  float64,
  KernelError,
  manualSeed,
  multinomial,
  ones,
  rand,
  type Tensor,
  tensor,
  zeros,
} from '../../lib/index.js';
import { skipWithoutCuda } from '../skip.js';
import { countReads } from './count-reads.js';

const device = 'cuda' as const;
const { NaN: nan, POSITIVE_INFINITY: infinity } = Number;
const onGpu = (values: number | number[] | number[][], dtype: DType = float32): Tensor =>
  tensor(values, { device, dtype });

describe('a draw on a GPU', () => {
  before(function () {
    skipWithoutCuda(this);
  });

  const refused: Record<string, [draw: () => Tensor, expected: RegExp]> = {
    'a weight below 0': [
      () => multinomial(onGpu([1, -2]), 1),
      /multinomial(_weights)?: expected finite weights of 0 or more, got -2 at position 1/,
    ],
    'an infinite weight in float16': [
      () =>
        multinomial(
          onGpu(
            [
              [1, 1],
              [infinity, 1],
            ],
            float16,
          ),
          1,
          { replacement: true },
        ),
      /got inf at position 2/,
    ],
    'a row without weights': [
      () =>
        multinomial(
          onGpu([
            [1, 1],
            [0, 0],
          ]),
          1,
        ),
      /expected a positive sum of weights in row 1/,
    ],
    'a long row without weights': [
      () => multinomial(zeros([2, 70_000], { device }), 3),
      /expected a positive sum of weights in row [01]/,
    ],
    'fewer weights than draws': [
      () => multinomial(onGpu([1, 0, 1]), 3),
      /expected 3 weights above 0 or replacement, got 2 in row 0/,
    ],
    'a probability above 1': [
      () => bernoulli(onGpu([0.5, 2], float64)),
      /bernoulli(_probabilities)?: expected probabilities between 0 and 1, got 2 at position 1/,
    ],
    'a probability that is no number': [() => bernoulli(onGpu(nan)), /got -?nan at position 0/],
  };
  for (const [what, [draw, expected]] of Object.entries(refused))
    it(`reports ${what} when values are read, and works afterwards`, () => {
      assert.throws(
        () => draw().tolist(),
        (error: unknown) => error instanceof KernelError && expected.test(error.message),
      );
      assert.deepEqual(multinomial(onGpu([0, 1]), 1).tolist(), [1]);
    });

  it('does not wait for values', () => {
    const weights = ones([3, 4], { device }).div(2);
    const draw = () => [multinomial(weights, 2), bernoulli(weights)];
    assert.equal(countReads(draw), 0);
  });

  it('gives the numbers of the CPU, for rows of any length', () => {
    for (const n of [1, 31, 256, 257, 5000]) {
      const weights = rand([3, n]).add(0.01);
      const drawn = [weights, weights.to(device)].map((w) => {
        manualSeed(3);
        return bernoulli(w.clamp({ max: 1 })).tolist();
      });
      assert.deepEqual(drawn[1], drawn[0]);
    }
  });
});
