/**
 * Reading and writing by index tensors: indexSelect, gather, scatter, index, indexPut, embedding,
 * oneHot.
 */

import { calledAs } from '../core/call-context.js';
import { dispatchOne } from '../core/dispatch.js';
import { bool, int32, int64 } from '../core/dtype.js';
import { ArgumentError, DtypeError, IndexError, ShapeError } from '../core/errors.js';
import { defineOp, type Op, type OpDefinition } from '../core/op.js';
import { type ParamsOf, param } from '../core/op-params.js';
import { checkNumber, unexpected } from '../core/options.js';
import { formatShape, numelOf, type Shape, wrapDim } from '../core/shape.js';
import { defineFunction, type MethodOf, methodOf } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { addMethod } from './method.js';
import { asVector, oneDim } from './no-dims.js';
import { requireTensor } from './operand.js';
import { reshapeIfNeeded } from './reshape-if-needed.js';
import { lowerRows } from './rows.js';
import { sampleTensor } from './samples.js';
import { gatherRule, indexSelectRule } from './sharding/gather.js';
import { indexAddRule, scatterRule } from './sharding/scatter.js';

const oneDimParams = {
  dim: param.value<number>(),
};
type OneDim = ParamsOf<typeof oneDimParams>;

/** @throws DtypeError unless the tensor holds indices. */
function requireIndex(index: Tensor, op: string): void {
  requireTensor(index, op, 'index');
  if (index.dtype !== int64 && index.dtype !== int32)
    throw new DtypeError(`${op}: expected an int64 or int32 index, got ${index.dtype.name}`, {
      op,
      dtype: index.dtype.name,
    });
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
  operands: '(x: T[a, m, b], index: numel(n)) -> (y: T[a, n, b])',
  params: oneDimParams,
  doc: 'The slices of one dim that an index lists.',
  sharding: indexSelectRule,
  meta: ([x, index], { dim }) => [
    { ...likeInput(x), shape: x.shape.map((s, i) => (i === dim ? index.numel() : s)) },
  ],
  lower: (command, [x, index], [y], { dim }) => {
    const from = threeDims(x.shape, dim);
    const to = threeDims(y.shape, dim);
    command.view(x, from.sizes, from.strides);
    command.tensor(index);
    command.outputView(y, to.sizes, to.strides);
  },
  saves: { inputs: [1] },
  vjp: (ctx, g) => [indexAdd(g.newZeros(ctx.inputShape(0)), ctx.params.dim, ctx.input(1), g), null],
  samples: () => [
    {
      inputs: [sampleTensor([4, 3]), sampleTensor([5], { dtype: int64, low: 0, high: 4 })],
      params: { dim: 0 },
    },
  ],
});

const indexAddParams = { ...oneDimParams, alpha: param.kernel() };
type IndexAdd = ParamsOf<typeof indexAddParams>;

const indexAddOp: Op<IndexAdd> = defineOp({
  name: 'indexAdd',
  inputs: ['x', 'index', 'source'],
  outputs: ['y'],
  operands: '(index: numel(n), source: [a, n, b]) -> (y: [a, m, b])',
  params: indexAddParams,
  doc: 'Slices of the source added into the slices of one dim that an index lists.',
  sharding: indexAddRule,
  updates: 0,
  meta: ([x]) => [likeInput(x)],
  lower: (command, [index, source], [y], { dim }) => {
    const from = threeDims(source.shape, dim);
    const to = threeDims(y.shape, dim);
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
});

function likeInput(input: Tensor) {
  return { shape: input.shape, strides: null, dtype: input.dtype, device: input.device };
}

const gatherOp: Op<OneDim> = defineOp({
  name: 'gather',
  inputs: ['x', 'index'],
  outputs: ['y'],
  operands: '(x: T[...], index: [...s]) -> (y: T[...s]) where within(index, x)',
  params: oneDimParams,
  doc: 'out[i][j] = input[index[i][j]][j] for dim 0, and so on.',
  sharding: gatherRule,
  meta: ([x, index]) => [{ ...likeInput(x), shape: index.shape }],
  lower: (command, inputs, outputs, { dim }) => lowerRows(command, inputs, outputs, dim),
  saves: { inputs: [1] },
  vjp: (ctx, g) => [
    scatterAdd(g.newZeros(ctx.inputShape(0)), ctx.params.dim, ctx.input(1), g),
    null,
  ],
  samples: () => [
    {
      inputs: [sampleTensor([4, 3]), sampleTensor([2, 3], { dtype: int64, low: 0, high: 4 })],
      params: { dim: 0 },
    },
  ],
});

/**
 * How `scatter` combines a value with what is there: `'set'` overwrites, the others add, multiply,
 * or keep the larger or smaller.
 */
export type ScatterReduce = 'set' | 'add' | 'multiply' | 'amax' | 'amin';
const reduceCodes: Record<ScatterReduce, number> = {
  set: 0,
  add: 1,
  multiply: 2,
  amax: 3,
  amin: 4,
};

const scatterParams = { ...oneDimParams, reduce: param.code<ScatterReduce>(reduceCodes) };
export type Scatter = ParamsOf<typeof scatterParams>;
/** What the ops that scatter have in common. */
export const scatterForm = {
  kernel: 'scatter',
  sharding: scatterRule,
  traits: ['strided-output'],
  updates: 0,
  inputs: ['x', 'index', 'source'],
  outputs: ['y'],
  operands:
    '(index: [...s], source?: [...s]) -> (y: [...]) where within(index, y), below(reduce, 5)',
  params: scatterParams,
  meta: ([x]) => [likeInput(x)],
  lower: (command, inputs, outputs, { dim }) => lowerRows(command, inputs, outputs, dim),
} as const satisfies Partial<
  OpDefinition<typeof scatterParams, readonly ['x', 'index', 'source'], readonly ['y']>
>;

const scatterOp: Op<Scatter> = defineOp({
  ...scatterForm,
  name: 'scatter',
  doc: 'input[index[i][j]][j] = source[i][j] for dim 0, and so on; or added to what is there.',
  saves: { inputs: [1] },
  vjp: (ctx, g) => {
    const { dim, reduce } = ctx.params;
    const index = ctx.input(1);
    return [
      reduce === 'set' ? scatter(g, dim, index, 0) : g,
      null,
      ctx.needs(2) ? gather(g, dim, index) : null,
    ];
  },
  samples: () => [
    {
      inputs: [
        sampleTensor([4, 3]),
        sampleTensor([2, 3], { dtype: int64, low: 0, high: 4 }),
        sampleTensor([2, 3], { seed: 9 }),
      ],
      params: { dim: 0, reduce: 'add' as const },
    },
    {
      // No position twice: which value would stay is not defined.
      inputs: [
        sampleTensor([3, 4]),
        sampleTensor([3, 3], { seed: 3 }).argsort(1),
        sampleTensor([3, 3], { seed: 9 }),
      ],
      params: { dim: 1, reduce: 'set' as const },
    },
  ],
});

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
    if (input.shape.length === 0 && index.numel() !== 1)
      throw new ShapeError(
        `indexSelect: a tensor without dims has one element, got ${index.numel()} indices`,
        { op: 'indexSelect' },
      );
    if (index.shape.length > 1)
      throw new ShapeError(
        `indexSelect: expected a vector of indices, got shape ${formatShape(index.shape)}`,
        { op: 'indexSelect' },
      );
    return dispatchOne(
      indexSelectOp,
      [input.contiguous(), reshapeIfNeeded(index, [-1]).contiguous()],
      { dim: wrapDim(dim, input.shape.length, 'indexSelect') },
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
  if (input.shape.length + source.shape.length === 1)
    return asVector(input, into, (row, place) =>
      indexAddInto(op, row, dim, index, oneDim(source), options, place),
    );
  if (index.shape.length > 1)
    throw new ShapeError(
      `${op}: expected a vector of indices, got shape ${formatShape(index.shape)}`,
      { op },
    );
  if (!input.dtype.isFloatingPoint)
    checkNumber(op, `alpha for a tensor of ${input.dtype.name}`, alpha, { whole: true });
  const at = wrapDim(dim, input.shape.length, op);
  const expected = input.shape.map((s, i) => (i === at ? index.numel() : s));
  if (source.shape.length !== expected.length || expected.some((s, i) => s !== source.shape[i])) {
    throw new ShapeError(
      `${op}: expected a source of shape ${formatShape(expected)}, got ${formatShape(source.shape)}`,
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

function checkGather(op: string, input: Tensor, dim: number, index: Tensor): number {
  requireTensor(input, op);
  requireIndex(index, op);
  const at = wrapDim(dim, input.shape.length, op);
  const fits =
    index.shape.length === input.shape.length &&
    index.shape.every((s, i) => i === at || s <= (input.shape[i] as number));
  if (!fits)
    throw new ShapeError(
      `${op}: an index of shape ${formatShape(index.shape)} does not fit an input of shape ${formatShape(input.shape)} along dim ${dim}`,
      { op },
    );
  return at;
}

/**
 * Elements at `index` along a dim: out[i][j] = input[index[i][j]][j] for dim 0. Shapes: index with
 * as many dims as the input, in the other dims not larger; the result has the index's. Dtypes: any,
 * kept; `index` int64 or int32. Gradient: input.
 *
 * @throws IndexError as {@link indexSelect}; ShapeError for an index that does not fit; DtypeError
 * for another index; ArgumentError unless tensors
 * @see PyTorch `torch.gather`
 */
export const gather = defineFunction(
  'gather(input, /, dim, index)',
  (input: Tensor, dim: number, index: Tensor): Tensor => {
    requireTensor(input, 'gather');
    requireIndex(index, 'gather');
    if (input.shape.length + index.shape.length === 1)
      return reshapeIfNeeded(gather(oneDim(input), dim, oneDim(index)), index.shape);
    if (input.shape.length > 0 && index.numel() === 0)
      return input.narrow(0, 0, 0).reshape(index.shape).clone();
    const at = checkGather('gather', input, dim, index);
    return dispatchOne(gatherOp, [input, index], { dim: at });
  },
);

/**
 * Checks the operands of an op that scatters; returns the dim. @throws ShapeError, DtypeError,
 * IndexError, ArgumentError @internal
 */
export function checkScatter(
  op: string,
  input: Tensor,
  dim: number,
  index: Tensor,
  source: Tensor | number,
): number {
  const at = checkGather(op, input, dim, index);
  if (typeof source === 'number') return at;
  requireTensor(source, op, 'source');
  const sized = index.shape.every((s, i) => s <= (source.shape[i] as number));
  if (source.shape.length !== index.shape.length || !sized)
    throw new ShapeError(
      `${op}: a source of shape ${formatShape(source.shape)} does not cover an index of shape ${formatShape(index.shape)}`,
      { op },
    );
  if (source.dtype !== input.dtype)
    throw new DtypeError(
      `${op}: expected a source of dtype ${input.dtype.name}, got ${source.dtype.name}`,
      { op },
    );
  return at;
}

/** The operands of ops that scatter, with the source cut to the index; `at` is the dim. */
function scatterOperands(
  op: string,
  input: Tensor,
  dim: number,
  index: Tensor,
  source: Tensor | number,
): { operands: Tensor[]; at: number } {
  const at = checkScatter(op, input, dim, index, source);
  let seen = typeof source === 'number' ? input.newFull([], source).expand(index.shape) : source;
  index.shape.forEach((s, i) => {
    if (s !== seen.shape[i]) seen = seen.narrow(i, 0, s);
  });
  return { operands: [input, index, seen], at };
}

/**
 * Scatters by products and extremes; installed by scatter-reduce.ts, which builds on this file.
 * @internal
 */
export const scatterReduceOp: { op: Op<Scatter> | null } = { op: null };

function scatterInto(
  name: string,
  input: Tensor,
  dim: number,
  index: Tensor,
  source: Tensor | number,
  reduce: ScatterReduce,
  into: Tensor | null,
): Tensor {
  if (!Object.hasOwn(reduceCodes, reduce))
    throw unexpected(name, 'reduce', `one of ${Object.keys(reduceCodes).join(', ')}`, reduce);
  requireTensor(input, name);
  requireIndex(index, name);
  if (typeof source !== 'number') requireTensor(source, name, 'source');
  const values =
    typeof source !== 'number' && input.shape.length + index.shape.length > 0
      ? oneDim(source)
      : source;
  if (input.shape.length + index.shape.length === 1)
    return asVector(input, into, (row, place) =>
      scatterInto(name, row, dim, oneDim(index), values, reduce, place),
    );
  if (index.numel() === 0 && index.shape.length !== input.shape.length)
    return into ?? input.clone(); // PyTorch asks no more of an index that names nothing
  const { operands, at } = scatterOperands(name, input, dim, index, values);
  const op = reduce === 'set' || reduce === 'add' ? scatterOp : (scatterReduceOp.op as Op<Scatter>);
  return dispatchOne(op, operands, { dim: at, reduce }, into);
}

/**
 * `input` with `source` written at `index` along a dim: out[index[i][j]][j] = source[i][j] for dim
 * 0; or combined with what is there, by `reduce` (`'set'` by default: which of two for one place
 * stays is not defined). Shapes: index as for {@link gather}, source a number or at least as large
 * as the index; the result has the input's. Dtypes: equal, kept; `index` int64 or int32. Gradient:
 * input and source.
 *
 * @throws IndexError as {@link indexSelect}; ShapeError for an index or source that does not fit;
 * DtypeError for a source of another dtype, or another index; ArgumentError unless input and index
 * are tensors, and for a number that an integer dtype cannot hold
 * @see PyTorch `torch.scatter`
 */
export const scatter = defineFunction(
  'scatter(input, /, dim, index, src, *, reduce)',
  (
    input: Tensor,
    dim: number,
    index: Tensor,
    src: Tensor | number,
    { reduce = 'set' }: { reduce?: ScatterReduce } = {},
  ): Tensor => {
    return scatterInto('scatter', input, dim, index, src, reduce, null);
  },
);

function scatterAddInto(
  name: string,
  input: Tensor,
  dim: number,
  index: Tensor,
  source: Tensor,
  into: Tensor | null,
): Tensor {
  requireTensor(source, name, 'source');
  return scatterInto(name, input, dim, index, source, 'add', into);
}

/**
 * `input` with `source` added at `index` along a dim, in a fixed order. Gradient: input and source.
 * Shapes, dtypes and errors as {@link scatter}.
 *
 * @see PyTorch `torch.scatter_add`
 */
export const scatterAdd = defineFunction(
  'scatterAdd(input, /, dim, index, src)',
  (input: Tensor, dim: number, index: Tensor, src: Tensor): Tensor => {
    return scatterAddInto('scatterAdd', input, dim, index, src, null);
  },
);

/**
 * Rows of `weight` by index. Shapes: input `[...]`, weight `[n, d]`, result `[..., d]`. Dtypes:
 * input int64 or int32, weight any, kept. Gradient: weight, but not its row `paddingIdx` (none by
 * default; a negative one counts from the end).
 *
 * @throws IndexError for a `paddingIdx` out of range, and an index outside [0, n), possibly not
 * before values are read; ShapeError unless the weight is a matrix; DtypeError for another index;
 * ArgumentError unless `input` is a tensor
 * @see PyTorch `torch.nn.functional.embedding`
 */
export const embedding = defineFunction(
  'embedding(input, /, weight, paddingIdx)',
  (input: Tensor, weight: Tensor, paddingIdx: number | null = null): Tensor => {
    requireTensor(weight, 'embedding', 'weight');
    requireIndex(input, 'embedding');
    if (weight.shape.length !== 2)
      throw new ShapeError(
        `embedding: expected a weight of 2 dims, got ${formatShape(weight.shape)}`,
        { op: 'embedding' },
      );
    if (weight.shape[0] === 0 && input.numel() > 0)
      throw new IndexError('embedding: a weight without rows has none for an index', {
        op: 'embedding',
        shape: weight.shape,
      });
    const table = paddingIdx === null ? weight : withoutGradient(weight, paddingIdx);
    return reshapeIfNeeded(indexSelect(table, 0, reshapeIfNeeded(input, [-1])), [
      ...input.shape,
      weight.shape[1] as number,
    ]);
  },
);

function withoutGradient(weight: Tensor, row: number): Tensor {
  const rows = weight.shape[0] as number;
  if (row < -rows || row >= rows)
    throw new IndexError(`embedding: paddingIdx ${row} is out of range for ${rows} rows`, {
      op: 'embedding',
    });
  if (!weight.requiresGrad) return weight;
  const at = row < 0 ? row + rows : row;
  const mask = weight.newZeros([rows, 1], { dtype: bool });
  mask.select(0, at).fill_(1);
  return weight.detach().where(mask, weight);
}

/**
 * Zeros with a one at each index. Shapes: `[...]` to `[..., numClasses]`; without `numClasses`, one
 * more than the largest index (which blocks). Dtypes: int64 or int32 to int64. Gradient: none.
 *
 * @throws IndexError for an index outside [0, numClasses), possibly not before values are read;
 * DtypeError, ArgumentError for another index
 * @see PyTorch `torch.nn.functional.one_hot`
 */
export const oneHot = defineFunction(
  'oneHot(input, /, numClasses)',
  (input: Tensor, numClasses = -1): Tensor => {
    requireIndex(input, 'oneHot');
    checkNumber('oneHot', 'numClasses', numClasses, { from: -1, whole: true });
    const classes =
      numClasses >= 0
        ? numClasses
        : input.numel() === 0
          ? 0
          : Number(calledAs('oneHot', () => input.amax().item())) + 1;
    if (classes === 0 && input.numel() > 0)
      throw new ArgumentError('oneHot: no index is below 0 classes', { op: 'oneHot', numClasses });
    const zeros = input.newZeros([...input.shape, classes], { dtype: int64 });
    return scatter(zeros, -1, input.unsqueeze(-1), 1);
  },
);

addMethod('embedding', methodOf(embedding));
addMethod('oneHot', methodOf(oneHot));
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
addMethod('gather', methodOf(gather));
addMethod('scatter', methodOf(scatter));
const scatter_ = defineFunction(
  'scatter_(input, /, dim, index, src, *, reduce)',
  (
    input: Tensor,
    dim: number,
    index: Tensor,
    src: Tensor | number,
    { reduce = 'set' }: { reduce?: ScatterReduce } = {},
  ): Tensor => scatterInto('scatter_', input, dim, index, src, reduce, input),
);
addMethod('scatter_', methodOf(scatter_));
addMethod('scatterAdd', methodOf(scatterAdd));
const scatterAdd_ = defineFunction(
  'scatterAdd_(input, /, dim, index, src)',
  (input: Tensor, dim: number, index: Tensor, src: Tensor): Tensor =>
    scatterAddInto('scatterAdd_', input, dim, index, src, input),
);
addMethod('scatterAdd_', methodOf(scatterAdd_));

export { requireIndex };

declare module '../core/tensor.js' {
  interface Tensor {
    /** Rows of `weight` by this index. The same as {@link embedding}. */
    embedding: MethodOf<typeof embedding>;
    /**
     * Zeros with a one at each index, as int64. Blocks without `numClasses`. The same as {@link
     * oneHot}.
     */
    oneHot: MethodOf<typeof oneHot>;
    /** The slices of one dim that `index` lists. The same as {@link indexSelect}. */
    indexSelect: MethodOf<typeof indexSelect>;
    /** This with slices of `source` added where `index` says. The same as {@link indexAdd}. */
    indexAdd: MethodOf<typeof indexAdd>;
    /** {@link indexAdd} in place, with its errors. @throws InPlaceError as {@link Tensor.relu_} */
    indexAdd_: MethodOf<typeof indexAdd_, this>;
    /** Elements at `index` along a dim. The same as {@link gather}. */
    gather: MethodOf<typeof gather>;
    /** This with `source` written at `index` along a dim. The same as {@link scatter}. */
    scatter: MethodOf<typeof scatter>;
    /** {@link scatter} in place, with its errors. @throws InPlaceError as {@link Tensor.relu_} */
    scatter_: MethodOf<typeof scatter_, this>;
    /** This with `source` added at `index` along a dim. The same as {@link scatterAdd}. */
    scatterAdd: MethodOf<typeof scatterAdd>;
    /**
     * {@link scatterAdd} in place, with its errors. @throws InPlaceError as {@link Tensor.relu_}
     */
    scatterAdd_: MethodOf<typeof scatterAdd_, this>;
  }
}
