/**
 * Elements and slices by index tensors and masks, written in other ops: take, takeAlongDim,
 * indexFill, indexCopy, maskedScatter, argwhere.
 */

import { bool, int64 } from '../core/dtype.js';
import { DtypeError, IndexError, ShapeError } from '../core/errors.js';
import { broadcastShapes, formatShape, type Shape, sameShape, wrapDim } from '../core/shape.js';
import { defineFunction, type MethodOf } from '../core/signature.js';
import { Tensor } from '../core/tensor.js';
import { defineComposite } from './composite.js';
import { matrix } from './diagonals.js';
import { fillValue } from './fill.js';
import { tensor } from './from-values.js';
import { requireIndex } from './index-select.js';
import { nonzero } from './nonzero.js';
import { asVector, oneDim } from './one-dim.js';
import { requireTensor } from './operand.js';
import { reshapeIfNeeded } from './reshape-if-needed.js';
import { sampleTensor } from './samples.js';
import { checkScatter, gather, scatter } from './scatter.js';
import { where } from './where.js';

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
      throw new IndexError(`take: shape ${formatShape(input.sizes)} holds no elements`, {
        op: 'take',
        shape: input.sizes,
      });
    const wrapped = where(index.lt(0), index.add(input.numel()), index);
    return reshapeIfNeeded(
      reshapeIfNeeded(input, [-1]).indexSelect(0, reshapeIfNeeded(wrapped, [-1])),
      index.sizes,
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
          `takeAlongDim: indices of shape ${formatShape(indices.sizes)} for an input of shape ` +
            `${formatShape(input.sizes)}: the numbers of dims differ`,
          {
            op: 'takeAlongDim',
          },
        );
      if (dim === null)
        return gather(reshapeIfNeeded(input, [-1]), 0, reshapeIfNeeded(indices, [-1]));
      const at = wrapDim(dim, input.ndim, 'takeAlongDim');
      const without = (shape: Shape): number[] => shape.map((s, i) => (i === at ? 1 : s));
      const common = broadcastShapes(without(input.sizes), without(indices.sizes), 'takeAlongDim');
      const sized = (t: Tensor): Tensor =>
        t.expand(common.map((s, i) => (i === at ? (t.sizes[at] as number) : s)));
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
      `${op}: expected a vector of indices, got shape ${formatShape(index.sizes)}`,
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
      const fromStart = where(index.lt(0), index.add(input.sizes[at] ?? 1), index);
      const spread = spreadIndex('indexFill', fromStart, input.sizes, at);
      if (value instanceof Tensor && value.ndim > 0)
        throw new ShapeError(
          `indexFill: expected one value, got shape ${formatShape(value.sizes)}`,
          {
            op: 'indexFill',
          },
        );
      if (!(value instanceof Tensor))
        return scatter(input, at, spread, Number(fillValue(value, 'indexFill')));
      // an index that occurs twice fills once
      const filled = scatter(input.detach().newZeros(input.sizes, { dtype: bool }), at, spread, 1);
      return where(filled, value.to(input.dtype), input);
    },
  ),
  {
    inPlace: true,
    samples: () => [[matrix(), 0, rows(), 7]],
  },
);

/**
 * The tensor with slices of `source` written along a dim where `index` says; if a slice is written
 * twice, the result is not defined. Shapes: index `[k]`, source as the input with k slices, the
 * result as the input. Dtypes: equal, kept; `index` int64 or int32. Gradient: both.
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
      const expected = input.sizes.map((s, i) => (i === at ? index.numel() : s));
      if (!sameShape(source.sizes, expected))
        throw new ShapeError(
          `indexCopy: ${index.numel()} indices need a source of shape ` +
            `${formatShape(expected)}, got ${formatShape(source.sizes)}`,
          { op: 'indexCopy' },
        );
      const spread = spreadIndex('indexCopy', index, input.sizes, at);
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
        throw new DtypeError(
          `maskedScatter: expected a bool mask, got ${mask.dtype.name}; convert it with .bool()`,
          { op: 'maskedScatter' },
        );
      if (source.dtype !== input.dtype)
        throw new DtypeError(
          `maskedScatter: expected a source of dtype ${input.dtype.name}, got ${source.dtype.name}`,
          { op: 'maskedScatter' },
        );
      const shape = broadcastShapes(input.sizes, mask.sizes, 'maskedScatter');
      const [kept, seen] = [input.expand(shape), mask.expand(shape)];
      if (source.numel() === 0) {
        if (kept.numel() > 0 && seen.any().item())
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
 * Indices of the elements that are not 0, one row each: `[n, ndim]` of int64. Dtypes: any. Blocks,
 * as {@link nonzero}; {@link nonzeroAsync} does not. Gradient: none.
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
  }
}
