/** Reading and writing along one dim by an index tensor: gather, scatter, scatterAdd. */

import { dispatchOne } from '../core/dispatch.js';
import { int64 } from '../core/dtype.js';
import { DtypeError, ShapeError } from '../core/errors.js';
import { defineOp, type Op, type OpDefinition } from '../core/op.js';
import { type ParamsOf, param } from '../core/op-params.js';
import { unexpected } from '../core/options.js';
import { formatShape, wrapDim } from '../core/shape.js';
import { defineFunction, type MethodOf, methodOf } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { likeInput, requireIndex } from './index-select.js';
import { addMethod } from './method.js';
import { asVector, lowerRows, type OneDim, oneDim, oneDimParams } from './one-dim.js';
import { requireTensor } from './operand.js';
import { reshapeIfNeeded } from './reshape-if-needed.js';
import { sampleTensor } from './samples.js';
import { extremeGradients, productGradients } from './scatter-reduce.js';
import { gatherRule } from './sharding/gather.js';
import { scatterRule } from './sharding/scatter.js';

const gatherOp: Op<OneDim> = defineOp({
  name: 'gather',
  inputs: ['x', 'index'],
  outputs: ['y'],
  operands: '(x: T[...], index: indices [...s]) -> (y: T[...s]) where within(index, x)',
  params: oneDimParams,
  doc: 'out[i][j] = input[index[i][j]][j] for dim 0, and so on.',
  sharding: gatherRule,
  meta: ([x, index]) => [{ ...likeInput(x), shape: index.sizes }],
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
 * How `scatter` combines a value with the old one: `'set'` overwrites, the others add, multiply, or
 * keep the larger or smaller.
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
/** The common part of the ops that scatter. */
const scatterForm = {
  kernel: 'scatter',
  sharding: scatterRule,
  traits: ['strided-output'],
  updates: 0,
  inputs: ['x', 'index', 'source'],
  outputs: ['y'],
  operands:
    '(index: indices [...s], source?: [...s]) -> (y: [...])' +
    ' where within(index, y), below(reduce, 5)',
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
      // No position occurs twice, because which value stays is not defined.
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
 * Scatter for products and extremes. It is a separate op because their gradients read all operands,
 * which scatter need not save.
 */
const scatterReductionOp: Op<Scatter> = defineOp({
  ...scatterForm,
  name: 'scatterReduction',
  doc: 'Values combined by products or extremes where they share a place, with what is there.',
  saves: { inputs: [0, 1, 2], outputs: [0] },
  vjp: (ctx, g) =>
    ctx.params.reduce === 'multiply' ? productGradients(ctx, g) : extremeGradients(ctx, g),
  samples: () =>
    (['multiply', 'amax', 'amin'] as const).map((reduce) => ({
      inputs: [
        sampleTensor([4, 3]),
        sampleTensor([3, 3], { dtype: int64, low: 0, high: 4 }),
        sampleTensor([3, 3], { seed: 9 }),
      ] as const,
      params: { dim: 0, reduce },
    })),
});

function checkGather(op: string, input: Tensor, dim: number, index: Tensor): number {
  requireTensor(input, op);
  requireIndex(index, op);
  const at = wrapDim(dim, input.sizes.length, op);
  const fits =
    index.sizes.length === input.sizes.length &&
    index.sizes.every((s, i) => i === at || s <= (input.sizes[i] as number));
  if (!fits)
    throw new ShapeError(
      `${op}: an index of shape ${formatShape(index.sizes)} does not fit an input of shape ` +
        `${formatShape(input.sizes)} along dim ${dim}`,
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
    if (input.sizes.length + index.sizes.length === 1)
      return reshapeIfNeeded(gather(oneDim(input), dim, oneDim(index)), index.sizes);
    if (input.sizes.length > 0 && index.numel() === 0)
      return input.narrow(0, 0, 0).reshape(index.sizes).clone();
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
  const sized = index.sizes.every((s, i) => s <= (source.sizes[i] as number));
  if (source.sizes.length !== index.sizes.length || !sized)
    throw new ShapeError(
      `${op}: a source of shape ${formatShape(source.sizes)} does not cover an index of shape ` +
        `${formatShape(index.sizes)}`,
      { op },
    );
  if (source.dtype !== input.dtype)
    throw new DtypeError(
      `${op}: expected a source of dtype ${input.dtype.name}, got ${source.dtype.name}`,
      { op },
    );
  return at;
}

/**
 * The operands of ops that scatter, with the source narrowed to the shape of the index; `at` is the
 * dim.
 */
function scatterOperands(
  op: string,
  input: Tensor,
  dim: number,
  index: Tensor,
  source: Tensor | number,
): { operands: Tensor[]; at: number } {
  const at = checkScatter(op, input, dim, index, source);
  let seen = typeof source === 'number' ? input.newFull([], source).expand(index.sizes) : source;
  index.sizes.forEach((s, i) => {
    if (s !== seen.sizes[i]) seen = seen.narrow(i, 0, s);
  });
  return { operands: [input, index, seen], at };
}

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
    typeof source !== 'number' && input.sizes.length + index.sizes.length > 0
      ? oneDim(source)
      : source;
  if (input.sizes.length + index.sizes.length === 1)
    return asVector(input, into, (row, place) =>
      scatterInto(name, row, dim, oneDim(index), values, reduce, place),
    );
  if (index.numel() === 0 && index.sizes.length !== input.sizes.length)
    return into ?? input.clone(); // PyTorch does not check further if the index is empty
  const { operands, at } = scatterOperands(name, input, dim, index, values);
  const op = reduce === 'set' || reduce === 'add' ? scatterOp : scatterReductionOp;
  return dispatchOne(op, operands, { dim: at, reduce }, into);
}

/**
 * `input` with `source` written at `index` along a dim: out[index[i][j]][j] = source[i][j] for dim
 * 0; or combined with the old value by `reduce` (`'set'` by default: if an element is written
 * twice, the result is not defined). Shapes: index as for {@link gather}, source a number or at
 * least as large as the index; the result has the input's. Dtypes: equal, kept; `index` int64 or
 * int32. Gradient: input and source.
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

declare module '../core/tensor.js' {
  interface Tensor {
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
