/** Slices of one dim by an index vector: indexSelect, indexAdd. */

import { dispatchOne } from '../core/dispatch.js';
import { int32, int64 } from '../core/dtype.js';
import { DtypeError, ShapeError } from '../core/errors.js';
import type { VjpContext } from '../core/gradient-rules.js';
import { defineOp, type Op } from '../core/op.js';
import { type ParamsOf, param } from '../core/op-params.js';
import { checkNumber } from '../core/options.js';
import { formatShape, numelOf, type Shape, wrapDim } from '../core/shape.js';
import { defineFunction, type MethodOf, methodOf } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { addMethod } from './method.js';
import { asVector, oneDim } from './one-dim.js';
import { requireTensor } from './operand.js';
import { reshapeIfNeeded } from './reshape-if-needed.js';
import { sampleTensor } from './samples.js';
import { indexSelectRule } from './sharding/gather.js';
import { indexAddRule } from './sharding/scatter.js';

/** @internal */
export const oneDimParams = {
  dim: param.value<number>(),
};
/** @internal */
export type OneDim = ParamsOf<typeof oneDimParams>;

/** @throws DtypeError unless the tensor holds indices. @internal */
export function requireIndex(index: Tensor, op: string): void {
  requireTensor(index, op, 'index');
  if (index.dtype !== int64 && index.dtype !== int32)
    throw new DtypeError(
      `${op}: expected an int64 or int32 index, got ${index.dtype.name}; convert it with .long()`,
      { op, dtype: index.dtype.name },
    );
}

/** The three sizes around a dim: before, the dim, after. */
function around(shape: Shape, dim: number): [number, number, number] {
  return [numelOf(shape.slice(0, dim)), shape[dim] ?? 1, numelOf(shape.slice(dim + 1))];
}

function threeDims(shape: Shape, dim: number): { sizes: number[]; strides: number[] } {
  const [a, n, b] = around(shape, dim);
  return { sizes: [a, n, b], strides: [n * b, b, 1] };
}

const indexSelectOp: Op<OneDim> = defineOp({
  name: 'indexSelect',
  inputs: ['x', 'index'],
  outputs: ['y'],
  operands: '(x: T[a, m, b], index: indices numel(n)) -> (y: T[a, n, b])',
  params: oneDimParams,
  doc: 'The slices of one dim that an index lists.',
  sharding: indexSelectRule,
  meta: ([x, index], { dim }) => [
    { ...likeInput(x), shape: x.sizes.map((s, i) => (i === dim ? index.numel() : s)) },
  ],
  lower: (command, [x, index], [y], { dim }) => {
    const from = threeDims(x.sizes, dim);
    const to = threeDims(y.sizes, dim);
    command.view(x, from.sizes, from.strides);
    command.tensor(index);
    command.outputView(y, to.sizes, to.strides);
  },
  saves: { inputs: [1] },
  vjp: (ctx, g) => [gradientOfTable(ctx, g), null],
  samples: () => [
    {
      inputs: [sampleTensor([4, 3]), sampleTensor([5], { dtype: int64, low: 0, high: 4 })],
      params: { dim: 0 },
    },
  ],
  publicCall: ([x, index], { dim }) => indexSelect(x, dim, index),
});

/**
 * The gradient of the tensor that slices were taken of, such as the weight of an embedding: added
 * into what arrived from its other uses, such as a tied output layer.
 */
function gradientOfTable(ctx: VjpContext<OneDim>, g: Tensor): Tensor {
  const arrived = ctx.gradientDtype(0) === g.dtype ? ctx.takeArrived(0) : null;
  const base = arrived ?? g.newZeros(ctx.inputShape(0));
  const { dim } = ctx.params;
  return ctx.mayChange(base)
    ? indexAdd_(base, dim, ctx.input(1), g)
    : indexAdd(base, dim, ctx.input(1), g);
}

const indexAddParams = { ...oneDimParams, alpha: param.kernel() };
type IndexAdd = ParamsOf<typeof indexAddParams>;

const indexAddOp: Op<IndexAdd> = defineOp({
  name: 'indexAdd',
  inputs: ['x', 'index', 'source'],
  outputs: ['y'],
  operands: '(index: indices numel(n), source: [a, n, b]) -> (y: [a, m, b])',
  params: indexAddParams,
  doc: 'Slices of the source added into the slices of one dim that an index lists.',
  sharding: indexAddRule,
  updates: 0,
  meta: ([x]) => [likeInput(x)],
  lower: (command, [index, source], [y], { dim }) => {
    const from = threeDims(source.sizes, dim);
    const to = threeDims(y.sizes, dim);
    command.tensor(index);
    command.view(source, from.sizes, from.strides);
    command.outputView(y, to.sizes, to.strides);
  },
  saves: { inputs: [1] },
  vjp: (ctx, g) => [
    g,
    null,
    ctx.needs(2) ? indexSelect(g, ctx.params.dim, ctx.input(1)).mul(ctx.params.alpha) : null,
  ],
  samples: () => [
    {
      inputs: [
        sampleTensor([4, 3]),
        sampleTensor([5], { dtype: int64, low: 0, high: 4 }),
        sampleTensor([5, 3], { seed: 9 }),
      ],
      params: { dim: 0, alpha: 2 },
    },
  ],
  publicCall: ([x, index, source], { dim, alpha }) => indexAdd(x, dim, index, source, { alpha }),
});

/** @internal */
export function likeInput(input: Tensor) {
  return { shape: input.sizes, strides: null, dtype: input.dtype, device: input.device };
}

/**
 * The slices of one dim that `index` lists. Shapes: index `[k]` (or `[]` for one); the result is
 * the input's with k in place of the dim; `[]` has one slice, itself, and takes one index. Dtypes:
 * any, kept; `index` int64 or int32. Gradient: input.
 *
 * @throws IndexError for a dim out of range, and for an index outside [0, size), possibly not
 * before values are read; ShapeError for an index of several dims, and for no or several indices of
 * a tensor without dims; DtypeError for another index; ArgumentError unless both are tensors
 * @see PyTorch `torch.index_select`
 */
export const indexSelect = defineFunction(
  'indexSelect(input, /, dim, index)',
  (input: Tensor, dim: number, index: Tensor): Tensor => {
    requireTensor(input, 'indexSelect');
    requireIndex(index, 'indexSelect');
    if (input.sizes.length === 0 && index.numel() !== 1)
      throw new ShapeError(
        `indexSelect: a tensor without dims has one element, got ${index.numel()} indices`,
        { op: 'indexSelect' },
      );
    if (index.sizes.length > 1)
      throw new ShapeError(
        `indexSelect: expected a vector of indices, got shape ${formatShape(index.sizes)}`,
        { op: 'indexSelect' },
      );
    return dispatchOne(
      indexSelectOp,
      [input.contiguous(), reshapeIfNeeded(index, [-1]).contiguous()],
      { dim: wrapDim(dim, input.sizes.length, 'indexSelect') },
    );
  },
);

function indexAddInto(
  op: string,
  input: Tensor,
  dim: number,
  index: Tensor,
  source: Tensor,
  options: { alpha?: number },
  into: Tensor | null,
): Tensor {
  requireIndex(index, op);
  requireTensor(source, op, 'source');
  const { alpha = 1 } = options;
  if (input.sizes.length + source.sizes.length === 1)
    return asVector(input, into, (row, place) =>
      indexAddInto(op, row, dim, index, oneDim(source), options, place),
    );
  if (index.sizes.length > 1)
    throw new ShapeError(
      `${op}: expected a vector of indices, got shape ${formatShape(index.sizes)}`,
      { op },
    );
  if (!input.dtype.isFloatingPoint)
    checkNumber(op, `alpha for a tensor of ${input.dtype.name}`, alpha, { whole: true });
  const at = wrapDim(dim, input.sizes.length, op);
  const expected = input.sizes.map((s, i) => (i === at ? index.numel() : s));
  if (source.sizes.length !== expected.length || expected.some((s, i) => s !== source.sizes[i])) {
    throw new ShapeError(
      `${op}: expected a source of shape ${formatShape(expected)}, got ` +
        `${formatShape(source.sizes)}`,
      { op },
    );
  }
  if (source.dtype !== input.dtype)
    throw new DtypeError(
      `${op}: expected a source of dtype ${input.dtype.name}, got ${source.dtype.name}`,
      {
        op,
        expected: input.dtype.name,
        given: source.dtype.name,
      },
    );
  return dispatchOne(
    indexAddOp,
    [input, reshapeIfNeeded(index, [-1]).contiguous(), source.contiguous()],
    { dim: at, alpha },
    into,
  );
}

/**
 * `input` with slices of `source`, times `alpha` (1 by default), added along a dim where `index`
 * says. Shapes: index `[k]`, source as the input with k slices; the result has the input's. Dtypes:
 * equal, kept; `index` int64 or int32. Gradient: input and source.
 *
 * @throws IndexError as {@link indexSelect}; ShapeError for a source of another shape; DtypeError
 * for a source of another dtype, or another index; ArgumentError unless `index` is a tensor
 * @see PyTorch `torch.index_add`
 */
export const indexAdd = defineFunction(
  'indexAdd(input, /, dim, index, source, *, alpha)',
  (
    input: Tensor,
    dim: number,
    index: Tensor,
    source: Tensor,
    options: { alpha?: number } = {},
  ): Tensor => {
    requireTensor(input, 'indexAdd');
    return indexAddInto('indexAdd', input, dim, index, source, options, null);
  },
);
addMethod('indexSelect', methodOf(indexSelect));
addMethod('indexAdd', methodOf(indexAdd));
const indexAdd_ = defineFunction(
  'indexAdd_(input, /, dim, index, source, *, alpha)',
  (
    input: Tensor,
    dim: number,
    index: Tensor,
    source: Tensor,
    options: { alpha?: number } = {},
  ): Tensor => indexAddInto('indexAdd_', input, dim, index, source, options, input),
);
addMethod('indexAdd_', methodOf(indexAdd_));

declare module '../core/tensor.js' {
  interface Tensor {
    /** The slices of one dim that `index` lists. The same as {@link indexSelect}. */
    indexSelect: MethodOf<typeof indexSelect>;
    /** This with slices of `source` added where `index` says. The same as {@link indexAdd}. */
    indexAdd: MethodOf<typeof indexAdd>;
    /** {@link indexAdd} in place, with its errors. @throws InPlaceError as {@link Tensor.relu_} */
    indexAdd_: MethodOf<typeof indexAdd_, this>;
  }
}
