/**
 * Views of a part of a tensor: narrow, select, slice, diagonal, unfold. The gradient is 0 outside
 * of the view.
 *
 * Dtypes: all, kept. Gradient: yes. Every function throws ArgumentError unless it gets a tensor and
 * dims, IndexError for a dim out of range, and FreedError if the memory was freed.
 */

import { dispatchOne } from '../core/dispatch.js';
import { ArgumentError, IndexError } from '../core/errors.js';
import type { Op } from '../core/op.js';
import { type ParamsOf, param } from '../core/op-params.js';
import { shown } from '../core/options.js';
import { formatShape, type Shape, wrapDim } from '../core/shape.js';
import { defineFunction, type MethodOf, methodOf } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { defineView } from './define-view.js';
import { addMethod } from './method.js';
import { requireTensor } from './operand.js';
import {
  addedAt,
  isDistributedVariable,
  joinedParts,
  type PartOp,
  type SpanOp,
  zerosAround,
  zerosFor,
} from './part-gradients.js';
import { sampleTensor } from './samples.js';
import { keptDims, sameDims, slicedDims, sliceRule, viewRule } from './sharding/views.js';

const sliceParams = {
  dim: param.value<number>(),
  start: param.value<number>(),
  length: param.value<number>(),
  step: param.value<number>(),
};
type Slice = ParamsOf<typeof sliceParams>;

/** @internal */
export const sliceOp: Op<Slice> = defineView({
  name: 'slice',
  params: sliceParams,
  doc: 'Every step-th element of one dim from start.',
  sharding: sliceRule,
  view: (input, { dim, start, length, step }) => ({
    shape: input.sizes.map((s, i) => (i === dim ? length : s)),
    strides: input.strides.map((s, i) => (i === dim ? s * step : s)),
    offset: input.storageOffset + start * (input.strides[dim] as number),
  }),
  vjp: (ctx, g) => {
    const { dim, start, length, step } = ctx.params;
    return [zerosAround(slices, ctx.inputShape(0), g, { dim, start, length, step })];
  },
  joinGradients: (...parts) => joinedParts(slices, ...parts),
  samples: () => [
    { inputs: [sampleTensor([5, 3])], params: { dim: 0, start: 1, length: 2, step: 2 } },
    { inputs: [sampleTensor([2, 4])], params: { dim: 1, start: 4, length: 0, step: 1 } },
  ],
});

const slices: SpanOp<Slice> = { op: sliceOp, dims: slicedDims, span: (params) => params };

const selectParams = {
  dim: param.value<number>(),
  index: param.value<number>(),
};
type Select = ParamsOf<typeof selectParams>;

const selectedDims = ({ length }: Shape, { dim }: Select) => keptDims(length, [dim]);

const selectOp: Op<Select> = defineView({
  name: 'select',
  params: selectParams,
  doc: 'One index of one dim, which falls away.',
  sharding: viewRule<Select>(({ sizes: shape }, params) => selectedDims(shape, params)),
  view: (input, { dim, index }) => ({
    shape: input.sizes.filter((_, i) => i !== dim),
    strides: input.strides.filter((_, i) => i !== dim),
    offset: input.storageOffset + index * (input.strides[dim] as number),
  }),
  vjp: (ctx, g) => [zerosAround(selections, ctx.inputShape(0), g, ctx.params)],
  joinGradients: (...parts) => joinedParts(selections, ...parts),
  samples: () => [{ inputs: [sampleTensor([3, 4])], params: { dim: 1, index: 2 } }],
});

const selections: SpanOp<Select> = {
  op: selectOp,
  dims: selectedDims,
  span: ({ dim, index }) => ({ dim, start: index, length: 1, step: 1 }),
};

const diagonalParams = {
  offset: param.value<number>(),
  dim1: param.value<number>(),
  dim2: param.value<number>(),
};
type Diagonal = ParamsOf<typeof diagonalParams>;

const diagonalDims = ({ length }: Shape, { dim1, dim2 }: Diagonal) =>
  keptDims(length, [dim1, dim2]);

const diagonalOp: Op<Diagonal> = defineView({
  name: 'diagonal',
  params: diagonalParams,
  doc: 'Elements with equal indices in two dims, as a last dim.',
  sharding: viewRule<Diagonal>(({ sizes: shape }, params) => diagonalDims(shape, params)),
  view: (input, { offset, dim1, dim2 }) => {
    const [rows, columns] = [input.sizes[dim1] as number, input.sizes[dim2] as number];
    const size = Math.max(
      0,
      offset >= 0 ? Math.min(rows, columns - offset) : Math.min(rows + offset, columns),
    );
    const [stride1, stride2] = [input.strides[dim1] as number, input.strides[dim2] as number];
    const skip = size === 0 ? 0 : offset >= 0 ? offset * stride2 : -offset * stride1;
    const rest = (list: Shape): number[] => list.filter((_, i) => i !== dim1 && i !== dim2);
    return {
      shape: [...rest(input.sizes), size],
      strides: [...rest(input.strides), stride1 + stride2],
      offset: input.storageOffset + skip,
    };
  },
  vjp: (ctx, g) => [zerosAround(diagonals, ctx.inputShape(0), g, ctx.params)],
  samples: () => [
    { inputs: [sampleTensor([3, 4])], params: { offset: 1, dim1: 0, dim2: 1 } },
    { inputs: [sampleTensor([2, 3, 3])], params: { offset: -1, dim1: 2, dim2: 1 } },
  ],
});

const diagonals: PartOp<Diagonal> = { op: diagonalOp, dims: diagonalDims, span: () => null };

const unfoldParams = {
  dim: param.value<number>(),
  size: param.value<number>(),
  step: param.value<number>(),
};
type Unfold = ParamsOf<typeof unfoldParams>;

const unfoldedDims = ({ length }: Shape, { dim }: Unfold) => sameDims(length, [dim]);

const unfoldOp: Op<Unfold> = defineView({
  name: 'unfold',
  params: unfoldParams,
  doc: 'Windows of one dim, as a last dim; they may overlap.',
  sharding: viewRule<Unfold>(({ sizes: shape }, params) => unfoldedDims(shape, params)),
  view: (input, { dim, size, step }) => {
    // not read without dims, where a single window replaces the tensor
    const count = Math.floor(((input.sizes[dim] as number) - size) / step) + 1;
    const stride = input.strides[dim] ?? 1;
    return {
      shape: [...input.sizes.map((s, i) => (i === dim ? count : s)), size],
      strides: [...input.strides.map((s, i) => (i === dim ? s * step : s)), stride],
      offset: input.storageOffset,
    };
  },
  vjp: (ctx, g) => {
    if (isDistributedVariable(g)) return [addedAt(unfoldOp, ctx.inputShape(0), g, ctx.params)];
    if (ctx.inputShape(0).length === 0) return [g.sum()];
    // Adds each position within a window separately, because windows overlap.
    const { dim, size, step } = ctx.params;
    const zeros = zerosFor(windows, ctx.inputShape(0), g, ctx.params);
    const length = g.sizes[dim] as number;
    for (let i = 0; i < size; i++) {
      dispatchOne(sliceOp, [zeros], { dim, start: i, length, step }).add_(select(g, -1, i));
    }
    return [zeros];
  },
  samples: () => [{ inputs: [sampleTensor([7, 2])], params: { dim: 0, size: 3, step: 2 } }],
});

const windows: PartOp<Unfold> = { op: unfoldOp, dims: unfoldedDims, span: () => null };

/**
 * `length` elements of one dim from `start` (negative: from the end), as a view: `[..., n, ...]`
 * gives `[..., length, ...]`. Gradient: yes.
 *
 * @throws IndexError if they are out of range or not integers, or for a dim out of range
 * @see PyTorch `torch.narrow`
 */
export const narrow = defineFunction(
  'narrow(input, /, dim, start, length)',
  (input: Tensor, dim: number, start: number, length: number): Tensor => {
    requireTensor(input, 'narrow');
    const at = wrapDim(dim, input.sizes.length, 'narrow');
    const size = input.sizes[at];
    const first =
      typeof start === 'number' && start < 0 && size !== undefined ? start + size : start;
    if (
      size === undefined ||
      !Number.isInteger(first) ||
      !Number.isInteger(length) ||
      first < 0 ||
      length < 0 ||
      first + length > size
    ) {
      throw new IndexError(
        `narrow: ${shown(length)} elements from ${shown(start)} do not lie in dim ${dim} of ` +
          `shape ${formatShape(input.sizes)}`,
        {
          op: 'narrow',
          dim,
          start,
          length,
        },
      );
    }
    return dispatchOne(sliceOp, [input], { dim: at, start: first, length, step: 1 });
  },
);

/**
 * Elements `start` (0) to `end` (the size, not included) of one dim (0) by `step` (1), as a view,
 * with Python's rules for negative and large bounds. The size there is max(0, ceil((end - start) /
 * step)). Gradient: yes.
 *
 * @throws ArgumentError unless bounds are integers and the step a positive integer; IndexError for
 * a dim out of range
 * @see Python `x[start:end:step]`
 */
export const slice = defineFunction(
  'slice(input, /, dim, start, end, step)',
  (
    input: Tensor,
    dim = 0,
    start: number | null = null,
    end: number | null = null,
    step = 1,
  ): Tensor => {
    requireTensor(input, 'slice');
    const at = wrapDim(dim, input.sizes.length, 'slice');
    if (input.sizes.length === 0)
      throw new IndexError('slice: a tensor without dims cannot be sliced', { op: 'slice' });
    if (!Number.isInteger(step) || step < 1)
      throw new ArgumentError(`slice: step must be a positive integer, got ${shown(step)}`, {
        op: 'slice',
        step,
      });
    const size = input.sizes[at] as number;
    const bound = (value: number | null, missing: number): number => {
      if (value === null) return missing;
      // Accepts Infinity like any bound that is too large; refuses fractions and NaN.
      if (
        !Number.isInteger(value) &&
        value !== Number.POSITIVE_INFINITY &&
        value !== Number.NEGATIVE_INFINITY
      )
        throw new ArgumentError(`slice: bounds must be integers, got ${shown(value)}`, {
          op: 'slice',
          bound: value,
        });
      return Math.min(size, Math.max(0, value < 0 ? value + size : value));
    };
    const first = bound(start, 0);
    const last = bound(end, size);
    return dispatchOne(sliceOp, [input], {
      dim: at,
      start: first,
      length: Math.max(0, Math.ceil((last - first) / step)),
      step,
    });
  },
);

/**
 * One slice of a dim, as a view without this dim; a negative index counts from the end. Gradient:
 * yes.
 *
 * @throws IndexError for an index or a dim that is out of range or not an integer
 * @see PyTorch `torch.select`
 */
export const select = defineFunction(
  'select(input, /, dim, index)',
  (input: Tensor, dim: number, index: number): Tensor => {
    requireTensor(input, 'select');
    const at = wrapDim(dim, input.sizes.length, 'select');
    const size = input.sizes[at];
    if (size === undefined || !Number.isInteger(index) || index < -size || index >= size) {
      throw new IndexError(
        `select: index ${shown(index)} is out of range for dim ${dim} of shape ` +
          `${formatShape(input.sizes)}`,
        { op: 'select', dim, index },
      );
    }
    return dispatchOne(selectOp, [input], { dim: at, index: index < 0 ? index + size : index });
  },
);

/**
 * The elements with equal indices in two dims (0 and 1), as a last dim of a view; `offset` (0)
 * above the diagonal, or below if negative. Shapes: `[m, n]` gives `[min(m, n)]`, or less off the
 * diagonal. Gradient: yes.
 *
 * @throws IndexError for a dim out of range; ArgumentError for equal dims, or an offset that is not
 * an integer
 * @see PyTorch `torch.diagonal`
 */
export const diagonal = defineFunction(
  'diagonal(input, /, offset, dim1, dim2)',
  (input: Tensor, offset = 0, dim1 = 0, dim2 = 1): Tensor => {
    requireTensor(input, 'diagonal');
    if (!Number.isSafeInteger(offset))
      throw new ArgumentError(`diagonal: offset must be an integer, got ${shown(offset)}`, {
        op: 'diagonal',
        offset,
      });
    const params = {
      offset,
      dim1: wrapDim(dim1, input.sizes.length, 'diagonal'),
      dim2: wrapDim(dim2, input.sizes.length, 'diagonal'),
    };
    if (params.dim1 === params.dim2)
      throw new ArgumentError(`diagonal: dims ${dim1} and ${dim2} are the same`, {
        op: 'diagonal',
      });
    return dispatchOne(diagonalOp, [input], params);
  },
);

/**
 * Windows of `size` along a dim, every `step`, as a last dim of a view; they may overlap. Shapes:
 * `[..., n, ...]` gives `[..., floor((n - size) / step) + 1, ..., size]`, and `[]` gives `[size]`.
 * Gradient: yes, summed where they overlap.
 *
 * @throws ArgumentError unless 0 <= size <= n and step > 0, all integers; IndexError for a dim out
 * of range
 * @see PyTorch `torch.Tensor.unfold`
 */
export const unfold = defineFunction(
  'unfold(input, /, dimension, size, step)',
  (input: Tensor, dimension: number, size: number, step: number): Tensor => {
    requireTensor(input, 'unfold');
    const at = wrapDim(dimension, input.sizes.length, 'unfold');
    const total = input.sizes[at] ?? 1;
    if (
      !Number.isInteger(size) ||
      size < 0 ||
      size > total ||
      !Number.isInteger(step) ||
      step < 1
    ) {
      throw new ArgumentError(
        `unfold: windows of ${shown(size)} every ${shown(step)} do not fit dim ${dimension} of ` +
          `shape ${formatShape(input.sizes)}`,
        {
          op: 'unfold',
          dim: dimension,
          size,
          step,
        },
      );
    }
    return dispatchOne(unfoldOp, [input], { dim: at, size, step });
  },
);

addMethod('narrow', methodOf(narrow));
addMethod('slice', methodOf(slice));
addMethod('select', methodOf(select));
addMethod('diagonal', methodOf(diagonal));
addMethod('unfold', methodOf(unfold));

declare module '../core/tensor.js' {
  interface Tensor {
    /**
     * `length` elements of one dim from `start`, as a view; the same as {@link narrow}.
     *
     * @example
     * arange(5).narrow(0, 1, 3); // [1, 2, 3]
     */
    narrow: MethodOf<typeof narrow>;
    /** Elements `start` to `end` of one dim by `step`, as a view; the same as {@link slice}. */
    slice: MethodOf<typeof slice>;
    /**
     * One index of one dim, which falls away, as a view; the same as {@link select}.
     *
     * @example
     * tensor([[1, 2], [3, 4]]).select(0, 1); // [3, 4]
     * tensor([[1, 2], [3, 4]]).select(-1, 0); // [1, 3]
     */
    select: MethodOf<typeof select>;
    /** The diagonal of two dims, as a view; the same as {@link diagonal}. */
    diagonal: MethodOf<typeof diagonal>;
    /** Windows along a dim, as a view; the same as {@link unfold}. */
    unfold: MethodOf<typeof unfold>;
  }
}
