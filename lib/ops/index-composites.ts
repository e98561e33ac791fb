/**
 * Writing and reading by index, in other ops: take, indexFill, indexCopy, maskedScatter, diag and
 * their like.
 */

import { calledAs } from '../core/call-context.js';
import { bool, int64 } from '../core/dtype.js';
import { ArgumentError, DtypeError, IndexError, ShapeError } from '../core/errors.js';
import { checkNumber, checkSizesOf } from '../core/options.js';
import { broadcastShapes, formatShape, type Shape, sameShape, wrapDim } from '../core/shape.js';
import { defineFunction, type MethodOf, methodOf } from '../core/signature.js';
import { Tensor } from '../core/tensor.js';
import { defineComposite } from './composite.js';
import { fillValue } from './copy.js';
import type { TensorOptions } from './factories.js';
import { tensor } from './from-values.js';
import { nonzero } from './index-tensors.js';
import { checkScatter, gather, requireIndex, scatter } from './indexing.js';
import { cat } from './join.js';
import { addMethod } from './method.js';
import { asVector, oneDim } from './no-dims.js';
import { requireTensor } from './operand.js';
import { reshapeIfNeeded } from './reshape-if-needed.js';
import { sampleTensor } from './samples.js';
import type { scatterReduce } from './scatter-reduce.js';
import { where } from './where.js';

const matrix = () => sampleTensor([4, 3]);
const rows = (n = 2) => sampleTensor([n], { dtype: int64, low: 0, high: 4, seed: 3 });

/**
 * Elements by their position in the flattened tensor, negative ones from the end. Shapes: input
 * any; the result has that of `index`. Dtypes: any, kept; `index` int64 or int32. Gradient: input.
 *
 * @throws IndexError for a position out of range, possibly not before values are read; DtypeError
 * for another index; ArgumentError unless tensors
 * @see PyTorch `torch.take`
 */
export const take = defineComposite(
  'take',
  defineFunction('take(input, /, index)', (input: Tensor, index: Tensor): Tensor => {
    requireTensor(input, 'take');
    requireIndex(index, 'take');
    if (input.numel() === 0 && index.numel() > 0)
      throw new IndexError(`take: shape ${formatShape(input.shape)} holds no elements`, {
        op: 'take',
        shape: input.shape,
      });
    const wrapped = where(index.lt(0), index.add(input.numel()), index);
    return reshapeIfNeeded(
      reshapeIfNeeded(input, [-1]).indexSelect(0, reshapeIfNeeded(wrapped, [-1])),
      index.shape,
    );
  }),
  {
    samples: () => [[matrix(), sampleTensor([2, 2], { dtype: int64, low: -12, high: 12 })]],
  },
);

/**
 * Elements at `indices` along a dim, as `argsort` gives them. Shapes: as many dims in both; other
 * dims broadcast, the dim has the size of the indices. Without `dim`: of the flattened tensor,
 * `[indices.numel()]`. Dtypes: any, kept; indices int64 or int32. Gradient: input.
 *
 * @throws ShapeError if other dims do not broadcast; IndexError for a dim or index out of range,
 * the latter possibly not before values are read; DtypeError for other indices; ArgumentError
 * unless `input` is a tensor
 * @see PyTorch `torch.take_along_dim`
 */
export const takeAlongDim = defineComposite(
  'takeAlongDim',
  defineFunction(
    'takeAlongDim(input, /, indices, dim)',
    (input: Tensor, indices: Tensor, dim: number | null = null): Tensor => {
      requireTensor(input, 'takeAlongDim');
      requireIndex(indices, 'takeAlongDim');
      if (dim !== null && indices.ndim !== input.ndim)
        throw new ShapeError(
          `takeAlongDim: indices of shape ${formatShape(indices.shape)} for an input of shape ${formatShape(input.shape)}: the numbers of dims differ`,
          {
            op: 'takeAlongDim',
          },
        );
      if (dim === null)
        return gather(reshapeIfNeeded(input, [-1]), 0, reshapeIfNeeded(indices, [-1]));
      const at = wrapDim(dim, input.ndim, 'takeAlongDim');
      const without = (shape: Shape): number[] => shape.map((s, i) => (i === at ? 1 : s));
      const common = broadcastShapes(without(input.shape), without(indices.shape), 'takeAlongDim');
      const sized = (t: Tensor): Tensor =>
        t.expand(common.map((s, i) => (i === at ? (t.shape[at] as number) : s)));
      return gather(sized(input), at, sized(indices));
    },
  ),
  {
    samples: () => [[matrix(), sampleTensor([1, 3], { dtype: int64, low: 0, high: 4 }), 0]],
  },
);

/** The vector of slice positions, spread over the other dims of `shape`. */
function spreadIndex(op: string, index: Tensor, shape: Shape, at: number): Tensor {
  requireIndex(index, op);
  if (shape.length === 0)
    throw new ShapeError(`${op}: a tensor without dims has no slices`, { op });
  if (index.ndim > 1)
    throw new ShapeError(
      `${op}: expected a vector of indices, got shape ${formatShape(index.shape)}`,
      { op },
    );
  const n = index.numel();
  return index
    .reshape(shape.map((_, i) => (i === at ? n : 1)))
    .expand(shape.map((s, i) => (i === at ? n : s)));
}

/**
 * The tensor with the slices of a dim that `index` lists set to one value. Shapes: index `[k]`,
 * value a number or `[]`; the result has the input's. Dtypes: any, kept, the value is converted;
 * `index` int64 or int32. Gradient: input, 0 where filled, and a value that is a tensor.
 *
 * @throws IndexError for a dim or index out of range, the latter possibly not before values are
 * read; ShapeError for an index of several dims; DtypeError for another index; ArgumentError unless
 * tensors, and for a number that an integer dtype cannot hold
 * @see PyTorch `torch.index_fill`
 */
export const indexFill = defineComposite(
  'indexFill',
  defineFunction(
    'indexFill(input, /, dim, index, value)',
    (input: Tensor, dim: number, index: Tensor, value: number | Tensor): Tensor => {
      requireTensor(input, 'indexFill');
      const at = wrapDim(dim, input.ndim, 'indexFill');
      requireIndex(index, 'indexFill');
      if (input.ndim === 0)
        return asVector(input, null, (vector) => indexFill(vector, dim, index, value));
      const fromStart = where(index.lt(0), index.add(input.shape[at] ?? 1), index);
      const spread = spreadIndex('indexFill', fromStart, input.shape, at);
      if (value instanceof Tensor && value.ndim > 0)
        throw new ShapeError(
          `indexFill: expected one value, got shape ${formatShape(value.shape)}`,
          {
            op: 'indexFill',
          },
        );
      if (!(value instanceof Tensor))
        return scatter(input, at, spread, Number(fillValue(value, 'indexFill')));
      // an index that comes twice fills once
      const filled = scatter(input.detach().newZeros(input.shape, { dtype: bool }), at, spread, 1);
      return where(filled, value.to(input.dtype), input);
    },
  ),
  {
    inPlace: true,
    samples: () => [[matrix(), 0, rows(), 7]],
  },
);

/**
 * The tensor with slices of `source` written along a dim where `index` says; which of two for one
 * place stays is not defined. Shapes: index `[k]`, source as the input with k slices, the result as
 * the input. Dtypes: equal, kept; `index` int64 or int32. Gradient: both.
 *
 * @throws IndexError for a dim or index out of range, the latter possibly not before values are
 * read; ShapeError for an index of several dims, or too small a source; DtypeError for another
 * index, or a source of another dtype; ArgumentError unless tensors
 * @see PyTorch `torch.index_copy`
 */
export const indexCopy = defineComposite(
  'indexCopy',
  defineFunction(
    'indexCopy(input, /, dim, index, source)',
    (input: Tensor, dim: number, index: Tensor, source: Tensor): Tensor => {
      requireTensor(input, 'indexCopy');
      requireTensor(index, 'indexCopy', 'index');
      requireTensor(source, 'indexCopy', 'source');
      const at = wrapDim(dim, input.ndim, 'indexCopy');
      requireIndex(index, 'indexCopy');
      if (input.ndim === 0 || (input.ndim === 1 && source.ndim === 0))
        return asVector(input, null, (vector) => indexCopy(vector, dim, index, oneDim(source)));
      const expected = input.shape.map((s, i) => (i === at ? index.numel() : s));
      if (!sameShape(source.shape, expected))
        throw new ShapeError(
          `indexCopy: ${index.numel()} indices need a source of shape ${formatShape(expected)}, got ${formatShape(source.shape)}`,
          { op: 'indexCopy' },
        );
      const spread = spreadIndex('indexCopy', index, input.shape, at);
      checkScatter('indexCopy', input, at, spread, source);
      return scatter(input, at, spread, source);
    },
  ),
  {
    inPlace: true,
    samples: () => [
      [matrix(), 0, tensor([2, 0], { dtype: int64 }), sampleTensor([2, 3], { seed: 5 })],
    ],
  },
);

/**
 * The tensor with the elements of `source`, in order, where the mask is true. Shapes: the mask
 * broadcasts to the input's, which the result has; source any with enough elements. Dtypes: input
 * and source equal; the mask bool. Gradient: both.
 *
 * @throws DtypeError unless the mask is bool; ShapeError if it does not broadcast, or the source is
 * empty; IndexError for too few elements, possibly not before values are read; ArgumentError unless
 * `input` is a tensor
 * @see PyTorch `torch.Tensor.masked_scatter`
 */
export const maskedScatter = defineComposite(
  'maskedScatter',
  defineFunction(
    'maskedScatter(input, /, mask, source)',
    (input: Tensor, mask: Tensor, source: Tensor): Tensor => {
      requireTensor(input, 'maskedScatter');
      requireTensor(mask, 'maskedScatter', 'mask');
      requireTensor(source, 'maskedScatter', 'source');
      if (mask.dtype !== bool)
        throw new DtypeError(`maskedScatter: expected a bool mask, got ${mask.dtype.name}`, {
          op: 'maskedScatter',
        });
      if (source.dtype !== input.dtype)
        throw new DtypeError(
          `maskedScatter: expected a source of dtype ${input.dtype.name}, got ${source.dtype.name}`,
          { op: 'maskedScatter' },
        );
      const shape = broadcastShapes(input.shape, mask.shape, 'maskedScatter');
      const [kept, seen] = [input.expand(shape), mask.expand(shape)];
      if (source.numel() === 0) {
        if (kept.numel() > 0 && calledAs('maskedScatter', () => seen.any().item()))
          throw new ShapeError('maskedScatter: the source holds no elements', {
            op: 'maskedScatter',
          });
        return kept.clone();
      }
      const position = seen.reshape(-1).cumsum(0).sub(1).clamp({ min: 0 });
      const needed = where(seen.reshape(-1), position, 0);
      return where(seen, source.reshape(-1).indexSelect(0, needed).reshape(shape), kept);
    },
  ),
  {
    inPlace: true,
    samples: () => [
      [matrix(), sampleTensor([4, 3], { seed: 2 }).gt(0).detach(), sampleTensor([12], { seed: 5 })],
    ],
  },
);

/**
 * Indices of the elements that are not 0, one row each: `[n, ndim]` of int64. Dtypes: any. Blocks.
 * Gradient: none.
 *
 * @throws ArgumentError unless `input` is a tensor
 * @see PyTorch `torch.argwhere`
 */
export const argwhere = defineComposite(
  'argwhere',
  (input: Tensor): Tensor => {
    requireTensor(input, 'argwhere');
    return nonzero(input);
  },
  {
    readsValues: true,
    samples: () => [[matrix().gt(0).detach()]],
  },
);

/**
 * The vectors of the last dim on the diagonals of matrices, zeros elsewhere. Shapes: `[..., n]` to
 * `[..., m, m]` with m = n + |offset|; the matrices are in dims `dim1` and `dim2` of the result.
 * Above the main diagonal for a positive offset. Dtypes: any, kept. Gradient: yes.
 *
 * @throws IndexError for a dim out of range, or a tensor without dims; ArgumentError for equal
 * dims, a bad offset, or what is no tensor
 * @see PyTorch `torch.diag_embed`
 */
export const diagEmbed = defineComposite(
  'diagEmbed',
  defineFunction(
    'diagEmbed(input, /, offset, dim1, dim2)',
    (input: Tensor, offset = 0, dim1 = -2, dim2 = -1): Tensor => {
      requireTensor(input, 'diagEmbed');
      checkNumber('diagEmbed', 'offset', offset, { whole: true });
      const ndim = input.ndim + 1;
      const [a, b] = [wrapDim(dim1, ndim, 'diagEmbed'), wrapDim(dim2, ndim, 'diagEmbed')];
      if (input.ndim === 0 || a === b)
        throw new IndexError(
          `diagEmbed: expected two dims and a vector to put along them, got dims ${dim1} and ${dim2} and shape ${formatShape(input.shape)}`,
          { op: 'diagEmbed' },
        );
      const below = Math.abs(offset);
      const vectors =
        below === 0
          ? input
          : cat([input, input.detach().newZeros(input.shape.with(-1, below))], -1);
      const size = vectors.shape[input.ndim - 1] as number;
      const onDiagonal = input
        .detach()
        .newOnes([size, size], { dtype: bool })
        .triu(offset)
        .tril(offset);
      // Of a diagonal above the main one, each row has an element; of one below, each column.
      const matrices = where(
        onDiagonal,
        vectors.unsqueeze(offset >= 0 ? -1 : -2),
        input.detach().newZeros([]),
      );
      return matrices.movedim([-2, -1], [a, b]).contiguous();
    },
  ),
  {
    samples: () => [
      [sampleTensor([3])],
      [sampleTensor([2, 3]), 1],
      [sampleTensor([2, 3]), -1, 0, 2],
    ],
  },
);

/**
 * A matrix with the vector on its diagonal, or a copy of the diagonal of a matrix. Shapes: `[n]` to
 * `[m, m]` with m = n + |diagonal|, `[r, c]` to `[k]`, which is empty for a diagonal outside.
 * Dtypes: any, kept. Gradient: yes.
 *
 * @throws ShapeError unless the tensor has one or two dims; ArgumentError for a diagonal that is no
 * integer, or what is no tensor
 * @see PyTorch `torch.diag`
 */
export const diag = defineComposite(
  'diag',
  defineFunction('diag(input, /, diagonal)', (input: Tensor, diagonal = 0): Tensor => {
    requireTensor(input, 'diag');
    checkNumber('diag', 'diagonal', diagonal, { whole: true });
    if (input.ndim === 1) return diagEmbed(input, diagonal);
    if (input.ndim === 2) return input.diagonal(diagonal).clone();
    throw new ShapeError(
      `diag: expected a vector or a matrix, got shape ${formatShape(input.shape)}`,
      { op: 'diag' },
    );
  }),
  { samples: () => [[sampleTensor([3]), 1], [matrix()]] },
);

/**
 * A matrix with all elements on its diagonal, zeros elsewhere. Shapes: any to `[m, m]`, m = numel +
 * |offset|. Dtypes: any, kept. Gradient: yes.
 *
 * @throws ArgumentError for an offset that is no integer
 * @see PyTorch `torch.diagflat`
 */
export const diagflat = defineComposite(
  'diagflat',
  defineFunction('diagflat(input, /, offset)', (input: Tensor, offset = 0): Tensor => {
    requireTensor(input, 'diagflat');
    checkNumber('diagflat', 'offset', offset, { whole: true });
    return diagEmbed(input.reshape(-1), offset);
  }),
  { samples: () => [[sampleTensor([2, 2])]] },
);

/** Their list is made in JavaScript. */
const MOST_INDICES = 2 ** 26;

interface Triangle {
  row: number;
  col: number;
  offset: number;
}

function triangleIndices(
  op: string,
  { row, col, offset }: Triangle,
  inside: (i: number, j: number) => boolean,
  options: TensorOptions,
): Tensor {
  checkSizesOf(op, { row, col });
  checkNumber(op, 'offset', offset, { whole: true });
  if (row * col > MOST_INDICES)
    throw new ArgumentError(
      `${op}: a matrix of ${row} x ${col} has more than ${MOST_INDICES} elements`,
      { op, row, col },
    );
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

/**
 * Row and column indices of the elements on and above a diagonal (`offset` 0: the main one) of a
 * matrix, row by row. Shapes: `[2, n]`. Dtypes: int64 unless given. Gradient: none.
 *
 * @throws ArgumentError, DtypeError, DeviceError, AutogradError for bad options, see {@link
 * TensorOptions}
 * @see PyTorch `torch.triu_indices`
 */
export const triuIndices = defineFunction(
  'triuIndices(row, col, offset, *, dtype, device, requiresGrad, pinMemory)',
  (row: number, col: number, offset = 0, options: TensorOptions = {}): Tensor => {
    return triangleIndices('triuIndices', { row, col, offset }, (i, j) => j - i >= offset, options);
  },
);

/**
 * Row and column indices of the elements on and below a diagonal of a matrix; else as {@link
 * triuIndices}. @see PyTorch `torch.tril_indices`
 */
export const trilIndices = defineFunction(
  'trilIndices(row, col, offset, *, dtype, device, requiresGrad, pinMemory)',
  (row: number, col: number, offset = 0, options: TensorOptions = {}): Tensor => {
    return triangleIndices('trilIndices', { row, col, offset }, (i, j) => j - i <= offset, options);
  },
);

const fillDiagonal_ = defineFunction(
  'fillDiagonal_(input, /, fillValue)',
  (input: Tensor, fillValue: number): Tensor => {
    if (input.ndim < 2)
      throw new ShapeError(
        `fillDiagonal_: expected at least 2 dims, got shape ${formatShape(input.shape)}`,
        { op: 'fillDiagonal_' },
      );
    if (input.ndim > 2 && input.shape.some((s) => s !== input.shape[0])) {
      throw new ShapeError(
        `fillDiagonal_: expected a matrix, or dims of one size, got shape ${formatShape(input.shape)}`,
        { op: 'fillDiagonal_' },
      );
    }
    let diagonal = input.diagonal();
    for (let dim = 2; dim < input.ndim; dim++) diagonal = diagonal.diagonal(0, 0, -1);
    diagonal.fill_(fillValue);
    return input;
  },
);
addMethod('fillDiagonal_', methodOf(fillDiagonal_));

declare module '../core/tensor.js' {
  interface Tensor {
    /** Elements by their position in the flattened tensor. The same as {@link take}. */
    take: MethodOf<typeof take>;
    /**
     * Elements at `indices` along a dim; other dims broadcast. The same as {@link takeAlongDim}.
     */
    takeAlongDim: MethodOf<typeof takeAlongDim>;
    /** This with the slices that `index` lists set to one value. The same as {@link indexFill}. */
    indexFill: MethodOf<typeof indexFill>;
    /** {@link indexFill} in place, with its errors. @throws InPlaceError as {@link Tensor.relu_} */
    indexFill_: MethodOf<typeof indexFill, this>;
    /** This with slices of `source` written where `index` says. The same as {@link indexCopy}. */
    indexCopy: MethodOf<typeof indexCopy>;
    /** {@link indexCopy} in place, with its errors. @throws InPlaceError as {@link Tensor.relu_} */
    indexCopy_: MethodOf<typeof indexCopy, this>;
    /**
     * This with values of `source` combined at `index`. The same as the function `scatterReduce`.
     */
    scatterReduce: MethodOf<typeof scatterReduce>;
    /**
     * The function `scatterReduce` in place, with its errors. @throws InPlaceError as {@link
     * Tensor.relu_}
     */
    scatterReduce_: MethodOf<typeof scatterReduce, this>;
    /**
     * The elements of `source`, in order, where the mask is true. The same as {@link
     * maskedScatter}.
     */
    maskedScatter: MethodOf<typeof maskedScatter>;
    /**
     * {@link maskedScatter} in place, with its errors. @throws InPlaceError as {@link Tensor.relu_}
     */
    maskedScatter_: MethodOf<typeof maskedScatter, this>;
    /**
     * Indices of the elements that are not 0, one row each. Blocks. The same as {@link argwhere}.
     */
    argwhere(): Tensor;
    /** The vectors of the last dim on the diagonals of matrices. The same as {@link diagEmbed}. */
    diagEmbed: MethodOf<typeof diagEmbed>;
    /**
     * A matrix with this vector on its diagonal, or the diagonal of this matrix. The same as {@link
     * diag}.
     */
    diag: MethodOf<typeof diag>;
    /** A matrix with all elements on its diagonal. The same as {@link diagflat}. */
    diagflat: MethodOf<typeof diagflat>;
    /**
     * Sets the diagonal of a matrix `[r, c]` to one value. Gradient: 0 on the diagonal.
     *
     * @throws ShapeError for fewer than 2 dims, or more of different sizes; ArgumentError for a
     * value that an integer dtype cannot hold; InPlaceError as {@link Tensor.relu_}
     * @see PyTorch `torch.Tensor.fill_diagonal_`
     */
    fillDiagonal_: MethodOf<typeof fillDiagonal_, this>;
  }
}
