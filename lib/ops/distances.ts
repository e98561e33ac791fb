/**
 * Distances and similarities of vectors: dist, cdist, pairwiseDistance, cosineSimilarity,
 * normalize.
 */

import { ShapeError } from '../core/errors.js';
import { checkFlag, checkLimit } from '../core/options.js';
import { resultType } from '../core/promotion.js';
import { broadcastShapes, formatShape, wrapDim } from '../core/shape.js';
import { defineFunction, type MethodOf } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { defineComposite } from './composite.js';
import { requireFloating, requirePair, requireTensor } from './operand.js';
import { a34 } from './products.js';
import { sampleTensor } from './samples.js';

/** @throws DtypeError unless the difference has a norm */
function requireDistance(op: string, a: Tensor, b: Tensor): void {
  if (!a.dtype.isFloatingPoint) requireFloating(b, op);
}

/** The p-norm of the difference. Gradient: both. @throws ShapeError */
export const dist = defineComposite(
  'dist',
  defineFunction('dist(input, /, other, p)', (input: Tensor, other: Tensor, p = 2): Tensor => {
    requirePair(input, other, 'dist');
    requireDistance('dist', input, other);
    checkLimit('dist', 'p', p);
    return input.sub(other).norm(p);
  }),
  { samples: () => [[a34(), sampleTensor([4], { seed: 2 })]] },
);

/**
 * Distances of all pairs of rows: `[..., P, M]` and `[..., R, M]` give `[..., P, R]`. Gradient:
 * both. @throws ShapeError
 */
export const cdist = defineComposite(
  'cdist',
  defineFunction('cdist(x1, /, x2, p)', (x1: Tensor, x2: Tensor, p = 2): Tensor => {
    requireTensor(x1, 'cdist', 'x1');
    requireTensor(x2, 'cdist', 'x2');
    checkLimit('cdist', 'p', p);
    requireDistance('cdist', x1, x2);
    if (x1.ndim < 2 || x2.ndim < 2 || x1.size(-1) !== x2.size(-1))
      throw new ShapeError(
        `cdist: expected rows of one size, got shapes ${formatShape(x1.sizes)} and ` +
          `${formatShape(x2.sizes)}`,
        { op: 'cdist' },
      );
    return x1.unsqueeze(-2).sub(x2.unsqueeze(-3)).norm(p, -1);
  }),
  {
    method: false,
    samples: () => [
      [a34(), sampleTensor([2, 4], { seed: 2 })],
      [a34(), sampleTensor([2, 4], { seed: 2 }), 1],
    ],
  },
);

/**
 * The p-norm of the difference of rows, with `eps` added to it. Gradient: both. @throws ShapeError
 */
export const pairwiseDistance = defineComposite(
  'pairwiseDistance',
  defineFunction(
    'pairwiseDistance(x1, /, x2, p, eps, keepdim)',
    (x1: Tensor, x2: Tensor, p = 2, eps = 1e-6, keepdim = false): Tensor => {
      requireTensor(x1, 'pairwiseDistance', 'x1');
      requirePair(x1, x2, 'pairwiseDistance', 'x2');
      requireDistance('pairwiseDistance', x1, x2);
      checkFlag('pairwiseDistance', 'keepdim', keepdim);
      checkLimit('pairwiseDistance', 'p', p);
      return x1.sub(x2).add(eps).norm(p, -1, keepdim);
    },
  ),
  {
    method: false,
    samples: () => [[a34(), sampleTensor([3, 4], { seed: 2 })]],
  },
);

/**
 * The cosine of the angle between vectors along a dim (1), each length at least `eps` (1e-8).
 * Shapes: both broadcast first; the result has the common shape without the dim. Dtypes: promoted,
 * one of them floating. Gradient: both.
 *
 * @throws ShapeError if shapes do not broadcast; IndexError for a dim out of range of the common
 * shape; DtypeError unless one is floating
 */
export const cosineSimilarity = defineComposite(
  'cosineSimilarity',
  defineFunction(
    'cosineSimilarity(x1, /, x2, dim, eps)',
    (x1: Tensor, x2: Tensor, dim = 1, eps = 1e-8): Tensor => {
      requireTensor(x1, 'cosineSimilarity', 'x1');
      requirePair(x1, x2, 'cosineSimilarity', 'x2');
      requireDistance('cosineSimilarity', x1, x2);
      const [shape, dtype] = [
        broadcastShapes(x1.sizes, x2.sizes, 'cosineSimilarity'),
        resultType([x1, x2]),
      ];
      wrapDim(dim, shape.length, 'cosineSimilarity');
      const [a, b] = [x1.to(dtype).expand(shape), x2.to(dtype).expand(shape)];
      const length = (x: Tensor): Tensor => x.norm(2, dim, { keepdim: true }).clamp({ min: eps });
      return a
        .div(length(a))
        .mul(b.div(length(b)))
        .sum(dim);
    },
  ),
  {
    method: false,
    samples: () => [[a34(), sampleTensor([3, 4], { seed: 2 })]],
  },
);

/** Vectors along a dim divided by their p-norm. Gradient: yes. */
export const normalize = defineComposite(
  'normalize',
  defineFunction(
    'normalize(input, /, p, dim, eps)',
    (input: Tensor, p = 2, dim = 1, eps = 1e-12): Tensor => {
      requireTensor(input, 'normalize');
      requireFloating(input, 'normalize');
      wrapDim(dim, input.ndim, 'normalize');
      checkLimit('normalize', 'p', p);
      return input.div(input.norm(p, dim, true).clamp({ min: eps }));
    },
  ),
  {
    method: false,
    samples: () => [[a34()], [a34(), { p: 1, dim: 0 }]],
  },
);

declare module '../core/tensor.js' {
  interface Tensor {
    /** The p-norm of the difference. Gradient: both. @throws ShapeError */
    dist: MethodOf<typeof dist>;
  }
}
