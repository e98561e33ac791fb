/**
 * Products written in other ops: addmv, addr, addbmm, tensordot, inner, kron, trace, cross,
 * bilinear.
 */

import { autocastOperands } from '../core/autocast.js';
import { ArgumentError, DtypeError, ShapeError } from '../core/errors.js';
import { checkIntegers, unexpected } from '../core/options.js';
import { broadcastShapes, formatShape, wrapDim } from '../core/shape.js';
import { defineFunction, type MethodOf } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { defineComposite } from './composite.js';
import { type AddProductOptions, addmm, baddbmm, linear } from './linear.js';
import { bmm, matmul, mv, requireBatches, requireDims, requireProduct } from './matmul.js';
import { requireNumbers, requirePair, requireTensor } from './operand.js';
import { reshapeIfNeeded } from './reshape-if-needed.js';
import { sampleTensor } from './samples.js';

/** @internal */
export const a34 = () => sampleTensor([3, 4]);

/** beta * input + alpha * product. With beta 0 the input is not read: it may hold NaN. */
function addedTo(input: Tensor, product: Tensor, beta: number, alpha: number): Tensor {
  const scaled = alpha === 1 ? product : product.mul(alpha);
  return beta === 0 ? scaled : scaled.add(input, { alpha: beta });
}

/** beta * input + alpha * mat vec. Gradient: all. @throws ShapeError */
export const addmv = defineComposite(
  'addmv',
  defineFunction(
    'addmv(input, /, mat, vec, *, beta, alpha)',
    (
      input: Tensor,
      mat: Tensor,
      vec: Tensor,
      { beta = 1, alpha = 1 }: AddProductOptions = {},
    ): Tensor => {
      requireTensor(input, 'addmv');
      requireTensor(mat, 'addmv', 'mat');
      requireTensor(vec, 'addmv', 'vec');
      requireDims('addmv', mat, 2, 'mat');
      requireDims('addmv', vec, 1, 'vec');
      requireProduct('addmv', mat, vec.unsqueeze(1));
      broadcastShapes(input.sizes, mat.sizes.slice(0, 1), 'addmv');
      return addedTo(input, mv(mat, vec), beta, alpha);
    },
  ),
  {
    inPlace: true,
    samples: () => [
      [sampleTensor([3]), a34(), sampleTensor([4], { seed: 2 }), { beta: 2, alpha: 3 }],
    ],
  },
);

/** beta * input + alpha * the outer product of two vectors. Gradient: all. @throws ShapeError */
export const addr = defineComposite(
  'addr',
  defineFunction(
    'addr(input, /, vec1, vec2, *, beta, alpha)',
    (
      input: Tensor,
      vec1: Tensor,
      vec2: Tensor,
      { beta = 1, alpha = 1 }: AddProductOptions = {},
    ): Tensor => {
      requireTensor(input, 'addr');
      requireTensor(vec1, 'addr', 'vec1');
      requireTensor(vec2, 'addr', 'vec2');
      requireDims('addr', vec1, 1, 'vec1');
      requireDims('addr', vec2, 1, 'vec2');
      broadcastShapes(input.sizes, [vec1.numel(), vec2.numel()], 'addr');
      return addedTo(input, vec1.outer(vec2), beta, alpha);
    },
  ),
  {
    inPlace: true,
    samples: () => [[a34(), sampleTensor([3], { seed: 2 }), sampleTensor([4], { seed: 3 })]],
  },
);

/**
 * beta * input + alpha * the sum of the products of two batches of matrices. Gradient: all. @throws
 * ShapeError
 */
export const addbmm = defineComposite(
  'addbmm',
  defineFunction(
    'addbmm(input, /, batch1, batch2, *, beta, alpha)',
    (
      input: Tensor,
      batch1: Tensor,
      batch2: Tensor,
      { beta = 1, alpha = 1 }: AddProductOptions = {},
    ): Tensor => {
      requireTensor(input, 'addbmm');
      requireTensor(batch1, 'addbmm', 'batch1');
      requireTensor(batch2, 'addbmm', 'batch2');
      requireBatches('addbmm', batch1, batch2, ['batch1', 'batch2']);
      broadcastShapes(
        input.sizes,
        [batch1.sizes[1] as number, batch2.sizes[2] as number],
        'addbmm',
      );
      const products = bmm(batch1, batch2);
      return addedTo(input, products.sum(0, { dtype: products.dtype }), beta, alpha);
    },
  ),
  {
    inPlace: true,
    samples: () => [
      [
        sampleTensor([3, 2]),
        sampleTensor([2, 3, 4], { seed: 2 }),
        sampleTensor([2, 4, 2], { seed: 3 }),
      ],
    ],
  },
);

defineComposite('addmm', addmm, {
  method: false,
  samples: () => [[sampleTensor([3, 2]), a34(), sampleTensor([4, 2], { seed: 2 }), { beta: 2 }]],
});
defineComposite('baddbmm', baddbmm, {
  method: false,
  inPlace: true,
  samples: () => [
    [
      sampleTensor([2, 3, 2]),
      sampleTensor([2, 3, 4], { seed: 2 }),
      sampleTensor([2, 4, 2], { seed: 3 }),
      { alpha: 2 },
    ],
  ],
});
defineComposite('linear', linear, {
  samples: () => [[a34(), sampleTensor([2, 4], { seed: 2 }), sampleTensor([2], { seed: 3 })]],
});

/** Sums a dim of this tensor first if the other tensor has size 1 there and would be stretched. */
function stretchedSum(
  t: Tensor,
  dims: readonly number[],
  other: Tensor,
  otherDims: readonly number[],
): Tensor {
  const stretched = dims.filter(
    (d, i) => other.sizes[otherDims[i] as number] === 1 && t.sizes[d] !== 1,
  );
  return stretched.length > 0 ? t.sum(stretched, { keepdim: true, dtype: t.dtype }) : t;
}

/**
 * Sums of products over dims of both: the last `dims` of the first and the first of the second, or
 * two lists of dims; a size of 1 stretches. Gradient: both.
 *
 * @throws ShapeError if other summed sizes differ. @throws ArgumentError
 */
export const tensordot = defineComposite(
  'tensordot',
  defineFunction(
    'tensordot(input, /, other, dims)',
    (input: Tensor, other: Tensor, dims: SummedDims = 2): Tensor => {
      requireTensor(input, 'tensordot');
      requireTensor(other, 'tensordot', 'other');
      const [left, right] = summedDims('tensordot', input, other, dims);
      return sumOverDims(
        'tensordot',
        stretchedSum(input, left, other, right),
        stretchedSum(other, right, input, left),
        [left, right],
      );
    },
  ),
  {
    method: false,
    samples: () => [
      [sampleTensor([2, 3, 4]), sampleTensor([3, 4, 5], { seed: 2 })],
      [a34(), sampleTensor([2, 3], { seed: 2 }), [[0], [1]]],
    ],
  },
);

type SummedDims = number | readonly [readonly number[], readonly number[]];

function sumOverDims(op: string, input: Tensor, other: Tensor, dims: SummedDims): Tensor {
  const [left, right] = summedDims(op, input, other, dims);
  const keepLeft = input.sizes.map((_, i) => i).filter((i) => !left.includes(i));
  const keepRight = other.sizes.map((_, i) => i).filter((i) => !right.includes(i));
  const inner = left.map((d) => input.sizes[d] as number);
  if (inner.some((s, i) => s !== other.sizes[right[i] as number])) {
    throw new ShapeError(
      `${op}: dims [${left.join(', ')}] of ${formatShape(input.sizes)} and ` +
        `[${right.join(', ')}] of ${formatShape(other.sizes)} differ`,
      { op },
    );
  }
  const size = inner.reduce((n, s) => n * s, 1);
  const count = (t: Tensor, kept: readonly number[]): number =>
    kept.reduce((n, d) => n * (t.sizes[d] as number), 1);
  const a = reshapeIfNeeded(input.permute([...keepLeft, ...left]), [count(input, keepLeft), size]);
  const b = reshapeIfNeeded(other.permute([...right, ...keepRight]), [
    size,
    count(other, keepRight),
  ]);
  requireProduct(op, a, b);
  return reshapeIfNeeded(matmul(a, b), [
    ...keepLeft.map((d) => input.sizes[d] as number),
    ...keepRight.map((d) => other.sizes[d] as number),
  ]);
}

function summedDims(op: string, a: Tensor, b: Tensor, dims: SummedDims): [number[], number[]] {
  if (typeof dims !== 'number') {
    if (!Array.isArray(dims) || dims.length !== 2)
      throw unexpected(op, 'dims', 'a number, or two lists of dims', dims);
    for (const list of dims) checkIntegers(op, 'dims', list);
    if (dims[0].length !== dims[1].length)
      throw new ArgumentError(`${op}: the two lists of dims have different lengths`, { op, dims });
    return [dims[0].map((d) => wrapDim(d, a.ndim, op)), dims[1].map((d) => wrapDim(d, b.ndim, op))];
  }
  if (!Number.isInteger(dims) || dims < 0 || dims > a.ndim || dims > b.ndim)
    throw new ArgumentError(`${op}: cannot sum ${dims} dims`, { op, dims });
  return [
    Array.from({ length: dims }, (_, i) => a.ndim - dims + i),
    Array.from({ length: dims }, (_, i) => i),
  ];
}

/**
 * Sums of products over the last dims; of a scalar, the product. Gradient: both. @throws ShapeError
 */
export const inner = defineComposite(
  'inner',
  (input: Tensor, other: Tensor): Tensor => {
    requireTensor(input, 'inner');
    requireTensor(other, 'inner', 'other');
    if (input.ndim === 0 || other.ndim === 0) return input.mul(other);
    return sumOverDims('inner', input, other, [[-1], [-1]]);
  },
  { samples: () => [[a34(), sampleTensor([2, 4], { seed: 2 })]] },
);

/** The Kronecker product. Gradient: both. */
export const kron = defineComposite(
  'kron',
  (input: Tensor, other: Tensor): Tensor => {
    requireTensor(input, 'kron');
    requireTensor(other, 'kron', 'other');
    const ndim = Math.max(input.ndim, other.ndim);
    const padded = (t: Tensor): number[] => [...Array<number>(ndim - t.ndim).fill(1), ...t.sizes];
    const [a, b] = [padded(input), padded(other)];
    const product = input
      .reshape(a.flatMap((s) => [s, 1]))
      .mul(other.reshape(b.flatMap((s) => [1, s])));
    return product.reshape(a.map((s, i) => s * (b[i] as number)));
  },
  {
    samples: () => [[sampleTensor([2, 2]), sampleTensor([3, 2], { seed: 2 })]],
  },
);

/** Sum of the diagonal of a matrix. Gradient: yes. @throws ShapeError */
export const trace = defineComposite(
  'trace',
  (input: Tensor): Tensor => {
    requireTensor(input, 'trace');
    if (input.ndim !== 2)
      throw new ShapeError(`trace: expected a matrix, got shape ${formatShape(input.sizes)}`, {
        op: 'trace',
      });
    return input.diagonal().sum();
  },
  { samples: () => [[a34()]] },
);

/**
 * The cross product along a dim of size 3 (the first one if none is given). Gradient: both. @throws
 * ShapeError
 */
export const cross = defineComposite(
  'cross',
  defineFunction(
    'cross(input, /, other, dim)',
    (input: Tensor, other: Tensor, dim: number | null = null): Tensor => {
      requirePair(input, other, 'cross');
      requireNumbers('cross', input, other);
      const shape = broadcastShapes(input.sizes, other.sizes, 'cross');
      const at = dim === null ? shape.indexOf(3) : wrapDim(dim, shape.length, 'cross');
      if (shape[at] !== 3)
        throw new ShapeError(`cross: expected a dim of size 3, got shape ${formatShape(shape)}`, {
          op: 'cross',
          shape,
        });
      const [a, b] = [input.expand(shape), other.expand(shape)];
      return a
        .roll(-1, at)
        .mul(b.roll(-2, at))
        .sub(a.roll(-2, at).mul(b.roll(-1, at)));
    },
  ),
  {
    samples: () => [[sampleTensor([2, 3]), sampleTensor([2, 3], { seed: 2 })]],
  },
);

/** @throws ShapeError, DtypeError naming all shapes */
function checkBilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | null): void {
  const shapes = (): string =>
    `input1 ${formatShape(input1.sizes)}, input2 ${formatShape(input2.sizes)}, weight ` +
    `${formatShape(weight.sizes)}`;
  if (input1.ndim === 0 || input2.ndim === 0 || weight.ndim !== 3)
    throw new ShapeError(`bilinear: expected [..., i], [..., j] and [o, i, j], got ${shapes()}`, {
      op: 'bilinear',
    });
  broadcastShapes(input1.sizes.slice(0, -1), input2.sizes.slice(0, -1), 'bilinear');
  if (input1.dtype !== weight.dtype || input2.dtype !== weight.dtype) {
    const [x, y, w] = autocastOperands('low precision', [input1, input2, weight] as const);
    if (x.dtype !== w.dtype || y.dtype !== w.dtype)
      throw new DtypeError(
        `bilinear: expected equal dtypes, got ${x.dtype.name}, ${y.dtype.name} and ${w.dtype.name}`,
        { op: 'bilinear' },
      );
  }
  if (input1.sizes.at(-1) !== weight.sizes[1] || input2.sizes.at(-1) !== weight.sizes[2])
    throw new ShapeError(
      `bilinear: the last sizes of the inputs differ from the weight's: ${shapes()}`,
      { op: 'bilinear' },
    );
  if (bias !== null && (bias.ndim !== 1 || bias.sizes[0] !== weight.sizes[0]))
    throw new ShapeError(
      `bilinear: expected a bias of shape ${formatShape(weight.sizes.slice(0, 1))}, got ` +
        `${formatShape(bias.sizes)}`,
      { op: 'bilinear' },
    );
}

/**
 * input1^T weight input2 + bias, for each output. Shapes: `[..., i]`, `[..., j]`, weight `[o, i,
 * j]`. Gradient: all. @throws ShapeError
 */
export const bilinear = defineComposite(
  'bilinear',
  defineFunction(
    'bilinear(input1, /, input2, weight, bias)',
    (input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | null = null): Tensor => {
      requireTensor(input1, 'bilinear', 'input1');
      requireTensor(input2, 'bilinear', 'input2');
      requireTensor(weight, 'bilinear', 'weight');
      if (bias !== null) requireTensor(bias, 'bilinear', 'bias');
      checkBilinear(input1, input2, weight, bias);
      const left = tensordot(input1, weight, [[-1], [1]]); // [..., o, j]
      const out = matmul(left, input2.unsqueeze(-1)).squeeze(-1);
      return bias === null ? out : out.add(bias);
    },
  ),
  {
    method: false,
    samples: () => [
      [a34(), sampleTensor([3, 2], { seed: 2 }), sampleTensor([5, 4, 2], { seed: 3 })],
    ],
  },
);

declare module '../core/tensor.js' {
  interface Tensor {
    /** beta * this + alpha * mat vec. Gradient: all. @throws ShapeError */
    addmv: MethodOf<typeof addmv>;
    /** Writes the result of `addmv` into this tensor. */
    addmv_: MethodOf<typeof addmv, this>;
    /** beta * this + alpha * the outer product of two vectors. Gradient: all. @throws ShapeError */
    addr: MethodOf<typeof addr>;
    /** Writes the result of `addr` into this tensor. */
    addr_: MethodOf<typeof addr, this>;
    /**
     * beta * this + alpha * the summed products of two batches. Gradient: all. @throws ShapeError
     */
    addbmm: MethodOf<typeof addbmm>;
    /** Writes the result of `addbmm` into this tensor. */
    addbmm_: MethodOf<typeof addbmm, this>;
    /** Writes the result of `baddbmm` into this tensor. */
    baddbmm_: MethodOf<typeof baddbmm, this>;
    /** this weight^T + bias. Gradient: all. @throws ShapeError, DtypeError, DeviceError */
    linear: MethodOf<typeof linear>;
    /** Sums of products over the last dims. Gradient: both. @throws ShapeError */
    inner(other: Tensor): Tensor;
    /** The Kronecker product. Gradient: both. */
    kron(other: Tensor): Tensor;
    /** Sum of the diagonal of a matrix. Gradient: yes. @throws ShapeError */
    trace(): Tensor;
    /** The cross product along a dim of size 3. Gradient: both. @throws ShapeError */
    cross: MethodOf<typeof cross>;
  }
}
