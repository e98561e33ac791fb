/** Writing and reading by index, in other ops: take, indexFill, indexCopy, maskedScatter, diag and their like. */

import { bool, int64 } from '../core/dtype.js';
import { DtypeError, IndexError, ShapeError } from '../core/errors.js';
import { checkNumber, checkSizesOf, optionsOf } from '../core/options.js';
import { broadcastShapes, formatShape, type Shape, sameShape, wrapDim } from '../core/shape.js';
import { Tensor } from '../core/tensor.js';
import { defineComposite } from './composite.js';
import { fillValue } from './copy.js';
import { type TensorOptions, tensor } from './factories.js';
import { nonzero } from './index-tensors.js';
import { checkScatter, gather, requireIndex, scatter } from './indexing.js';
import { addMethod } from './method.js';
import { requireTensor } from './operand.js';
import { sampleTensor } from './samples.js';
import type { ScatterReduction } from './scatter-reduce.js';
import { where } from './where.js';

const matrix = () => sampleTensor([4, 3]);
const rows = (n = 2) => sampleTensor([n], { dtype: int64, low: 0, high: 4, seed: 3 });

/** Elements by their position in the flattened tensor, in the shape of `index`; negative ones count from the end. Gradient: input. */
export function take(input: Tensor, index: Tensor): Tensor {
  requireTensor(input, 'take');
  requireIndex(index, 'take');
  if (input.numel() === 0 && index.numel() > 0) throw new IndexError(`take: shape ${formatShape(input.shape)} holds no elements`, { op: 'take', shape: input.shape });
  const wrapped = where(index.lt(0), index.add(input.numel()), index);
  return input.reshape(-1).indexSelect(0, wrapped.reshape(-1)).reshape(index.shape);
}
defineComposite('take', take, { samples: () => [[matrix(), sampleTensor([2, 2], { dtype: int64, low: -12, high: 12 })]] });

/** Elements at `indices` along a dim; other dims broadcast. Without `dim`, of the flattened tensor. Gradient: input. @throws ShapeError, DtypeError */
export function takeAlongDim(input: Tensor, indices: Tensor, dim: number | null = null): Tensor {
  requireTensor(input, 'takeAlongDim');
  requireIndex(indices, 'takeAlongDim');
  if (dim !== null && indices.ndim !== input.ndim)
    throw new ShapeError(`takeAlongDim: indices of shape ${formatShape(indices.shape)} for an input of shape ${formatShape(input.shape)}: the numbers of dims differ`, {
      op: 'takeAlongDim',
    });
  if (dim === null) return gather(input.reshape(-1), 0, indices.reshape(-1));
  const at = wrapDim(dim, input.ndim, 'takeAlongDim');
  const without = (shape: Shape): number[] => shape.map((s, i) => (i === at ? 1 : s));
  const common = broadcastShapes(without(input.shape), without(indices.shape), 'takeAlongDim');
  const sized = (t: Tensor): Tensor => t.expand(common.map((s, i) => (i === at ? (t.shape[at] as number) : s)));
  return gather(sized(input), at, sized(indices));
}
defineComposite('takeAlongDim', takeAlongDim, { samples: () => [[matrix(), sampleTensor([1, 3], { dtype: int64, low: 0, high: 4 }), 0]] });

/** The vector of slice positions, spread over the other dims of `shape`. */
function spreadIndex(op: string, index: Tensor, shape: Shape, at: number): Tensor {
  requireIndex(index, op);
  if (shape.length === 0) throw new ShapeError(`${op}: a tensor without dims has no slices`, { op });
  if (index.ndim > 1) throw new ShapeError(`${op}: expected a vector of indices, got shape ${formatShape(index.shape)}`, { op });
  const n = index.numel();
  return index.reshape(shape.map((_, i) => (i === at ? n : 1))).expand(shape.map((s, i) => (i === at ? n : s)));
}

/** The tensor with the slices that `index` lists set to one value. Gradient: input. @throws IndexError, DtypeError, ShapeError */
export function indexFill(input: Tensor, dim: number, index: Tensor, value: number | Tensor): Tensor {
  requireTensor(input, 'indexFill');
  const at = wrapDim(dim, input.ndim, 'indexFill');
  const spread = spreadIndex('indexFill', index, input.shape, at);
  if (value instanceof Tensor && value.ndim > 0) throw new ShapeError(`indexFill: expected one value, got shape ${formatShape(value.shape)}`, { op: 'indexFill' });
  const filler = value instanceof Tensor ? value.to(input.dtype).expand(spread.shape) : fillValue(value, 'indexFill');
  return scatter(input, at, spread, filler instanceof Tensor ? filler : Number(filler));
}
defineComposite('indexFill', indexFill, { inPlace: true, samples: () => [[matrix(), 0, rows(), 7]] });

/** The tensor with slices of `source` written where `index` says. Gradient: both. @throws IndexError, DtypeError, ShapeError */
export function indexCopy(input: Tensor, dim: number, index: Tensor, source: Tensor): Tensor {
  requireTensor(input, 'indexCopy');
  requireTensor(index, 'indexCopy', 'index');
  requireTensor(source, 'indexCopy', 'source');
  const at = wrapDim(dim, input.ndim, 'indexCopy');
  const spread = spreadIndex('indexCopy', index, input.shape, at);
  checkScatter('indexCopy', input, at, spread, source);
  return scatter(input, at, spread, source);
}
defineComposite('indexCopy', indexCopy, {
  inPlace: true,
  samples: () => [[matrix(), 0, tensor([2, 0], { dtype: int64 }), sampleTensor([2, 3], { seed: 5 })]],
});

/** The elements of `source`, in order, where the mask is true. Gradient: both. @throws DtypeError unless the mask is bool; IndexError for too few */
export function maskedScatter(input: Tensor, mask: Tensor, source: Tensor): Tensor {
  requireTensor(input, 'maskedScatter');
  requireTensor(mask, 'maskedScatter', 'mask');
  requireTensor(source, 'maskedScatter', 'source');
  if (mask.dtype !== bool) throw new DtypeError(`maskedScatter: expected a bool mask, got ${mask.dtype.name}`, { op: 'maskedScatter' });
  if (!sameShape(broadcastShapes(input.shape, mask.shape, 'maskedScatter'), input.shape))
    throw new ShapeError(`maskedScatter: a mask of shape ${formatShape(mask.shape)} does not stretch to ${formatShape(input.shape)}`, { op: 'maskedScatter' });
  const seen = mask.expand(input.shape);
  if (input.numel() === 0) return input.clone();
  const position = seen.reshape(-1).cumsum(0).sub(1).clamp({ min: 0 });
  if (source.numel() === 0) throw new ShapeError('maskedScatter: the source holds no elements', { op: 'maskedScatter' });
  const needed = where(seen.reshape(-1), position, 0);
  return where(seen, source.reshape(-1).indexSelect(0, needed).reshape(input.shape), input);
}
defineComposite('maskedScatter', maskedScatter, {
  inPlace: true,
  samples: () => [[matrix(), sampleTensor([4, 3], { seed: 2 }).gt(0).detach(), sampleTensor([12], { seed: 5 })]],
});

/** Indices of the elements that are not 0, one row each. Blocks. */
export function argwhere(input: Tensor): Tensor {
  requireTensor(input, 'argwhere');
  return nonzero(input);
}
defineComposite('argwhere', argwhere, { readsValues: true, samples: () => [[matrix().gt(0).detach()]] });

/** The vectors of the last dim on the diagonal of matrices, zeros elsewhere. Gradient: yes. @throws IndexError */
export function diagEmbed(input: Tensor, offset = 0, dim1 = -2, dim2 = -1): Tensor {
  requireTensor(input, 'diagEmbed');
  checkNumber('diagEmbed', 'offset', offset, { whole: true });
  const ndim = input.ndim + 1;
  const [a, b] = [wrapDim(dim1, ndim, 'diagEmbed'), wrapDim(dim2, ndim, 'diagEmbed')];
  if (input.ndim === 0 || a === b)
    throw new IndexError(`diagEmbed: expected two dims and a vector to put along them, got dims ${dim1} and ${dim2} and shape ${formatShape(input.shape)}`, { op: 'diagEmbed' });
  const size = (input.shape[input.ndim - 1] ?? 1) + Math.abs(offset);
  const shape = [...input.shape.slice(0, -1)];
  for (const at of [Math.min(a, b), Math.max(a, b)]) shape.splice(at, 0, size);
  const zeros = input.detach().newZeros(shape);
  zeros.diagonal(offset, a, b).copy_(input);
  return zeros;
}
defineComposite('diagEmbed', diagEmbed, { samples: () => [[sampleTensor([3])], [sampleTensor([2, 3]), 1], [sampleTensor([2, 3]), -1, 0, 2]] });

/** A matrix with the vector on its diagonal, or the diagonal of a matrix. Gradient: yes. @throws ShapeError for other numbers of dims */
export function diag(input: Tensor, diagonal = 0): Tensor {
  requireTensor(input, 'diag');
  checkNumber('diag', 'diagonal', diagonal, { whole: true });
  if (input.ndim === 1) return diagEmbed(input, diagonal);
  if (input.ndim === 2) return input.diagonal(diagonal).clone();
  throw new ShapeError(`diag: expected a vector or a matrix, got shape ${formatShape(input.shape)}`, { op: 'diag' });
}
defineComposite('diag', diag, { samples: () => [[sampleTensor([3]), 1], [matrix()]] });

/** A matrix with all elements on its diagonal. Gradient: yes. */
export function diagflat(input: Tensor, offset = 0): Tensor {
  requireTensor(input, 'diagflat');
  checkNumber('diagflat', 'offset', offset, { whole: true });
  return diagEmbed(input.reshape(-1), offset);
}
defineComposite('diagflat', diagflat, { samples: () => [[sampleTensor([2, 2])]] });

interface Triangle {
  row: number;
  col: number;
  offset: number;
}

function triangleIndices(op: string, { row, col, offset }: Triangle, inside: (i: number, j: number) => boolean, options: TensorOptions): Tensor {
  checkSizesOf(op, { row, col });
  checkNumber(op, 'offset', offset, { whole: true });
  const [is, js]: [number[], number[]] = [[], []];
  for (let i = 0; i < row; i++) {
    for (let j = 0; j < col; j++) {
      if (!inside(i, j)) continue;
      is.push(i);
      js.push(j);
    }
  }
  return tensor([is, js], { dtype: int64, ...options });
}

/** Row and column indices of the upper triangle of a matrix, `[2, n]`. */
export function triuIndices(row: number, col: number, options: TensorOptions & { offset?: number } = {}): Tensor {
  const { offset = 0, ...place } = optionsOf('triuIndices', options);
  return triangleIndices('triuIndices', { row, col, offset }, (i, j) => j - i >= offset, place);
}

/** Row and column indices of the lower triangle of a matrix, `[2, n]`. */
export function trilIndices(row: number, col: number, options: TensorOptions & { offset?: number } = {}): Tensor {
  const { offset = 0, ...place } = optionsOf('trilIndices', options);
  return triangleIndices('trilIndices', { row, col, offset }, (i, j) => j - i <= offset, place);
}

addMethod('fillDiagonal_', function (value: number) {
  if (this.ndim < 2) throw new ShapeError(`fillDiagonal_: expected at least 2 dims, got shape ${formatShape(this.shape)}`, { op: 'fillDiagonal_' });
  if (this.ndim > 2) throw new ShapeError(`fillDiagonal_: expected a matrix, got shape ${formatShape(this.shape)}`, { op: 'fillDiagonal_' });
  this.diagonal().fill_(value);
  return this;
});

declare module '../core/tensor.js' {
  interface Tensor {
    /** Elements by their position in the flattened tensor. Gradient: yes. @throws IndexError, DtypeError */
    take(index: Tensor): Tensor;
    /** Elements at `indices` along a dim; other dims broadcast. Gradient: yes. @throws ShapeError, DtypeError */
    takeAlongDim(indices: Tensor, dim?: number | null): Tensor;
    /** This with the slices that `index` lists set to one value. Gradient: yes. @throws IndexError, DtypeError, ShapeError */
    indexFill(dim: number, index: Tensor, value: number | Tensor): Tensor;
    indexFill_(dim: number, index: Tensor, value: number | Tensor): this;
    /** This with slices of `source` written where `index` says. Gradient: both. @throws IndexError, DtypeError, ShapeError */
    indexCopy(dim: number, index: Tensor, source: Tensor): Tensor;
    indexCopy_(dim: number, index: Tensor, source: Tensor): this;
    /** This with values of `source` combined at `index`. Gradient: both. @throws ShapeError, IndexError, DtypeError */
    scatterReduce(dim: number, index: Tensor, source: Tensor, reduce: ScatterReduction, options?: { includeSelf?: boolean }): Tensor;
    scatterReduce_(dim: number, index: Tensor, source: Tensor, reduce: ScatterReduction, options?: { includeSelf?: boolean }): this;
    /** The elements of `source`, in order, where the mask is true. Gradient: both. @throws DtypeError, IndexError */
    maskedScatter(mask: Tensor, source: Tensor): Tensor;
    maskedScatter_(mask: Tensor, source: Tensor): this;
    /** Indices of the elements that are not 0, one row each. Blocks. */
    argwhere(): Tensor;
    /** The vectors of the last dim on the diagonal of matrices. Gradient: yes. @throws IndexError */
    diagEmbed(offset?: number, dim1?: number, dim2?: number): Tensor;
    /** A matrix with this vector on its diagonal, or the diagonal of this matrix. Gradient: yes. @throws ShapeError */
    diag(diagonal?: number): Tensor;
    /** A matrix with all elements on its diagonal. Gradient: yes. */
    diagflat(offset?: number): Tensor;
    /** Sets the diagonal of a matrix. @throws ShapeError */
    fillDiagonal_(value: number): this;
  }
}
