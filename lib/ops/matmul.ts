/**
 * Matrix products: matmul, mm, bmm, mv, dot, outer. One op on batches of matrices is behind all of
 * them.
 */

import { autocastOperands } from '../core/autocast.js';
import { toOneDevice } from '../core/device.js';
import { dispatchOne } from '../core/dispatch.js';
import { DeviceError, DtypeError, ShapeError } from '../core/errors.js';
import { defineOp, type Op } from '../core/op.js';
import { broadcastShapes, formatShape, type Shape } from '../core/shape.js';
import { type Tensor, wrapNumber } from '../core/tensor.js';
import { asRows } from './linear.js';
import {
  lowerBatch,
  lowerMatrices,
  lowerRows,
  walksAsOne,
  withOneStride,
} from './matmul-command.js';
import { addMethod } from './method.js';
import { refuseMore, requireTensor } from './operand.js';
import { gradientOfLeft, gradientOfRight } from './product-gradients.js';
import { PLAIN, type Product, productOperands, productParams } from './product-params.js';
import { sampleTensor } from './samples.js';
import { matmulRule } from './sharding/matmul.js';

/** @internal */
export const last = (shape: Shape, back: number): number => shape[shape.length - back] as number;
/** @internal */
export const batchOf = (shape: Shape): Shape => shape.slice(0, -2);

/** @internal */
export function describeOperand(name: string, t: Tensor): string {
  return `\n  ${name}: ${t.dtype.name}${formatShape(t.sizes)} on ${t.device}`;
}

function describeBoth(a: Tensor, b: Tensor): string {
  return describeOperand('input', a) + describeOperand('other', b);
}

/**
 * Checks the dtypes below mixed precision, which may make them equal. @throws DtypeError naming the
 * operands
 */
function checkDtypes(op: string, a: Tensor, b: Tensor, c: Tensor): void {
  if (a.dtype === b.dtype && (c.storage === null || c.dtype === a.dtype)) return;
  const addend = c.storage === null ? '' : describeOperand('addend', c);
  throw new DtypeError(
    `${op}: expected equal dtypes. Convert with ` +
      `.to(dtype).${describeOperand('input', a)}${describeOperand('other', b)}${addend}`,
    { op },
  );
}

/** @throws ShapeError, DeviceError naming both operands */
function checkProduct(op: string, a: Tensor, b: Tensor): void {
  if (last(a.sizes, 1) !== last(b.sizes, 2)) {
    const sizes =
      `input has ${last(a.sizes, 1)} columns (dim ${a.sizes.length - 1}), other has ` +
      `${last(b.sizes, 2)} rows (dim ${b.sizes.length - 2})`;
    throw new ShapeError(`${op}: inner sizes differ: ${sizes}.${describeBoth(a, b)}`, {
      op,
      shapes: [a.sizes, b.sizes],
    });
  }
  if (a.device !== b.device)
    throw new DeviceError(
      `${op}: expected tensors on one device. ` +
        `${toOneDevice(a.device, b.device)}${describeBoth(a, b)}`,
      { op },
    );
}

/**
 * Checks operands and names the called function in errors; valid operands cost a few comparisons.
 * @throws ShapeError, DtypeError, DeviceError
 */
export function requireProduct(op: string, a: Tensor, b: Tensor, c: Tensor | null = null): void {
  checkProduct(op, a, b);
  if (a.dtype === b.dtype && (c === null || c.dtype === a.dtype)) return;
  const [x, y, z] = autocastOperands('low precision', [
    a,
    b,
    c ?? wrapNumber(0, a.dtype, a.device),
  ] as const);
  checkDtypes(op, x, y, z);
}

/**
 * y = alpha * a b + beta * c; a [..., m, k], b [..., k, n], c broadcast to the result, or an
 * immediate when absent.
 */
const matmulOp: Op<Product> = defineOp({
  name: 'matmul',
  traits: ['compute-bound'],
  autocast: 'low precision',
  doc: 'Matrix product of the last two dims; leading dims broadcast.',
  inputs: ['a', 'b', 'addend?'],
  outputs: ['y'],
  operands: productOperands,
  params: productParams,
  sharding: matmulRule<Product>(() => matmulOp),
  meta: ([a, b, addend]) => {
    checkProduct('matmul', a, b);
    checkDtypes('matmul', a, b, addend);
    const batch = broadcastShapes(batchOf(a.sizes), batchOf(b.sizes), 'matmul');
    const shape = [...batch, last(a.sizes, 2), last(b.sizes, 1)];
    return [{ shape, strides: null, dtype: a.dtype, device: a.device }];
  },
  lower: (command, [a, b, addend], [y]) => {
    if (y.sizes.length === 2) lowerMatrices(command, a, b, addend, y);
    else if (b.sizes.length > 2 || !lowerRows(command, a, b, addend, y))
      lowerBatch(command, a, b, addend, y);
  },
  saves: {
    inputs: (needs) => (needs(0) ? (needs(1) ? [0, 1] : [1]) : needs(1) ? [0] : []),
    strides: true,
  },
  vjp: (ctx, g) => {
    const { alpha, beta } = ctx.params;
    const scaled = alpha === 1 ? g : g.mul(alpha);
    return [
      ctx.needs(0) ? gradientOfLeft(ctx, scaled) : null,
      ctx.needs(1) ? gradientOfRight(ctx, scaled) : null,
      ctx.needs(2) ? (beta === 1 ? g : beta === 0 ? g.zerosLike() : g.mul(beta)) : null,
    ];
  },
  samples: () => {
    const absent = (t: Tensor): Tensor => wrapNumber(0, t.dtype, t.device);
    const pairs: [Shape, Shape][] = [
      [
        [3, 4],
        [4, 5],
      ],
      [
        [2, 3, 4],
        [4, 1],
      ],
      [
        [1, 2, 3],
        [5, 3, 2],
      ],
    ];
    const products = pairs.map(([a, b]) => {
      const [x, y] = [sampleTensor(a), sampleTensor(b, { seed: 4 })];
      return { inputs: [x, y, absent(x)] as const, params: PLAIN };
    });
    return [
      ...products,
      {
        inputs: [
          sampleTensor([3, 4]),
          sampleTensor([4, 2], { seed: 4 }),
          sampleTensor([2], { seed: 6 }),
        ],
        params: { alpha: 0.5, beta: 2 },
      },
    ];
  },
});

/** Product of tensors with at least two dims each. @internal */
export function product(
  a: Tensor,
  b: Tensor,
  c: Tensor | null = null,
  params: Product = PLAIN,
): Tensor {
  const batch =
    a.sizes.length === 2 && b.sizes.length === 2
      ? NO_BATCH
      : broadcastShapes(batchOf(a.sizes), batchOf(b.sizes), 'matmul');
  const regular = (t: Tensor): Tensor => {
    if (batch.length < 2 || t.sizes.length === 2) return t;
    const whole = t.expand([...batch, last(t.sizes, 2), last(t.sizes, 1)]);
    return walksAsOne(whole, batch.length) ? t : whole.contiguous();
  };
  const addend =
    c === null ? wrapNumber(0, a.dtype, a.device) : c.sizes.length > 2 ? regular(c) : c;
  // The rows of all matrices times one matrix: one large product instead of many.
  if (b.sizes.length === 2) return dispatchOne(matmulOp, [withOneStride(a), b, addend], params);
  return dispatchOne(matmulOp, [regular(a), regular(b), addend], params);
}

const NO_BATCH: Shape = Object.freeze([]);

/**
 * Matrix product with PyTorch's rules for vectors and batches. Gradient: both.
 *
 * Shapes: `[..., m, k]` by `[..., k, n]` to `[..., m, n]`, leading dims broadcast; a vector counts
 * as one row on the left or one column on the right, and the result drops that dim. Dtypes: equal,
 * kept; low precision accumulates in float32, integers wrap around.
 *
 * @throws ShapeError for tensors without dims, inner sizes that differ, or leading dims that do not
 * broadcast; DtypeError for dtypes that differ; DeviceError for tensors on different devices;
 * ArgumentError for a value that is not a tensor
 * @see PyTorch `torch.matmul`
 * @example
 * matmul(tensor([[1, 2]]), tensor([[3], [4]])); // [[11]]
 */
export function matmul(input: Tensor, other: Tensor): Tensor {
  requireTensor(input, 'matmul');
  requireTensor(other, 'matmul', 'other');
  const [da, db] = [input.sizes.length, other.sizes.length];
  if (da === 0 || db === 0)
    throw new ShapeError(
      'matmul: both operands need at least one ' +
        `dim.${describeOperand('input', input)}${describeOperand('other', other)}`,
      { op: 'matmul' },
    );
  if (da === 1 && db === 1) return productOfVectors('matmul', input, other);
  if (da === 1) return product(input.unsqueeze(0), other).squeeze(-2);
  if (db === 1) return product(input, other.unsqueeze(1)).squeeze(-1);
  return product(input, other);
}

export function requireDims(op: string, t: Tensor, ndim: number, argument: string): void {
  requireTensor(t, op, argument);
  if (t.sizes.length !== ndim)
    throw new ShapeError(
      `${op}: expected ${argument} to have ${ndim} dims, got ` +
        `${t.dtype.name}${formatShape(t.sizes)}`,
      { op, argument, expected: ndim, given: t.sizes },
    );
}

/**
 * Product of two matrices. Shapes: `[m, k]` by `[k, n]` to `[m, n]`. Dtypes as {@link matmul}.
 * Gradient: both.
 *
 * @throws ShapeError for other numbers of dims, or inner sizes that differ; DtypeError,
 * DeviceError, ArgumentError as {@link matmul}
 * @see PyTorch `torch.mm`
 */
export function mm(input: Tensor, mat2: Tensor): Tensor {
  requireDims('mm', input, 2, 'input');
  requireDims('mm', mat2, 2, 'mat2');
  requireProduct('mm', input, mat2);
  return product(input, mat2);
}

/**
 * @throws ShapeError, DtypeError, DeviceError unless both are batches of matrices that can be
 * multiplied. @internal
 */
export function requireBatches(
  op: string,
  a: Tensor,
  b: Tensor,
  [first, second]: readonly [string, string],
): void {
  requireDims(op, a, 3, first);
  requireDims(op, b, 3, second);
  if (a.sizes[0] !== b.sizes[0])
    throw new ShapeError(
      `${op}: batch sizes differ.${describeOperand(first, a)}${describeOperand(second, b)}`,
      { op },
    );
  requireProduct(op, a, b);
}

/**
 * Products of two batches of matrices. Shapes: `[b, m, k]` by `[b, k, n]` to `[b, m, n]`. Dtypes as
 * {@link matmul}. Gradient: both.
 *
 * @throws ShapeError for other numbers of dims, batch or inner sizes that differ; DtypeError,
 * DeviceError, ArgumentError as {@link matmul}
 * @see PyTorch `torch.bmm`
 */
export function bmm(input: Tensor, mat2: Tensor): Tensor {
  requireBatches('bmm', input, mat2, ['input', 'mat2']);
  return product(input, mat2);
}

/**
 * Product of a matrix and a vector. Shapes: `[m, k]` by `[k]` to `[m]`. Dtypes as {@link matmul}.
 * Gradient: both.
 *
 * @throws ShapeError for other numbers of dims, or inner sizes that differ; DtypeError,
 * DeviceError, ArgumentError as {@link matmul}
 * @see PyTorch `torch.mv`
 */
export function mv(input: Tensor, vec: Tensor): Tensor {
  requireDims('mv', input, 2, 'input');
  requireDims('mv', vec, 1, 'vec');
  const column = vec.unsqueeze(1);
  requireProduct('mv', input, column);
  return product(input, column).squeeze(1);
}

/** `linear` with a weight `[k]`: the output has no feature dim. @internal */
export function byVector(input: Tensor, weight: Tensor, bias: Tensor | null): Tensor {
  if (bias !== null) broadcastShapes(input.sizes.slice(0, -1), bias.sizes, 'linear');
  requireProduct('linear', asRows(input), weight.unsqueeze(1));
  const out = matmul(input, weight);
  return bias === null ? out : out.add(bias);
}

/**
 * Sum of products of two vectors. Shapes: `[n]` by `[n]` to `[]`. Dtypes as {@link matmul}.
 * Gradient: both.
 *
 * @throws ShapeError for other numbers of dims, or sizes that differ; DtypeError, DeviceError,
 * ArgumentError as {@link matmul}
 * @see PyTorch `torch.dot`
 */
export function dot(input: Tensor, other: Tensor): Tensor {
  requireDims('dot', input, 1, 'input');
  requireDims('dot', other, 1, 'other');
  return productOfVectors('dot', input, other);
}

function productOfVectors(op: string, a: Tensor, b: Tensor): Tensor {
  if (a.sizes[0] !== b.sizes[0])
    throw new ShapeError(`${op}: sizes differ.${describeBoth(a, b)}`, { op });
  const [row, column] = [a.unsqueeze(0), b.unsqueeze(1)];
  requireProduct(op, row, column);
  return product(row, column).reshape([]);
}

/**
 * All products of the elements of two vectors. Shapes: `[m]` by `[n]` to `[m, n]`. Dtypes: any,
 * promoted. Gradient: both.
 *
 * @throws ShapeError for other numbers of dims; DeviceError for tensors on different devices;
 * ArgumentError for a value that is not a tensor
 * @see PyTorch `torch.outer`
 */
export function outer(input: Tensor, vec2: Tensor): Tensor {
  requireDims('outer', input, 1, 'input');
  requireDims('outer', vec2, 1, 'vec2');
  return input.unsqueeze(1).mul(vec2.unsqueeze(0));
}

for (const [name, fn] of Object.entries({ matmul, mm, bmm, mv, dot, outer })) {
  addMethod(name, function (other: Tensor, more?: unknown) {
    if (more !== undefined) refuseMore(more, name);
    return fn(this, other);
  });
}

declare module '../core/tensor.js' {
  interface Tensor {
    /**
     * Matrix product with PyTorch's rules for vectors and batches. The same as {@link matmul}.
     *
     * @example
     * tensor([[1, 2]]).matmul(tensor([[3], [4]])); // [[11]]
     * zeros([5, 2, 3]).matmul(zeros([3, 4])).shape; // [5, 2, 4]
     */
    matmul(other: Tensor): Tensor;
    /**
     * Product of two matrices. The same as {@link mm}.
     *
     * @example
     * tensor([[1, 2]]).mm(tensor([[3], [4]])); // [[11]]
     */
    mm(mat2: Tensor): Tensor;
    /** Products of two batches of matrices. The same as {@link bmm}. */
    bmm(mat2: Tensor): Tensor;
    /** Product of a matrix and a vector. The same as {@link mv}. */
    mv(vec: Tensor): Tensor;
    /** Sum of products of two vectors. The same as {@link dot}. */
    dot(other: Tensor): Tensor;
    /** All products of the elements of two vectors. The same as {@link outer}. */
    outer(vec2: Tensor): Tensor;
  }
}
