/** Indexing with several index tensors or bool masks at once, as `x[i, j]` does in Python: index and indexPut. */

import { dispatch, dispatchOne } from '../core/dispatch.js';
import { bool, int64, uint8 } from '../core/dtype.js';
import { ArgumentError, DtypeError, IndexError, ShapeError } from '../core/errors.js';
import { defineOp, type Op } from '../core/op.js';
import { optionsOf } from '../core/options.js';
import { broadcastShapes, formatShape, type Shape, sameShape } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';
import { requireIndex } from './indexing.js';
import { addMethod, NO_PARAMS } from './method.js';
import { describe, requireOptions, requireTensor } from './operand.js';
import { sampleTensor } from './samples.js';

interface IndexParams {
  numIndices: number;
  accumulate: number;
}

/** Inputs: the tensor with indexed dims first, then the index tensors, all of one shape. */
const indexGetOp: Op<IndexParams> = defineOp<IndexParams>({
  name: 'indexGet',
  doc: 'Elements at the positions that index tensors name together.',
  kernelParams: ['numIndices'],
  meta: ([x, first], { numIndices }) => {
    const input = x as Tensor;
    return [{ shape: [...(first as Tensor).shape, ...input.shape.slice(numIndices)], strides: null, dtype: input.dtype, device: input.device }];
  },
  saves: { inputs: (_needs, inputs) => inputs.map((_, i) => i).slice(1) },
  vjp: (ctx, g) => {
    const indices = Array.from({ length: ctx.params.numIndices }, (_, i) => ctx.input(i + 1));
    const zeros = g.newZeros(ctx.inputShape(0));
    return [dispatchOne(indexPutOp, [zeros, g, ...indices], { ...ctx.params, accumulate: 1 }), ...indices.map(() => null)];
  },
  samples: () => [
    {
      inputs: [sampleTensor([4, 3, 2]), sampleTensor([5], { dtype: int64, low: -4, high: 4 }), sampleTensor([5], { dtype: int64, low: 0, high: 3, seed: 2 })],
      params: { numIndices: 2, accumulate: 0 },
    },
  ],
});

const indexPutOp: Op<IndexParams> = defineOp<IndexParams>({
  name: 'indexPut',
  traits: ['strided-output'],
  doc: 'Values written, or added, at the positions that index tensors name together.',
  updates: 0,
  kernelParams: ['numIndices', 'accumulate'],
  meta: ([x]) => {
    const input = x as Tensor;
    return [{ shape: input.shape, strides: null, dtype: input.dtype, device: input.device }];
  },
  saves: { inputs: (_needs, inputs) => inputs.map((_, i) => i).slice(2) },
  vjp: (ctx, g) => {
    const { numIndices, accumulate } = ctx.params;
    const indices = Array.from({ length: numIndices }, (_, i) => ctx.input(i + 2));
    const read = ctx.needs(1) ? dispatchOne(indexGetOp, [g, ...indices], ctx.params) : null;
    const kept = accumulate ? g : dispatchOne(indexPutOp, [g, g.newZeros([]).expand(ctx.inputShape(1)), ...indices], { numIndices, accumulate: 0 });
    return [ctx.needs(0) ? kept : null, read, ...indices.map(() => null)];
  },
  samples: () => [
    {
      inputs: [sampleTensor([4, 3]), sampleTensor([5, 3], { seed: 8 }), sampleTensor([5], { dtype: int64, low: 0, high: 4 })],
      params: { numIndices: 1, accumulate: 1 },
    },
    {
      inputs: [sampleTensor([4, 3]), sampleTensor([4], { seed: 8 }), sampleTensor([4], { seed: 2 }).argsort(0), sampleTensor([4], { dtype: int64, low: 0, high: 3 })],
      params: { numIndices: 2, accumulate: 0 },
    },
  ],
});

const nonzeroOp: Op<Record<string, never>> = defineOp<Record<string, never>>({
  name: 'nonzero',
  doc: 'Indices of elements that are not 0; the first output says how many rows of the second count.',
  meta: ([x]) => {
    const input = x as Tensor;
    const { device } = input;
    return [
      { shape: [1], strides: null, dtype: int64, device },
      { shape: [input.numel(), input.shape.length], strides: null, dtype: int64, device },
    ];
  },
  vjp: 'not-differentiable',
  samples: () => [],
});

/** Indices of the elements that are not 0, one row each; with `asTuple`, one vector for each dim. Blocks: its shape depends on values. */
export function nonzero(input: Tensor, options: { asTuple: true }): Tensor[];
export function nonzero(input: Tensor, options?: { asTuple?: false }): Tensor;
export function nonzero(input: Tensor, options: { asTuple?: boolean } = {}): Tensor | Tensor[] {
  requireTensor(input, 'nonzero');
  const { asTuple = false } = optionsOf('nonzero', options);
  const [count, rows] = dispatch(nonzeroOp, [input.detach()], NO_PARAMS) as [Tensor, Tensor];
  const found = rows.narrow(0, 0, Number(count.item())).clone();
  return asTuple ? found.unbind(1) : found;
}

/** One entry of an index: a tensor, a mask, or null for a whole dim. */
export type IndexEntry = Tensor | null;

interface Prepared {
  /** Dims of the input, indexed ones first. */
  order: number[];
  indices: Tensor[];
  /** Where the indexed dims' shape goes among the dims that stay: in front unless the indexed dims are neighbours. */
  position: number;
}

/** Masks become indices; indices are broadcast to one shape. @throws IndexError, ShapeError */
function prepare(op: string, input: Tensor, entries: readonly IndexEntry[]): Prepared {
  const perDim: IndexEntry[] = [];
  for (const entry of entries) {
    if (entry !== null && (entry.dtype === bool || entry.dtype === uint8)) perDim.push(...maskIndices(op, input, entry, perDim.length));
    else perDim.push(entry);
  }
  if (perDim.length > input.shape.length) throw new IndexError(`${op}: ${perDim.length} indices for a tensor of shape ${formatShape(input.shape)}`, { op });
  const indexed = perDim.flatMap((entry, i) => (entry === null ? [] : [i]));
  const tensors = indexed.map((i) => perDim[i] as Tensor);
  for (const t of tensors) requireIndex(t, op);
  const shape = tensors.reduce<Shape>((s, t) => broadcastShapes(s, t.shape, op), []);
  const indices = tensors.map((t) => t.long().expand(shape));
  const rest = input.shape.map((_, i) => i).filter((i) => !indexed.includes(i));
  const neighbours = indexed.every((d, i) => i === 0 || d === (indexed[i - 1] as number) + 1);
  return { order: [...indexed, ...rest], indices, position: neighbours ? (indexed[0] ?? 0) : 0 };
}

function maskIndices(op: string, input: Tensor, mask: Tensor, at: number): Tensor[] {
  const covered = input.shape.slice(at, at + mask.shape.length);
  if (!sameShape(covered, mask.shape))
    throw new ShapeError(`${op}: a mask of shape ${formatShape(mask.shape)} does not cover dims ${at}.. of shape ${formatShape(input.shape)}`, { op });
  return nonzero(mask).unbind(1);
}

/** Moves the block of indexed dims, now in front, to where Python puts it. */
function placeFront(result: Tensor, count: number, position: number): Tensor {
  if (position === 0) return result;
  const all = result.shape.map((_, i) => i);
  const before = all.slice(count, count + position);
  return result.permute([...before, ...all.slice(0, count), ...all.slice(count + position)]);
}

/** @throws ArgumentError for an index that is in no list */
function requireEntries(entries: unknown, op: string): void {
  if (!Array.isArray(entries)) throw new ArgumentError(`${op}: expected a list of indices such as [rows, null, columns], got ${describe(entries)}`, { op, argument: 'entries' });
}

function takeFront(values: Tensor, count: number, position: number): Tensor {
  if (position === 0) return values;
  const all = values.shape.map((_, i) => i);
  return values.permute([...all.slice(position, position + count), ...all.slice(0, position), ...all.slice(position + count)]);
}

/**
 * `input[i, j, ...]` with index tensors, masks, and null for a whole dim. Gradient: input.
 *
 * @throws IndexError, ShapeError
 * @example index(x, [tensor([0, 2], { dtype: int64 }), null])
 */
export function index(input: Tensor, entries: readonly IndexEntry[]): Tensor {
  requireTensor(input, 'index');
  requireEntries(entries, 'index');
  const { order, indices, position } = prepare('index', input, entries);
  if (indices.length === 0) return input;
  const front = dispatchOne(indexGetOp, [input.permute(order), ...indices], { numIndices: indices.length, accumulate: 0 });
  return placeFront(front, (indices[0] as Tensor).shape.length, position);
}

function indexPutInto(input: Tensor, entries: readonly IndexEntry[], values: Tensor, accumulate: boolean, inPlace: boolean): Tensor {
  requireTensor(values, 'indexPut', 'values');
  requireEntries(entries, 'indexPut');
  const { order, indices, position } = prepare('indexPut', input, entries);
  if (indices.length === 0) {
    const whole = values.to(input.dtype).expand(input.shape);
    if (inPlace) return accumulate ? input.add_(whole) : input.copy_(whole);
    return accumulate ? input.add(whole) : whole.clone();
  }
  const shape = (indices[0] as Tensor).shape;
  const seen = input.permute(order);
  const rest = seen.shape.slice(indices.length);
  const natural = [...rest.slice(0, position), ...shape, ...rest.slice(position)];
  const front = takeFront(values.to(input.dtype).expand(natural), shape.length, position);
  const params = { numIndices: indices.length, accumulate: Number(accumulate) };
  if (inPlace) {
    dispatchOne(indexPutOp, [seen, front, ...indices], params, seen);
    return input;
  }
  const inverse: number[] = [];
  order.forEach((d, i) => {
    inverse[d] = i;
  });
  return dispatchOne(indexPutOp, [seen, front, ...indices], params).permute(inverse);
}

/** `input` with `values` written (or added) at the indices. Gradient: input and values. @throws IndexError, ShapeError */
export function indexPut(input: Tensor, entries: readonly IndexEntry[], values: Tensor, options: { accumulate?: boolean } = {}): Tensor {
  requireTensor(input, 'indexPut');
  requireOptions(options, 'indexPut', '{ accumulate: true }');
  return indexPutInto(input, entries, values, options.accumulate ?? false, false);
}

/** The elements where the mask is true, as a vector. Blocks: its size depends on values. Gradient: input. */
export function maskedSelect(input: Tensor, mask: Tensor): Tensor {
  requireTensor(input, 'maskedSelect');
  requireTensor(mask, 'maskedSelect', 'mask');
  if (mask.dtype !== bool && mask.dtype !== uint8)
    throw new DtypeError(`maskedSelect: expected a bool mask, got ${mask.dtype.name}`, { op: 'maskedSelect', dtype: mask.dtype.name });
  const shape = broadcastShapes(input.shape, mask.shape, 'maskedSelect');
  return index(input.expand(shape), [mask.expand(shape)]);
}

addMethod('index', function (entries: readonly IndexEntry[]) {
  return index(this, entries);
});
addMethod('indexPut', function (entries: readonly IndexEntry[], values: Tensor, options?: { accumulate?: boolean }) {
  return indexPut(this, entries, values, options);
});
addMethod('indexPut_', function (entries: readonly IndexEntry[], values: Tensor, options: { accumulate?: boolean } = {}) {
  requireOptions(options, 'indexPut_', '{ accumulate: true }');
  return indexPutInto(this, entries, values, options.accumulate ?? false, true);
});
addMethod('nonzero', function (options?: { asTuple?: false }) {
  return nonzero(this, options);
});
addMethod('maskedSelect', function (mask: Tensor) {
  return maskedSelect(this, mask);
});

declare module '../core/tensor.js' {
  interface Tensor {
    /** `this[i, j, ...]` with index tensors, masks, and null for a whole dim. Gradient: yes. @throws IndexError, ShapeError */
    index(entries: readonly IndexEntry[]): Tensor;
    /** This with `values` written (or added) at the indices. Gradient: both. @throws IndexError, ShapeError */
    indexPut(entries: readonly IndexEntry[], values: Tensor, options?: { accumulate?: boolean }): Tensor;
    indexPut_(entries: readonly IndexEntry[], values: Tensor, options?: { accumulate?: boolean }): this;
    /** Indices of the elements that are not 0, one row each; with `asTuple`, one vector for each dim. Blocks. */
    nonzero(options: { asTuple: true }): Tensor[];
    nonzero(options?: { asTuple?: false }): Tensor;
    /** The elements where the mask is true, as a vector. Blocks. Gradient: yes. */
    maskedSelect(mask: Tensor): Tensor;
  }
}
