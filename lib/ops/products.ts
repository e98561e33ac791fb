/** Products and distances written in others: addmv, tensordot, kron, cross, cdist, cosineSimilarity, normalize and their like. */
import { ArgumentError, ShapeError } from '../core/errors.js';
import { broadcastShapes, formatShape, wrapDim } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';
import { defineComposite } from './composite.js';
import { type AddProductOptions, addmm, baddbmm, bmm, linear, matmul, mv } from './matmul.js';
import { requireTensor } from './operand.js';
import { sampleTensor } from './samples.js';

const a34 = () => sampleTensor([3, 4]);

/** beta * input + alpha * mat vec. Gradient: all. @throws ShapeError */
export function addmv(input: Tensor, mat: Tensor, vec: Tensor, { beta = 1, alpha = 1 }: AddProductOptions = {}): Tensor {
  const product = mv(mat, vec);
  const scaled = alpha === 1 ? product : product.mul(alpha);
  return beta === 0 ? scaled : scaled.add(input, { alpha: beta });
}
defineComposite('addmv', addmv, { inPlace: true, samples: () => [[sampleTensor([3]), a34(), sampleTensor([4], { seed: 2 }), { beta: 2, alpha: 3 }]] });

/** beta * input + alpha * the outer product of two vectors. Gradient: all. @throws ShapeError */
export function addr(input: Tensor, vec1: Tensor, vec2: Tensor, { beta = 1, alpha = 1 }: AddProductOptions = {}): Tensor {
  const product = vec1.outer(vec2).mul(alpha);
  return beta === 0 ? product : product.add(input, { alpha: beta });
}
defineComposite('addr', addr, { inPlace: true, samples: () => [[a34(), sampleTensor([3], { seed: 2 }), sampleTensor([4], { seed: 3 })]] });

/** beta * input + alpha * the sum of the products of two batches of matrices. Gradient: all. @throws ShapeError */
export function addbmm(input: Tensor, batch1: Tensor, batch2: Tensor, { beta = 1, alpha = 1 }: AddProductOptions = {}): Tensor {
  const product = bmm(batch1, batch2).sum(0).mul(alpha);
  return beta === 0 ? product : product.add(input, { alpha: beta });
}
defineComposite('addbmm', addbmm, { inPlace: true, samples: () => [[sampleTensor([3, 2]), sampleTensor([2, 3, 4], { seed: 2 }), sampleTensor([2, 4, 2], { seed: 3 })]] });

defineComposite('addmm', addmm, { method: false, samples: () => [[sampleTensor([3, 2]), a34(), sampleTensor([4, 2], { seed: 2 }), { beta: 2 }]] });
defineComposite('baddbmm', baddbmm, {
  method: false,
  inPlace: true,
  samples: () => [[sampleTensor([2, 3, 2]), sampleTensor([2, 3, 4], { seed: 2 }), sampleTensor([2, 4, 2], { seed: 3 }), { alpha: 2 }]],
});
defineComposite('linear', linear, { samples: () => [[a34(), sampleTensor([2, 4], { seed: 2 }), sampleTensor([2], { seed: 3 })]] });

/**
 * Sums of products over dims of both: the last `dims` of the first and the first of the second, or two lists of dims. Gradient: both.
 *
 * @throws ShapeError if summed sizes differ. @throws ArgumentError
 */
export function tensordot(input: Tensor, other: Tensor, dims: number | readonly [readonly number[], readonly number[]] = 2): Tensor {
  requireTensor(input, 'tensordot');
  requireTensor(other, 'tensordot', 'other');
  const [left, right] = summedDims(input, other, dims);
  const keepLeft = input.shape.map((_, i) => i).filter((i) => !left.includes(i));
  const keepRight = other.shape.map((_, i) => i).filter((i) => !right.includes(i));
  const inner = left.map((d) => input.shape[d] as number);
  if (inner.some((s, i) => s !== other.shape[right[i] as number])) {
    throw new ShapeError(`tensordot: dims [${left.join(', ')}] of ${formatShape(input.shape)} and [${right.join(', ')}] of ${formatShape(other.shape)} differ`, {
      op: 'tensordot',
    });
  }
  const size = inner.reduce((n, s) => n * s, 1);
  const count = (t: Tensor, kept: readonly number[]): number => kept.reduce((n, d) => n * (t.shape[d] as number), 1);
  const a = input.permute([...keepLeft, ...left]).reshape([count(input, keepLeft), size]);
  const b = other.permute([...right, ...keepRight]).reshape([size, count(other, keepRight)]);
  return matmul(a, b).reshape([...keepLeft.map((d) => input.shape[d] as number), ...keepRight.map((d) => other.shape[d] as number)]);
}
defineComposite('tensordot', tensordot, {
  method: false,
  samples: () => [
    [sampleTensor([2, 3, 4]), sampleTensor([3, 4, 5], { seed: 2 })],
    [a34(), sampleTensor([2, 3], { seed: 2 }), [[0], [1]]],
  ],
});

function summedDims(a: Tensor, b: Tensor, dims: number | readonly [readonly number[], readonly number[]]): [number[], number[]] {
  if (typeof dims !== 'number') {
    if (dims[0].length !== dims[1].length) throw new ArgumentError('tensordot: the two lists of dims have different lengths', { op: 'tensordot', dims });
    return [dims[0].map((d) => wrapDim(d, a.ndim, 'tensordot')), dims[1].map((d) => wrapDim(d, b.ndim, 'tensordot'))];
  }
  if (!Number.isInteger(dims) || dims < 0 || dims > a.ndim || dims > b.ndim) throw new ArgumentError(`tensordot: cannot sum ${dims} dims`, { op: 'tensordot', dims });
  return [Array.from({ length: dims }, (_, i) => a.ndim - dims + i), Array.from({ length: dims }, (_, i) => i)];
}

/** Sums of products over the last dims; of a scalar, the product. Gradient: both. @throws ShapeError */
export function inner(input: Tensor, other: Tensor): Tensor {
  if (input.ndim === 0 || other.ndim === 0) return input.mul(other);
  return tensordot(input, other, [[-1], [-1]]);
}
defineComposite('inner', inner, { samples: () => [[a34(), sampleTensor([2, 4], { seed: 2 })]] });

/** The Kronecker product. Gradient: both. */
export function kron(input: Tensor, other: Tensor): Tensor {
  const ndim = Math.max(input.ndim, other.ndim);
  const padded = (t: Tensor): number[] => [...Array<number>(ndim - t.ndim).fill(1), ...t.shape];
  const [a, b] = [padded(input), padded(other)];
  const product = input.reshape(a.flatMap((s) => [s, 1])).mul(other.reshape(b.flatMap((s) => [1, s])));
  return product.reshape(a.map((s, i) => s * (b[i] as number)));
}
defineComposite('kron', kron, { samples: () => [[sampleTensor([2, 2]), sampleTensor([3, 2], { seed: 2 })]] });

/** Sum of the diagonal of a matrix. Gradient: yes. @throws ShapeError */
export function trace(input: Tensor): Tensor {
  requireTensor(input, 'trace');
  if (input.ndim !== 2) throw new ShapeError(`trace: expected a matrix, got shape ${formatShape(input.shape)}`, { op: 'trace' });
  return input.diagonal().sum();
}
defineComposite('trace', trace, { samples: () => [[a34()]] });

/** The cross product along a dim of size 3 (the first one if none is given). Gradient: both. @throws ShapeError */
export function cross(input: Tensor, other: Tensor, dim: number | null = null): Tensor {
  const shape = broadcastShapes(input.shape, other.shape, 'cross');
  const at = dim === null ? shape.indexOf(3) : wrapDim(dim, shape.length, 'cross');
  if (shape[at] !== 3) throw new ShapeError(`cross: expected a dim of size 3, got shape ${formatShape(shape)}`, { op: 'cross', shape });
  const [a, b] = [input.expand(shape), other.expand(shape)];
  return a
    .roll(-1, at)
    .mul(b.roll(-2, at))
    .sub(a.roll(-2, at).mul(b.roll(-1, at)));
}
defineComposite('cross', cross, { samples: () => [[sampleTensor([2, 3]), sampleTensor([2, 3], { seed: 2 })]] });

/** The p-norm of the difference. Gradient: both. @throws ShapeError */
export function dist(input: Tensor, other: Tensor, p = 2): Tensor {
  return input.sub(other).norm(p);
}
defineComposite('dist', dist, { samples: () => [[a34(), sampleTensor([4], { seed: 2 })]] });

/** Distances of all pairs of rows: `[..., P, M]` and `[..., R, M]` give `[..., P, R]`. Gradient: both. @throws ShapeError */
export function cdist(x1: Tensor, x2: Tensor, p = 2): Tensor {
  requireTensor(x1, 'cdist', 'x1');
  requireTensor(x2, 'cdist', 'x2');
  if (x1.ndim < 2 || x2.ndim < 2 || x1.size(-1) !== x2.size(-1))
    throw new ShapeError(`cdist: expected rows of one size, got shapes ${formatShape(x1.shape)} and ${formatShape(x2.shape)}`, { op: 'cdist' });
  return x1.unsqueeze(-2).sub(x2.unsqueeze(-3)).norm(p, -1);
}
defineComposite('cdist', cdist, {
  method: false,
  samples: () => [
    [a34(), sampleTensor([2, 4], { seed: 2 })],
    [a34(), sampleTensor([2, 4], { seed: 2 }), 1],
  ],
});

/** The p-norm of the difference of rows, with `eps` added to it. Gradient: both. @throws ShapeError */
export function pairwiseDistance(x1: Tensor, x2: Tensor, { p = 2, eps = 1e-6, keepdim = false } = {}): Tensor {
  return x1.sub(x2).add(eps).norm(p, -1, { keepdim });
}
defineComposite('pairwiseDistance', pairwiseDistance, { method: false, samples: () => [[a34(), sampleTensor([3, 4], { seed: 2 })]] });

/** The cosine of the angle between vectors along a dim. Gradient: both. @throws ShapeError */
export function cosineSimilarity(x1: Tensor, x2: Tensor, { dim = 1, eps = 1e-8 } = {}): Tensor {
  const length = (x: Tensor): Tensor => x.norm(2, dim, { keepdim: true }).clamp({ min: eps });
  return x1
    .div(length(x1))
    .mul(x2.div(length(x2)))
    .sum(dim);
}
defineComposite('cosineSimilarity', cosineSimilarity, { method: false, samples: () => [[a34(), sampleTensor([3, 4], { seed: 2 })]] });

/** Vectors along a dim divided by their p-norm. Gradient: yes. */
export function normalize(input: Tensor, { p = 2, dim = 1, eps = 1e-12 } = {}): Tensor {
  requireTensor(input, 'normalize');
  return input.div(input.norm(p, dim, { keepdim: true }).clamp({ min: eps }));
}
defineComposite('normalize', normalize, { method: false, samples: () => [[a34()], [a34(), { p: 1, dim: 0 }]] });

/** input1^T weight input2 + bias, for each output. Shapes: `[..., i]`, `[..., j]`, weight `[o, i, j]`. Gradient: all. @throws ShapeError */
export function bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | null = null): Tensor {
  const left = tensordot(input1, weight, [[-1], [1]]); // [..., o, j]
  const out = matmul(left, input2.unsqueeze(-1)).squeeze(-1);
  return bias === null ? out : out.add(bias);
}
defineComposite('bilinear', bilinear, { method: false, samples: () => [[a34(), sampleTensor([3, 2], { seed: 2 }), sampleTensor([5, 4, 2], { seed: 3 })]] });

declare module '../core/tensor.js' {
  interface Tensor {
    /** beta * this + alpha * mat vec. Gradient: all. @throws ShapeError */
    addmv(mat: Tensor, vec: Tensor, options?: AddProductOptions): Tensor;
    addmv_(mat: Tensor, vec: Tensor, options?: AddProductOptions): this;
    /** beta * this + alpha * the outer product of two vectors. Gradient: all. @throws ShapeError */
    addr(vec1: Tensor, vec2: Tensor, options?: AddProductOptions): Tensor;
    addr_(vec1: Tensor, vec2: Tensor, options?: AddProductOptions): this;
    /** beta * this + alpha * the summed products of two batches. Gradient: all. @throws ShapeError */
    addbmm(batch1: Tensor, batch2: Tensor, options?: AddProductOptions): Tensor;
    addbmm_(batch1: Tensor, batch2: Tensor, options?: AddProductOptions): this;
    baddbmm_(batch1: Tensor, batch2: Tensor, options?: AddProductOptions): this;
    /** this weight^T + bias. Gradient: all. @throws ShapeError, DtypeError, DeviceError */
    linear(weight: Tensor, bias?: Tensor | null): Tensor;
    /** Sums of products over the last dims. Gradient: both. @throws ShapeError */
    inner(other: Tensor): Tensor;
    /** The Kronecker product. Gradient: both. */
    kron(other: Tensor): Tensor;
    /** Sum of the diagonal of a matrix. Gradient: yes. @throws ShapeError */
    trace(): Tensor;
    /** The cross product along a dim of size 3. Gradient: both. @throws ShapeError */
    cross(other: Tensor, dim?: number | null): Tensor;
    /** The p-norm of the difference. Gradient: both. @throws ShapeError */
    dist(other: Tensor, p?: number): Tensor;
  }
}
