/**
 * Indexing with several index tensors or bool masks at once, as `x[i, j]` in Python: index,
 * indexPut, maskedSelect.
 */

import { calledAs } from '../core/call-context.js';
import { dispatchOne } from '../core/dispatch.js';
import { bool, int64, uint8 } from '../core/dtype.js';
import { ArgumentError, DtypeError, IndexError, ShapeError } from '../core/errors.js';
import { defineOp, type Op } from '../core/op.js';
import { type ParamsOf, param } from '../core/op-params.js';
import { checkFlag } from '../core/options.js';
import { broadcastShapes, formatShape, type Shape, sameShape } from '../core/shape.js';
import { defineFunction, type MethodOf, methodOf } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { requireIndex } from './index-select.js';
import { addMethod } from './method.js';
import { nonzero } from './nonzero.js';
import { describe, requireTensor } from './operand.js';
import { sampleTensor } from './samples.js';
import { indexGetRule } from './sharding/gather.js';
import { indexPutRule } from './sharding/scatter.js';

const readParams = { numIndices: param.kernel(), accumulate: param.value<number>() };
const writeParams = { numIndices: param.kernel(), accumulate: param.kernel() };
type IndexParams = ParamsOf<typeof writeParams>;

/** Inputs: the tensor with indexed dims first, then the index tensors, all of one shape. */
const indexGetOp: Op<IndexParams> = defineOp({
  name: 'indexGet',
  doc: 'Elements at the positions that index tensors name together.',
  sharding: indexGetRule,
  outputs: ['y'],
  operands:
    '(x: [...], indices[numIndices]: indices numel(n)) -> (y: [...])' +
    ' where slices(x, y, numIndices, n)',
  params: readParams,
  meta: (inputs, { numIndices }) => {
    const [{ sizes: shape, dtype, device }, index] = inputs as [Tensor, Tensor, ...Tensor[]];
    return [{ shape: [...index.sizes, ...shape.slice(numIndices)], strides: null, dtype, device }];
  },
  saves: { inputs: (_needs, inputs) => inputs.map((_, i) => i).slice(1) },
  vjp: (ctx, g) => {
    const indices = Array.from({ length: ctx.params.numIndices }, (_, i) => ctx.input(i + 1));
    const zeros = g.newZeros(ctx.inputShape(0));
    return [
      dispatchOne(indexPutOp, [zeros, g, ...indices], { ...ctx.params, accumulate: 1 }),
      ...indices.map(() => null),
    ];
  },
  samples: () => [
    {
      inputs: [
        sampleTensor([4, 3, 2]),
        sampleTensor([5], { dtype: int64, low: -4, high: 4 }),
        sampleTensor([5], { dtype: int64, low: 0, high: 3, seed: 2 }),
      ],
      params: { numIndices: 2, accumulate: 0 },
    },
  ],
});

const indexPutOp: Op<IndexParams> = defineOp({
  name: 'indexPut',
  sharding: indexPutRule,
  traits: ['strided-output'],
  doc: 'Values written, or added, at the positions that index tensors name together.',
  updates: 0,
  outputs: ['y'],
  operands:
    '(values: [...], indices[numIndices]: indices numel(n)) -> (y: [...])' +
    ' where slices(y, values, numIndices, n)',
  params: writeParams,
  meta: (inputs) => {
    const [{ sizes: shape, dtype, device }] = inputs as [Tensor, ...Tensor[]];
    return [{ shape, strides: null, dtype, device }];
  },
  saves: { inputs: (_needs, inputs) => inputs.map((_, i) => i).slice(2) },
  vjp: (ctx, g) => {
    const { numIndices, accumulate } = ctx.params;
    const indices = Array.from({ length: numIndices }, (_, i) => ctx.input(i + 2));
    const read = ctx.needs(1) ? dispatchOne(indexGetOp, [g, ...indices], ctx.params) : null;
    const kept = accumulate
      ? g
      : dispatchOne(indexPutOp, [g, g.newZeros([]).expand(ctx.inputShape(1)), ...indices], {
          numIndices,
          accumulate: 0,
        });
    return [ctx.needs(0) ? kept : null, read, ...indices.map(() => null)];
  },
  samples: () => [
    {
      inputs: [
        sampleTensor([4, 3]),
        sampleTensor([5, 3], { seed: 8 }),
        sampleTensor([5], { dtype: int64, low: 0, high: 4 }),
      ],
      params: { numIndices: 1, accumulate: 1 },
    },
    {
      inputs: [
        sampleTensor([4, 3]),
        sampleTensor([4], { seed: 8 }),
        sampleTensor([4], { seed: 2 }).argsort(0),
        sampleTensor([4], { dtype: int64, low: 0, high: 3 }),
      ],
      params: { numIndices: 2, accumulate: 0 },
    },
  ],
});
/**
 * One entry of an index: a tensor of indices (int64 or int32), a mask (bool or uint8) over as many
 * dims as it has, or null for a whole dim.
 */
export type IndexEntry = Tensor | null;

interface Prepared {
  /** Dims of the input, indexed ones first. */
  order: number[];
  indices: Tensor[];
  /**
   * The position of the index dims in the result: at the front unless the indexed dims are
   * neighbours.
   */
  position: number;
}

/** Masks become indices; indices are broadcast to one shape. @throws IndexError, ShapeError */
function prepare(op: string, input: Tensor, entries: readonly IndexEntry[]): Prepared {
  const perDim: IndexEntry[] = [];
  for (const entry of entries) {
    if (isMask(entry)) perDim.push(...maskIndices(op, input, entry, perDim.length));
    else perDim.push(entry);
  }
  if (perDim.length > input.sizes.length)
    throw new IndexError(
      `${op}: ${perDim.length} indices for a tensor of shape ${formatShape(input.sizes)}`,
      { op },
    );
  const indexed = perDim.flatMap((entry, i) => (entry === null ? [] : [i]));
  const tensors = indexed.map((i) => perDim[i] as Tensor);
  for (const t of tensors) requireIndex(t, op);
  const shape = tensors.reduce<Shape>((s, t) => broadcastShapes(s, t.sizes, op), []);
  const indices = tensors.map((t) => t.long().expand(shape));
  const rest = input.sizes.map((_, i) => i).filter((i) => !indexed.includes(i));
  const neighbours = indexed.every((d, i) => i === 0 || d === (indexed[i - 1] as number) + 1);
  return { order: [...indexed, ...rest], indices, position: neighbours ? (indexed[0] ?? 0) : 0 };
}

/** Whether an entry is a mask. @internal */
export function isMask(entry: IndexEntry): entry is Tensor {
  return entry !== null && (entry.dtype === bool || entry.dtype === uint8);
}

/** @throws ShapeError unless the mask has the sizes of the dims from `at` on. @internal */
export function requireCovering(op: string, input: Tensor, mask: Tensor, at: number): void {
  const covered = input.sizes.slice(at, at + mask.sizes.length);
  if (!sameShape(covered, mask.sizes))
    throw new ShapeError(
      `${op}: a mask of shape ${formatShape(mask.sizes)} does not cover dims ${at}.. of shape ` +
        `${formatShape(input.sizes)}`,
      { op },
    );
}

function maskIndices(op: string, input: Tensor, mask: Tensor, at: number): Tensor[] {
  requireCovering(op, input, mask, at);
  return calledAs(`${op} with a mask`, () => nonzero(mask)).unbind(1);
}

/**
 * A mask without dims adds a dim of size 1 or 0: it becomes a mask of one element over a new dim of
 * size 1. @internal
 */
export function withDimForScalars(
  input: Tensor,
  entries: readonly IndexEntry[],
): { input: Tensor; entries: readonly IndexEntry[] } {
  const isScalarMask = (entry: IndexEntry): entry is Tensor =>
    isMask(entry) && entry.sizes.length === 0;
  if (!entries.some(isScalarMask)) return { input, entries };
  let [seen, dim] = [input, 0];
  const replaced = entries.map((entry) => {
    if (isScalarMask(entry)) seen = seen.unsqueeze(dim);
    const own = isScalarMask(entry) ? entry.reshape([1]) : entry;
    dim += isMask(own) ? own.sizes.length : 1;
    return own;
  });
  return { input: seen, entries: replaced };
}

/** Moves the index dims from the front to their position in Python's result. */
function placeFront(result: Tensor, count: number, position: number): Tensor {
  if (position === 0) return result;
  const all = result.sizes.map((_, i) => i);
  const before = all.slice(count, count + position);
  return result.permute([...before, ...all.slice(0, count), ...all.slice(count + position)]);
}

/** @throws ArgumentError for an index that is not in a list. @internal */
export function requireEntries(entries: unknown, op: string): void {
  if (!Array.isArray(entries))
    throw new ArgumentError(
      `${op}: expected a list of indices such as [rows, null, columns], got ${describe(entries)}`,
      { op, argument: 'entries' },
    );
}

function takeFront(values: Tensor, count: number, position: number): Tensor {
  if (position === 0) return values;
  const all = values.sizes.map((_, i) => i);
  return values.permute([
    ...all.slice(position, position + count),
    ...all.slice(0, position),
    ...all.slice(position + count),
  ]);
}

/**
 * `input[i, j, ...]` with index tensors, masks, and null for a whole dim; negative indices count
 * from the end. Shapes: the indices broadcast to one shape, which takes the place of the indexed
 * dims, or comes first where these are not neighbours; a mask counts as the indices of its true
 * elements, for whose number this blocks: {@link indexAsync} does not. Without index tensors, a
 * view of all. Dtypes: any, kept. Gradient: input.
 *
 * @throws IndexError for more entries than dims, or an index out of range (also if no element is
 * read), possibly not before values are read; ShapeError if indices do not broadcast, or a mask
 * does not cover its dims; DtypeError for an index of another dtype; ArgumentError unless `entries`
 * is a list of tensors and null
 * @see PyTorch `torch.Tensor.__getitem__` with tensors; NumPy calls it advanced indexing
 * @example
 * index(tensor([[1, 2], [3, 4], [5, 6]]), [tensor([0, 2], { dtype: int64 })]); // [[1, 2], [5, 6]]
 */
export const index = defineFunction(
  'index(input, /, entries)',
  (input: Tensor, entries: readonly IndexEntry[]): Tensor => {
    requireTensor(input, 'index');
    requireEntries(entries, 'index');
    const given = withDimForScalars(input, entries);
    const { order, indices, position } = prepare('index', given.input, given.entries);
    if (indices.length === 0) return input.view(input.sizes);
    const front = dispatchOne(indexGetOp, [given.input.permute(order), ...indices], {
      numIndices: indices.length,
      accumulate: 0,
    });
    return placeFront(front, (indices[0] as Tensor).sizes.length, position);
  },
);

function indexPutInto(
  input: Tensor,
  entries: readonly IndexEntry[],
  values: Tensor,
  accumulate: boolean,
  inPlace: boolean,
): Tensor {
  requireTensor(values, 'indexPut', 'values');
  requireEntries(entries, 'indexPut');
  const given = withDimForScalars(input, entries);
  const { order, indices, position } = prepare('indexPut', given.input, given.entries);
  if (indices.length === 0) {
    const whole = values.to(input.dtype).expand(input.sizes);
    if (inPlace) return accumulate ? input.add_(whole) : input.copy_(whole);
    return accumulate ? input.add(whole) : whole.clone();
  }
  const shape = (indices[0] as Tensor).sizes;
  const seen = given.input.permute(order);
  const rest = seen.sizes.slice(indices.length);
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
  return dispatchOne(indexPutOp, [seen, front, ...indices], params)
    .permute(inverse)
    .reshape(input.sizes);
}

/**
 * `input` with `values` written at the indices, or added with `accumulate` (false by default: if an
 * element is written twice, the result is not defined). Shapes: values broadcast to the result of
 * {@link index}; the result has the input's. Dtypes: any, kept; values are converted (PyTorch
 * refuses other dtypes). Gradient: both. A mask blocks, as in {@link index}; the vectors of {@link
 * nonzeroAsync} do not, nor does {@link where}.
 *
 * @throws ShapeError if values do not broadcast; ArgumentError for unknown options, and unless both
 * are tensors; else as {@link index}
 * @see PyTorch `torch.Tensor.index_put`
 */
export const indexPut = defineFunction(
  'indexPut(input, /, indices, values, accumulate)',
  (input: Tensor, indices: readonly IndexEntry[], values: Tensor, accumulate = false): Tensor => {
    requireTensor(input, 'indexPut');
    checkFlag('indexPut', 'accumulate', accumulate);
    return indexPutInto(input, indices, values, accumulate, false);
  },
);

/** The shape that input and mask broadcast to. @throws ShapeError, DtypeError @internal */
export function maskedShape(op: string, input: Tensor, mask: Tensor): Shape {
  requireTensor(input, op);
  requireTensor(mask, op, 'mask');
  if (mask.dtype !== bool)
    throw new DtypeError(
      `${op}: expected a bool mask, got ${mask.dtype.name}. Convert with .bool().`,
      { op, dtype: mask.dtype.name },
    );
  return broadcastShapes(input.sizes, mask.sizes, op);
}

/**
 * The elements where the mask is true, in row-major order. Shapes: input and mask broadcast; the
 * result is a vector `[n]`. Dtypes: any, kept; the mask is bool. Gradient: input. Blocks until all
 * queued work of the device is done, because its size depends on values; {@link maskedSelectAsync}
 * does not.
 *
 * @throws ShapeError if the shapes do not broadcast; DtypeError for another mask; ArgumentError
 * unless both are tensors
 * @see PyTorch `torch.masked_select`
 */
export const maskedSelect = defineFunction(
  'maskedSelect(input, /, mask)',
  (input: Tensor, mask: Tensor): Tensor => {
    const shape = maskedShape('maskedSelect', input, mask);
    return calledAs('maskedSelect', () => index(input.expand(shape), [mask.expand(shape)]));
  },
);

addMethod('index', methodOf(index));
addMethod('indexPut', methodOf(indexPut));
const indexPut_ = defineFunction(
  'indexPut_(input, /, indices, values, accumulate)',
  (input: Tensor, indices: readonly IndexEntry[], values: Tensor, accumulate = false): Tensor => {
    checkFlag('indexPut_', 'accumulate', accumulate);
    return indexPutInto(input, indices, values, accumulate, true);
  },
);
addMethod('indexPut_', methodOf(indexPut_));
addMethod('maskedSelect', methodOf(maskedSelect));

declare module '../core/tensor.js' {
  interface Tensor {
    /**
     * `this[i, j, ...]` with index tensors, masks, and null for a whole dim. The same as {@link
     * index}.
     */
    index: MethodOf<typeof index>;
    /** This with `values` written, or added, at the indices. The same as {@link indexPut}. */
    indexPut: MethodOf<typeof indexPut>;
    /** {@link indexPut} in place, with its errors. @throws InPlaceError as {@link Tensor.relu_} */
    indexPut_: MethodOf<typeof indexPut_, this>;
    /**
     * The elements where the mask is true, as a vector. Blocks. The same as {@link maskedSelect}.
     */
    maskedSelect: MethodOf<typeof maskedSelect>;
  }
}
