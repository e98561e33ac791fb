/**
 * Second gradients where a formula has a kink but the function has none: ties, errors of 0, legs of
 * 0. Values of PyTorch 1.13 and 2.11.
 */
import assert from 'node:assert/strict';
import {
  autograd,
  float64,
  hypot,
  logaddexp,
  logaddexp2,
  nn,
  type Tensor,
  tensor,
} from '../../lib/index.js';

const { functional: F } = nn;

/** The second derivatives of the sum of `fn`, for each pair of its arguments. */
function secondGradients(
  fn: (...xs: Tensor[]) => Tensor,
  ...values: (number[] | number[][])[]
): unknown[][] {
  const xs = values.map((v) => tensor(v, { dtype: float64, requiresGrad: true }));
  const first = autograd.grad(fn(...xs).sum(), xs, { createGraph: true }) as Tensor[];
  return first.map((g) =>
    (autograd.grad(g.sum(), xs, { retainGraph: true }) as Tensor[]).map((h) => h.tolist()),
  );
}

function assertNear(actual: unknown, expected: unknown): void {
  if (Array.isArray(expected)) {
    assert.equal((actual as unknown[]).length, expected.length);
    expected.forEach((e, i) => {
      assertNear((actual as unknown[])[i], e);
    });
  } else if (Number.isNaN(expected)) assert.ok(Number.isNaN(actual));
  else {
    const tolerance = 1e-12 * Math.max(1e-190, Math.abs(expected as number));
    assert.ok(
      Math.abs((actual as number) - (expected as number)) <= tolerance,
      `${actual}, expected ${expected}`,
    );
  }
}

/** [[a, -a], [-a, a]], for functions of the difference of two operands. */
const ofDifference = (h: number[]): number[][][] => [
  [h, h.map((x) => -x)],
  [h.map((x) => -x), h],
];

describe('second gradients at kinks', () => {
  it('of logaddexp and logaddexp2 are correct where both operands are equal', () => {
    assertNear(
      secondGradients(logaddexp, [1, 2], [1, 1]),
      ofDifference([0.25, 0.19661193324148185]),
    );
    assertNear(
      secondGradients(logaddexp2, [1, 2], [1, 1]),
      ofDifference([0.17328679513998632, 0.15403270679109896]),
    );
  });

  it('of smoothL1Loss and huberLoss are correct where the error is 0', () => {
    assertNear(
      secondGradients((a, b) => F.smoothL1Loss(a, b, { reduction: 'sum' }), [1, 3, 1.5], [1, 1, 1]),
      ofDifference([1, 0, 1]),
    );
    assertNear(
      secondGradients((a, b) => F.huberLoss(a, b, { reduction: 'sum', delta: 2 }), [1, 4], [1, 1]),
      ofDifference([1, 0]),
    );
  });

  it('of hypot are correct where a leg is 0, and far from 1', () => {
    assertNear(secondGradients(hypot, [0, 3, 1], [1, 4, 0]), [
      [
        [1, 0.128, 0],
        [0, -0.096, 0],
      ],
      [
        [0, -0.096, 0],
        [0, 0.072, 1],
      ],
    ]);
    assertNear(secondGradients(hypot, [3e200], [4e200]), [
      [[1.28e-201], [-9.6e-202]],
      [[-9.6e-202], [7.2e-202]],
    ]);
  });

  it('of elu, selu and celu are 0 at 0 and above, even for large inputs', () => {
    const values = [-1, 0, 2, 1e5, Number.POSITIVE_INFINITY];
    assertNear(
      secondGradients((x) => F.elu(x), values),
      [[[0.36787944117144233, 0, 0, 0, 0]]],
    );
    assertNear(
      secondGradients((x) => F.selu(x), values),
      [[[0.646768603034814, 0, 0, 0, 0]]],
    );
    assertNear(
      secondGradients((x) => F.celu(x, { alpha: 2 }), values),
      [[[0.3032653298563167, 0, 0, 0, 0]]],
    );
  });

  it('of cosineSimilarity are 0 for a zero vector', () => {
    const other = tensor([
      [1, 2, 3],
      [1, 2, 3],
    ]).to(float64);
    const vectors = [
      [0, 0, 0],
      [3, 0, 4],
    ];
    assertNear(
      secondGradients((x) => F.cosineSimilarity(x, other), vectors),
      [
        [
          [
            [0, 0, 0],
            [-0.004703797857658662, -0.062004608123682456, -0.020525663378874195],
          ],
        ],
      ],
    );
  });
});
