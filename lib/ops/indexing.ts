/** Reading and writing by index tensors: indexSelect, gather, scatter, index, indexPut, embedding, oneHot. */

import { dispatchOne } from '../core/dispatch.js';
import { bool, int32, int64 } from '../core/dtype.js';
import { ArgumentError, DtypeError, IndexError, ShapeError } from '../core/errors.js';
import { defineOp, type Op, type OpDefinition } from '../core/op.js';
import { checkNumber, optionsOf, unexpected } from '../core/options.js';
import { formatShape, numelOf, type Shape, wrapDim } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';
import { addMethod } from './method.js';
import { requireTensor } from './operand.js';
import { writeRows } from './rows.js';
import { sampleTensor } from './samples.js';

interface OneDim {
  dim: number;
}

/** @throws DtypeError unless the tensor holds indices. */
function requireIndex(index: Tensor, op: string): void {
  requireTensor(index, op, 'index');
  if (index.dtype !== int64 && index.dtype !== int32) throw new DtypeError(`${op}: expected an int64 or int32 index, got ${index.dtype.name}`, { op, dtype: index.dtype.name });
}

/** The three sizes around a dim: before, the dim, after. */
function around(shape: Shape, dim: number): [number, number, number] {
  return [numelOf(shape.slice(0, dim)), shape[dim] ?? 1, numelOf(shape.slice(dim + 1))];
}

function threeDims(shape: Shape, dim: number): { sizes: number[]; strides: number[] } {
  const [a, n, b] = around(shape, dim);
  return { sizes: [a, n, b], strides: [n * b, b, 1] };
}

const indexSelectOp: Op<OneDim> = defineOp<OneDim>({
  name: 'indexSelect',
  doc: 'The slices of one dim that an index lists.',
  meta: ([x, index], { dim }) => {
    const input = x as Tensor;
    const shape = input.shape.map((s, i) => (i === dim ? (index as Tensor).numel() : s));
    return [{ shape, strides: null, dtype: input.dtype, device: input.device }];
  },
  lower: (command, [x, index], [output], { dim }) => {
    const from = threeDims((x as Tensor).shape, dim);
    const to = threeDims((output as Tensor).shape, dim);
    command.view(x as Tensor, from.sizes, from.strides);
    command.tensor(index as Tensor);
    command.outputView(output as Tensor, to.sizes, to.strides);
  },
  saves: { inputs: [1] },
  vjp: (ctx, g) => [indexAdd(g.newZeros(ctx.inputShape(0)), ctx.params.dim, ctx.input(1), g), null],
  samples: () => [{ inputs: [sampleTensor([4, 3]), sampleTensor([5], { dtype: int64, low: 0, high: 4 })], params: { dim: 0 } }],
});

interface IndexAdd extends OneDim {
  alpha: number;
}
const indexAddOp: Op<IndexAdd> = defineOp<IndexAdd>({
  name: 'indexAdd',
  doc: 'Slices of the source added into the slices of one dim that an index lists.',
  updates: 0,
  kernelParams: ['alpha'],
  meta: ([x]) => [likeInput(x as Tensor)],
  lower: (command, [index, source], [output], { dim, alpha }) => {
    const from = threeDims((source as Tensor).shape, dim);
    const out = output as Tensor;
    command.tensor(index as Tensor);
    command.view(source as Tensor, from.sizes, from.strides);
    const [a, n, b] = around(out.shape, dim);
    command.outputView(out, [a, n, b], [n * b, b, 1]);
    command.param(alpha);
  },
  saves: { inputs: [1] },
  vjp: (ctx, g) => [g, null, ctx.needs(2) ? indexSelect(g, ctx.params.dim, ctx.input(1)).mul(ctx.params.alpha) : null],
  samples: () => [{ inputs: [sampleTensor([4, 3]), sampleTensor([5], { dtype: int64, low: 0, high: 4 }), sampleTensor([5, 3], { seed: 9 })], params: { dim: 0, alpha: 2 } }],
});

function likeInput(input: Tensor) {
  return { shape: input.shape, strides: null, dtype: input.dtype, device: input.device };
}

const gatherOp: Op<OneDim> = defineOp<OneDim>({
  name: 'gather',
  doc: 'out[i][j] = input[index[i][j]][j] for dim 0, and so on.',
  meta: ([x, index]) => [{ ...likeInput(x as Tensor), shape: (index as Tensor).shape }],
  lower: (command, [x, index], [output], { dim }) => {
    writeRows((t, sizes, strides) => command.view(t, sizes, strides), x as Tensor, dim);
    writeRows((t, sizes, strides) => command.view(t, sizes, strides), index as Tensor, dim);
    writeRows((t, sizes, strides) => command.outputView(t, sizes, strides), output as Tensor, dim);
  },
  saves: { inputs: [1] },
  vjp: (ctx, g) => [scatterAdd(g.newZeros(ctx.inputShape(0)), ctx.params.dim, ctx.input(1), g), null],
  samples: () => [{ inputs: [sampleTensor([4, 3]), sampleTensor([2, 3], { dtype: int64, low: 0, high: 4 })], params: { dim: 0 } }],
});

/** How `scatter` combines a value with what is there. */
export type ScatterReduce = 'set' | 'add' | 'multiply' | 'amax' | 'amin';
const reduceCodes: Record<ScatterReduce, number> = { set: 0, add: 1, multiply: 2, amax: 3, amin: 4 };

export interface Scatter extends OneDim {
  reduce: ScatterReduce;
}
/** What the ops that scatter have in common. */
export const scatterForm = {
  kernel: 'scatter',
  traits: ['strided-output'],
  updates: 0,
  kernelParams: ['reduce'],
  meta: ([x]) => [likeInput(x as Tensor)],
  lower: (command, [index, source], [output], { dim, reduce }) => {
    writeRows((t, sizes, strides) => command.view(t, sizes, strides), index as Tensor, dim);
    writeRows((t, sizes, strides) => command.view(t, sizes, strides), source as Tensor, dim);
    writeRows((t, sizes, strides) => command.outputView(t, sizes, strides), output as Tensor, dim);
    command.param(reduceCodes[reduce]);
  },
} satisfies Partial<OpDefinition<Scatter>>;

const scatterOp: Op<Scatter> = defineOp<Scatter>({
  ...scatterForm,
  name: 'scatter',
  doc: 'input[index[i][j]][j] = source[i][j] for dim 0, and so on; or added to what is there.',
  saves: { inputs: [1] },
  vjp: (ctx, g) => {
    const { dim, reduce } = ctx.params;
    const index = ctx.input(1);
    return [reduce === 'set' ? scatter(g, dim, index, 0) : g, null, ctx.needs(2) ? gather(g, dim, index) : null];
  },
  samples: () => [
    {
      inputs: [sampleTensor([4, 3]), sampleTensor([2, 3], { dtype: int64, low: 0, high: 4 }), sampleTensor([2, 3], { seed: 9 })],
      params: { dim: 0, reduce: 'add' as const },
    },
    {
      // No position twice: which value would stay is not defined.
      inputs: [sampleTensor([3, 4]), sampleTensor([3, 3], { seed: 3 }).argsort(1), sampleTensor([3, 3], { seed: 9 })],
      params: { dim: 1, reduce: 'set' as const },
    },
  ],
});

/** The slices of one dim that `index` lists. @throws IndexError (when the values are known), DtypeError, ShapeError */
export function indexSelect(input: Tensor, dim: number, index: Tensor): Tensor {
  requireTensor(input, 'indexSelect');
  requireIndex(index, 'indexSelect');
  if (index.shape.length > 1) throw new ShapeError(`indexSelect: expected a vector of indices, got shape ${formatShape(index.shape)}`, { op: 'indexSelect' });
  return dispatchOne(indexSelectOp, [input.contiguous(), index.reshape(-1).contiguous()], { dim: wrapDim(dim, input.shape.length, 'indexSelect') });
}

function indexAddInto(op: string, input: Tensor, dim: number, index: Tensor, source: Tensor, options: { alpha?: number }, into: Tensor | null): Tensor {
  requireIndex(index, op);
  requireTensor(source, op, 'source');
  const { alpha = 1 } = optionsOf(op, options);
  const at = wrapDim(dim, input.shape.length, op);
  const expected = input.shape.map((s, i) => (i === at ? index.numel() : s));
  if (source.shape.length !== expected.length || expected.some((s, i) => s !== source.shape[i])) {
    throw new ShapeError(`${op}: expected a source of shape ${formatShape(expected)}, got ${formatShape(source.shape)}`, { op });
  }
  if (source.dtype !== input.dtype)
    throw new DtypeError(`${op}: expected a source of dtype ${input.dtype.name}, got ${source.dtype.name}`, {
      op,
      expected: input.dtype.name,
      given: source.dtype.name,
    });
  return dispatchOne(indexAddOp, [input, index.reshape(-1).contiguous(), source.contiguous()], { dim: at, alpha }, into);
}

/** `input` with slices of `source` added where `index` says. Gradient: input and source. @throws ShapeError, IndexError */
export function indexAdd(input: Tensor, dim: number, index: Tensor, source: Tensor, options: { alpha?: number } = {}): Tensor {
  requireTensor(input, 'indexAdd');
  return indexAddInto('indexAdd', input, dim, index, source, options, null);
}

function checkGather(op: string, input: Tensor, dim: number, index: Tensor): number {
  requireTensor(input, op);
  requireIndex(index, op);
  const at = wrapDim(dim, input.shape.length, op);
  const fits = index.shape.length === input.shape.length && index.shape.every((s, i) => i === at || s <= (input.shape[i] as number));
  if (!fits) throw new ShapeError(`${op}: an index of shape ${formatShape(index.shape)} does not fit an input of shape ${formatShape(input.shape)} along dim ${dim}`, { op });
  return at;
}

/** Elements at `index` along a dim. Gradient: input. @throws ShapeError, IndexError, DtypeError */
export function gather(input: Tensor, dim: number, index: Tensor): Tensor {
  const at = checkGather('gather', input, dim, index);
  return dispatchOne(gatherOp, [input, index], { dim: at });
}

/** Checks the operands of an op that scatters; returns the dim. @throws ShapeError, DtypeError, IndexError, ArgumentError @internal */
export function checkScatter(op: string, input: Tensor, dim: number, index: Tensor, source: Tensor | number): number {
  const at = checkGather(op, input, dim, index);
  if (typeof source === 'number') return at;
  requireTensor(source, op, 'source');
  const sized = index.shape.every((s, i) => s <= (source.shape[i] as number));
  if (source.shape.length !== index.shape.length || !sized)
    throw new ShapeError(`${op}: a source of shape ${formatShape(source.shape)} does not cover an index of shape ${formatShape(index.shape)}`, { op });
  if (source.dtype !== input.dtype) throw new DtypeError(`${op}: expected a source of dtype ${input.dtype.name}, got ${source.dtype.name}`, { op });
  return at;
}

/** The operands of ops that scatter, with the source cut to the index; `at` is the dim. */
function scatterOperands(op: string, input: Tensor, dim: number, index: Tensor, source: Tensor | number): { operands: Tensor[]; at: number } {
  const at = checkScatter(op, input, dim, index, source);
  let seen = typeof source === 'number' ? input.newFull([], source).expand(index.shape) : source;
  index.shape.forEach((s, i) => {
    if (s !== seen.shape[i]) seen = seen.narrow(i, 0, s);
  });
  return { operands: [input, index, seen], at };
}

/** Scatters by products and extremes; installed by scatter-reduce.ts, which builds on this file. @internal */
export const scatterReduceOp: { op: Op<Scatter> | null } = { op: null };

function scatterInto(name: string, input: Tensor, dim: number, index: Tensor, source: Tensor | number, reduce: ScatterReduce, into: Tensor | null): Tensor {
  if (!Object.hasOwn(reduceCodes, reduce)) throw unexpected(name, 'reduce', `one of ${Object.keys(reduceCodes).join(', ')}`, reduce);
  const { operands, at } = scatterOperands(name, input, dim, index, source);
  const op = reduce === 'set' || reduce === 'add' ? scatterOp : (scatterReduceOp.op as Op<Scatter>);
  return dispatchOne(op, operands, { dim: at, reduce }, into);
}

/** `input` with `source` written at `index` along a dim. Gradient: input and source. @throws ShapeError, IndexError, DtypeError */
export function scatter(input: Tensor, dim: number, index: Tensor, source: Tensor | number, options: { reduce?: ScatterReduce } = {}): Tensor {
  const { reduce = 'set' } = optionsOf('scatter', options);
  return scatterInto('scatter', input, dim, index, source, reduce, null);
}

function scatterAddInto(name: string, input: Tensor, dim: number, index: Tensor, source: Tensor, into: Tensor | null): Tensor {
  requireTensor(source, name, 'source');
  return scatterInto(name, input, dim, index, source, 'add', into);
}

/** `input` with `source` added at `index` along a dim, in a fixed order. Gradient: input and source. */
export function scatterAdd(input: Tensor, dim: number, index: Tensor, source: Tensor): Tensor {
  return scatterAddInto('scatterAdd', input, dim, index, source, null);
}

/**
 * Rows of `weight` by index. Shapes: input `[...]`, weight `[n, d]`, result `[..., d]`. With `paddingIdx`, that row gets no gradient.
 *
 * @throws IndexError when an index is not in [0, n)
 */
export function embedding(input: Tensor, weight: Tensor, options: { paddingIdx?: number | null } = {}): Tensor {
  requireTensor(weight, 'embedding', 'weight');
  const { paddingIdx = null } = optionsOf('embedding', options);
  requireIndex(input, 'embedding');
  if (weight.shape.length !== 2) throw new ShapeError(`embedding: expected a weight of 2 dims, got ${formatShape(weight.shape)}`, { op: 'embedding' });
  if (weight.shape[0] === 0 && input.numel() > 0) throw new IndexError('embedding: a weight without rows has none for an index', { op: 'embedding', shape: weight.shape });
  const table = paddingIdx === null ? weight : withoutGradient(weight, paddingIdx);
  return indexSelect(table, 0, input.reshape(-1)).reshape([...input.shape, weight.shape[1] as number]);
}

function withoutGradient(weight: Tensor, row: number): Tensor {
  const rows = weight.shape[0] as number;
  if (row < -rows || row >= rows) throw new IndexError(`embedding: paddingIdx ${row} is out of range for ${rows} rows`, { op: 'embedding' });
  if (!weight.requiresGrad) return weight;
  const at = row < 0 ? row + rows : row;
  const mask = weight.newZeros([rows, 1], { dtype: bool });
  mask.select(0, at).fill_(1);
  return weight.detach().where(mask, weight);
}

/** Zeros with a one at each index, as int64. Without `numClasses` it is one more than the largest index (which blocks). */
export function oneHot(input: Tensor, numClasses = -1): Tensor {
  requireIndex(input, 'oneHot');
  checkNumber('oneHot', 'numClasses', numClasses, { from: -1, whole: true });
  const classes = numClasses >= 0 ? numClasses : input.numel() === 0 ? 0 : Number(input.amax().item()) + 1;
  if (classes === 0 && input.numel() > 0) throw new ArgumentError('oneHot: no index is below 0 classes', { op: 'oneHot', numClasses });
  const zeros = input.newZeros([...input.shape, classes], { dtype: int64 });
  return scatter(zeros, -1, input.unsqueeze(-1), 1);
}

addMethod('embedding', function (weight: Tensor, options?: { paddingIdx?: number | null }) {
  return embedding(this, weight, options);
});
addMethod('oneHot', function (numClasses?: number) {
  return oneHot(this, numClasses);
});
addMethod('indexSelect', function (dim: number, index: Tensor) {
  return indexSelect(this, dim, index);
});
addMethod('indexAdd', function (dim: number, index: Tensor, source: Tensor, options?: { alpha?: number }) {
  return indexAdd(this, dim, index, source, options);
});
addMethod('indexAdd_', function (dim: number, index: Tensor, source: Tensor, options: { alpha?: number } = {}) {
  return indexAddInto('indexAdd_', this, dim, index, source, options, this);
});
addMethod('gather', function (dim: number, index: Tensor) {
  return gather(this, dim, index);
});
addMethod('scatter', function (dim: number, index: Tensor, source: Tensor | number, options?: { reduce?: ScatterReduce }) {
  return scatter(this, dim, index, source, options);
});
addMethod('scatter_', function (dim: number, index: Tensor, source: Tensor | number, options: { reduce?: ScatterReduce } = {}) {
  const { reduce = 'set' } = optionsOf('scatter_', options);
  return scatterInto('scatter_', this, dim, index, source, reduce, this);
});
addMethod('scatterAdd', function (dim: number, index: Tensor, source: Tensor) {
  return scatterAddInto('scatterAdd', this, dim, index, source, null);
});
addMethod('scatterAdd_', function (dim: number, index: Tensor, source: Tensor) {
  return scatterAddInto('scatterAdd_', this, dim, index, source, this);
});

export { requireIndex };

declare module '../core/tensor.js' {
  interface Tensor {
    /** Rows of `weight` by this index. Gradient: weight. @throws IndexError, DtypeError, ShapeError */
    embedding(weight: Tensor, options?: { paddingIdx?: number | null }): Tensor;
    /** Zeros with a one at each index, as int64. Blocks without `numClasses`. */
    oneHot(numClasses?: number): Tensor;
    /** The slices of one dim that `index` lists. Gradient: yes. @throws IndexError, DtypeError */
    indexSelect(dim: number, index: Tensor): Tensor;
    /** This with slices of `source` added where `index` says. Gradient: both. */
    indexAdd(dim: number, index: Tensor, source: Tensor, options?: { alpha?: number }): Tensor;
    indexAdd_(dim: number, index: Tensor, source: Tensor, options?: { alpha?: number }): this;
    /** Elements at `index` along a dim. Gradient: yes. @throws IndexError, ShapeError */
    gather(dim: number, index: Tensor): Tensor;
    /** This with `source` written at `index` along a dim. Gradient: both. @throws IndexError, ShapeError */
    scatter(dim: number, index: Tensor, source: Tensor | number, options?: { reduce?: ScatterReduce }): Tensor;
    scatter_(dim: number, index: Tensor, source: Tensor | number, options?: { reduce?: ScatterReduce }): this;
    /** This with `source` added at `index` along a dim. Gradient: both. */
    scatterAdd(dim: number, index: Tensor, source: Tensor): Tensor;
    scatterAdd_(dim: number, index: Tensor, source: Tensor): this;
  }
}
