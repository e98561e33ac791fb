/** Views of a part: narrow, select, slice, split, chunk, unbind, diagonal, unfold, asStrided. */
import { dispatchOne } from '../core/dispatch.js';
import { int64 } from '../core/dtype.js';
import { ArgumentError, IndexError, ShapeError } from '../core/errors.js';
import type { Op } from '../core/op.js';
import { checkIntegers, shown } from '../core/options.js';
import { checkSizes, formatShape, isNonOverlappingAndDense, type Shape, wrapDim } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';
import { addMethod } from './method.js';
import { requireTensor } from './operand.js';
import { sampleTensor } from './samples.js';
import { defineView } from './view.js';

interface Slice {
  dim: number;
  start: number;
  length: number;
  step: number;
}

const sliceOp: Op<Slice> = defineView<Slice>({
  name: 'slice',
  doc: 'Every step-th element of one dim from start.',
  view: (input, { dim, start, length, step }) => ({
    shape: input.shape.map((s, i) => (i === dim ? length : s)),
    strides: input.strides.map((s, i) => (i === dim ? s * step : s)),
    offset: input.storageOffset + start * (input.strides[dim] as number),
  }),
  vjp: (ctx, g) => {
    const { dim, start, length, step } = ctx.params;
    const full = g.newZeros(ctx.inputShape(0));
    return [sliceBackward(full, g, { dim, start, length, step })];
  },
  samples: () => [
    { inputs: [sampleTensor([5, 3])], params: { dim: 0, start: 1, length: 2, step: 2 } },
    { inputs: [sampleTensor([2, 4])], params: { dim: 1, start: 4, length: 0, step: 1 } },
  ],
});

/** Zeros with `g` written into the window; the write is an op of its own, so that it can be differentiated again. */
function sliceBackward(zeros: Tensor, g: Tensor, params: Slice): Tensor {
  dispatchOne(sliceOp, [zeros], params).copy_(g);
  return zeros;
}

interface Select {
  dim: number;
  index: number;
}

const selectOp: Op<Select> = defineView<Select>({
  name: 'select',
  doc: 'One index of one dim, which falls away.',
  view: (input, { dim, index }) => ({
    shape: input.shape.filter((_, i) => i !== dim),
    strides: input.strides.filter((_, i) => i !== dim),
    offset: input.storageOffset + index * (input.strides[dim] as number),
  }),
  vjp: (ctx, g) => {
    const zeros = g.newZeros(ctx.inputShape(0));
    dispatchOne(selectOp, [zeros], ctx.params).copy_(g);
    return [zeros];
  },
  samples: () => [{ inputs: [sampleTensor([3, 4])], params: { dim: 1, index: 2 } }],
});

interface Diagonal {
  offset: number;
  dim1: number;
  dim2: number;
}

const diagonalOp: Op<Diagonal> = defineView<Diagonal>({
  name: 'diagonal',
  doc: 'Elements with equal indices in two dims, as a last dim.',
  view: (input, { offset, dim1, dim2 }) => {
    const [rows, columns] = [input.shape[dim1] as number, input.shape[dim2] as number];
    const size = Math.max(0, offset >= 0 ? Math.min(rows, columns - offset) : Math.min(rows + offset, columns));
    const [stride1, stride2] = [input.strides[dim1] as number, input.strides[dim2] as number];
    const skip = size === 0 ? 0 : offset >= 0 ? offset * stride2 : -offset * stride1;
    const rest = (list: Shape): number[] => list.filter((_, i) => i !== dim1 && i !== dim2);
    return {
      shape: [...rest(input.shape), size],
      strides: [...rest(input.strides), stride1 + stride2],
      offset: input.storageOffset + skip,
    };
  },
  vjp: (ctx, g) => {
    const zeros = g.newZeros(ctx.inputShape(0));
    dispatchOne(diagonalOp, [zeros], ctx.params).copy_(g);
    return [zeros];
  },
  samples: () => [
    { inputs: [sampleTensor([3, 4])], params: { offset: 1, dim1: 0, dim2: 1 } },
    { inputs: [sampleTensor([2, 3, 3])], params: { offset: -1, dim1: 2, dim2: 1 } },
  ],
});

interface Unfold {
  dim: number;
  size: number;
  step: number;
}

const unfoldOp: Op<Unfold> = defineView<Unfold>({
  name: 'unfold',
  doc: 'Windows of one dim, as a last dim; they may overlap.',
  view: (input, { dim, size, step }) => {
    const count = Math.floor(((input.shape[dim] as number) - size) / step) + 1;
    const stride = input.strides[dim] as number;
    return {
      shape: [...input.shape.map((s, i) => (i === dim ? count : s)), size],
      strides: [...input.strides.map((s, i) => (i === dim ? s * step : s)), stride],
      offset: input.storageOffset,
    };
  },
  vjp: (ctx, g) => {
    // Windows overlap, so each position within a window is added by itself.
    const { dim, size, step } = ctx.params;
    const zeros = g.newZeros(ctx.inputShape(0));
    const length = g.shape[dim] as number;
    for (let i = 0; i < size; i++) {
      dispatchOne(sliceOp, [zeros], { dim, start: i, length, step }).add_(select(g, -1, i));
    }
    return [zeros];
  },
  samples: () => [{ inputs: [sampleTensor([7, 2])], params: { dim: 0, size: 3, step: 2 } }],
});

interface Strided {
  size: Shape;
  stride: Shape;
  storageOffset: number;
  /** Where the input itself lies on the storage. */
  from: { strides: Shape; offset: number };
}

/** One more than the largest position that a window reaches. */
function endOf(size: Shape, stride: Shape, offset: number): number {
  return size.some((s) => s === 0) ? 0 : size.reduce((end, s, i) => end + (s - 1) * (stride[i] as number), offset + 1);
}

const asStridedOp: Op<Strided> = defineView<Strided>({
  name: 'asStrided',
  doc: 'Any window on the storage.',
  view: (_input, { size, stride, storageOffset }) => ({ shape: size, strides: stride, offset: storageOffset }),
  vjp: (ctx, g) => {
    const { size, stride, storageOffset, from } = ctx.params;
    const shape = ctx.inputShape(0);
    // As if on a storage of its own; what of it the input does not show has no gradient.
    const storage = g.newZeros([Math.max(endOf(size, stride, storageOffset), endOf(shape, from.strides, from.offset))]);
    const positions = stridedPositions(size, stride, storageOffset, g);
    return [asStrided(storage.indexAdd(0, positions, g.reshape(-1)), shape, from.strides, from.offset)];
  },
  samples: () => [
    { inputs: [sampleTensor([6])], params: { size: [2, 3], stride: [1, 2], storageOffset: 0, from: { strides: [1], offset: 0 } } },
    { inputs: [sampleTensor([6])], params: { size: [4], stride: [1], storageOffset: 2, from: { strides: [1], offset: 0 } } },
  ],
});

function stridedPositions(size: Shape, stride: Shape, offset: number, like: Tensor): Tensor {
  let positions = like.newFull([1], offset, { dtype: int64 });
  size.forEach((n, i) => {
    const steps = like
      .newOnes([n], { dtype: int64 })
      .cumsum(0)
      .sub(1)
      .mul(stride[i] as number);
    positions = positions.unsqueeze(-1).add(steps).reshape(-1);
  });
  return positions;
}

/** `length` elements of one dim from `start`. @throws IndexError if they do not lie inside. */
export function narrow(input: Tensor, dim: number, start: number, length: number): Tensor {
  requireTensor(input, 'narrow');
  const at = wrapDim(dim, input.shape.length, 'narrow');
  const size = input.shape[at];
  const first = typeof start === 'number' && start < 0 && size !== undefined ? start + size : start;
  if (size === undefined || !Number.isInteger(first) || !Number.isInteger(length) || first < 0 || length < 0 || first + length > size) {
    throw new IndexError(`narrow: ${shown(length)} elements from ${shown(start)} do not lie in dim ${dim} of shape ${formatShape(input.shape)}`, {
      op: 'narrow',
      dim,
      start,
      length,
    });
  }
  return dispatchOne(sliceOp, [input], { dim: at, start: first, length, step: 1 });
}

/** Elements `start` to `end` of one dim by `step`, with Python's rules for negative and large bounds. @throws ArgumentError */
export function slice(input: Tensor, dim = 0, start: number | null = null, end: number | null = null, step = 1): Tensor {
  requireTensor(input, 'slice');
  const at = wrapDim(dim, input.shape.length, 'slice');
  if (input.shape.length === 0) throw new IndexError('slice: a tensor without dims cannot be sliced', { op: 'slice' });
  if (!Number.isInteger(step) || step < 1) throw new ArgumentError(`slice: step must be a positive integer, got ${shown(step)}`, { op: 'slice', step });
  const size = input.shape[at] as number;
  const bound = (value: number | null, missing: number): number => {
    if (value === null) return missing;
    // Infinity is a bound like any that is too large; a fraction or NaN is none.
    if (!Number.isInteger(value) && value !== Number.POSITIVE_INFINITY && value !== Number.NEGATIVE_INFINITY)
      throw new ArgumentError(`slice: bounds must be integers, got ${shown(value)}`, { op: 'slice', bound: value });
    return Math.min(size, Math.max(0, value < 0 ? value + size : value));
  };
  const first = bound(start, 0);
  const last = bound(end, size);
  return dispatchOne(sliceOp, [input], { dim: at, start: first, length: Math.max(0, Math.ceil((last - first) / step)), step });
}

/** One index of one dim, which falls away. @throws IndexError */
export function select(input: Tensor, dim: number, index: number): Tensor {
  requireTensor(input, 'select');
  const at = wrapDim(dim, input.shape.length, 'select');
  const size = input.shape[at];
  if (size === undefined || !Number.isInteger(index) || index < -size || index >= size) {
    throw new IndexError(`select: index ${shown(index)} is out of range for dim ${dim} of shape ${formatShape(input.shape)}`, { op: 'select', dim, index });
  }
  return dispatchOne(selectOp, [input], { dim: at, index: index < 0 ? index + size : index });
}

/** Pieces of `size` (or of the sizes listed) along a dim, as views. @throws ShapeError if listed sizes do not add up. */
export function split(input: Tensor, size: number | readonly number[], dim = 0): Tensor[] {
  requireTensor(input, 'split');
  if (input.shape.length === 0) throw new ShapeError('split: expected at least one dim, got a tensor without dims', { op: 'split', given: input.shape });
  const at = wrapDim(dim, input.shape.length, 'split');
  const total = input.shape[at] as number;
  const sizes = typeof size === 'number' ? evenSizes(total, size) : size;
  checkSizes(sizes, 'split');
  if (sizes.reduce((a, b) => a + b, 0) !== total) {
    throw new ShapeError(`split: sizes ${formatShape(sizes)} do not add up to ${total}, the size of dim ${dim} of ${formatShape(input.shape)}`, { op: 'split', sizes });
  }
  let start = 0;
  return sizes.map((length) => {
    const piece = narrow(input, at, start, length);
    start += length;
    return piece;
  });
}

function evenSizes(total: number, size: number): number[] {
  if (!Number.isInteger(size) || size < 0 || (size === 0 && total > 0))
    throw new ArgumentError(`split: size must be a positive integer, got ${shown(size)}`, { op: 'split', size });
  const sizes: number[] = [];
  for (let at = 0; at < total; at += size) sizes.push(Math.min(size, total - at));
  return sizes.length ? sizes : [0];
}

/** At most `chunks` pieces of equal size (the last may be smaller), as views. */
export function chunk(input: Tensor, chunks: number, dim = 0): Tensor[] {
  requireTensor(input, 'chunk');
  if (!Number.isInteger(chunks) || chunks < 1) throw new ArgumentError(`chunk: expected a positive count, got ${shown(chunks)}`, { op: 'chunk', chunks });
  if (input.shape.length === 0) throw new ShapeError('chunk: expected at least one dim, got a tensor without dims', { op: 'chunk', given: input.shape });
  const total = input.shape[wrapDim(dim, input.shape.length, 'chunk')] as number;
  // PyTorch gives as many empty pieces as were asked for; a list of billions would end the process.
  if (total === 0 && chunks > 2 ** 20) throw new ArgumentError(`chunk: ${chunks} empty pieces are too many`, { op: 'chunk', chunks });
  if (total === 0) return Array.from({ length: chunks }, () => narrow(input, dim, 0, 0));
  return split(input, Math.ceil(total / chunks), dim);
}

/** The slices along a dim, which falls away. */
export function unbind(input: Tensor, dim = 0): Tensor[] {
  requireTensor(input, 'unbind');
  const at = wrapDim(dim, input.shape.length, 'unbind');
  if (input.shape.length === 0) throw new IndexError('unbind: a tensor without dims has no slices', { op: 'unbind' });
  return Array.from({ length: input.shape[at] as number }, (_, i) => select(input, at, i));
}

/** The elements with equal indices in two dims, as a last dim of a view. @throws IndexError, ArgumentError */
export function diagonal(input: Tensor, offset = 0, dim1 = 0, dim2 = 1): Tensor {
  requireTensor(input, 'diagonal');
  if (!Number.isSafeInteger(offset)) throw new ArgumentError(`diagonal: offset must be an integer, got ${shown(offset)}`, { op: 'diagonal', offset });
  const params = { offset, dim1: wrapDim(dim1, input.shape.length, 'diagonal'), dim2: wrapDim(dim2, input.shape.length, 'diagonal') };
  if (params.dim1 === params.dim2) throw new ArgumentError(`diagonal: dims ${dim1} and ${dim2} are the same`, { op: 'diagonal' });
  return dispatchOne(diagonalOp, [input], params);
}

/** Windows of `size` along a dim, every `step`, as a last dim of a view. @throws ArgumentError */
export function unfold(input: Tensor, dim: number, size: number, step: number): Tensor {
  requireTensor(input, 'unfold');
  const at = wrapDim(dim, input.shape.length, 'unfold');
  const total = input.shape[at] ?? 1;
  if (!Number.isInteger(size) || size < 0 || size > total || !Number.isInteger(step) || step < 1) {
    throw new ArgumentError(`unfold: windows of ${shown(size)} every ${shown(step)} do not fit dim ${dim} of shape ${formatShape(input.shape)}`, { op: 'unfold', dim, size, step });
  }
  return dispatchOne(unfoldOp, [input], { dim: at, size, step });
}

/** Any window on the storage of a tensor. @throws ArgumentError if it reaches outside the storage. */
export function asStrided(input: Tensor, size: Shape, stride: Shape, offset?: number): Tensor {
  requireTensor(input, 'asStrided');
  const storageOffset = offset ?? input.storageOffset;
  checkSizes(size, 'asStrided');
  checkIntegers('asStrided', 'stride', stride);
  const fits = stride.length === size.length && stride.every((s) => s >= 0) && Number.isSafeInteger(storageOffset) && storageOffset >= 0;
  if (!fits || endOf(size, stride, storageOffset) * input.dtype.itemsize > input.liveStorage('asStrided').nbytes) {
    throw new ArgumentError(`asStrided: size ${formatShape(size)}, stride ${formatShape(stride)}, offset ${shown(storageOffset)} reach outside the storage`, {
      op: 'asStrided',
      size,
      stride,
    });
  }
  if (input.requiresGrad && !isNonOverlappingAndDense(input.shape, input.strides)) {
    throw new ArgumentError('asStrided: a gradient is only defined for an input without gaps and overlaps; call contiguous() first', { op: 'asStrided' });
  }
  return dispatchOne(asStridedOp, [input], { size: [...size], stride: [...stride], storageOffset, from: { strides: input.strides, offset: input.storageOffset } });
}

addMethod('narrow', function (dim: number, start: number, length: number) {
  return narrow(this, dim, start, length);
});
addMethod('slice', function (dim?: number, start?: number | null, end?: number | null, step?: number) {
  return slice(this, dim, start, end, step);
});
addMethod('select', function (dim: number, index: number) {
  return select(this, dim, index);
});
addMethod('split', function (size: number | readonly number[], dim?: number) {
  return split(this, size, dim);
});
addMethod('chunk', function (chunks: number, dim?: number) {
  return chunk(this, chunks, dim);
});
addMethod('unbind', function (dim?: number) {
  return unbind(this, dim);
});
addMethod('diagonal', function (offset?: number, dim1?: number, dim2?: number) {
  return diagonal(this, offset, dim1, dim2);
});
addMethod('unfold', function (dim: number, size: number, step: number) {
  return unfold(this, dim, size, step);
});
addMethod('asStrided', function (size: Shape, stride: Shape, storageOffset?: number) {
  return asStrided(this, size, stride, storageOffset);
});

declare module '../core/tensor.js' {
  interface Tensor {
    /** `length` elements of one dim from `start`, as a view. Gradient: yes. @throws IndexError */
    narrow(dim: number, start: number, length: number): Tensor;
    /** Elements `start` to `end` of one dim by `step`, as a view. Gradient: yes. */
    slice(dim?: number, start?: number | null, end?: number | null, step?: number): Tensor;
    /** One index of one dim, which falls away, as a view. Gradient: yes. @throws IndexError */
    select(dim: number, index: number): Tensor;
    /** Pieces along a dim, as views. Gradient: yes. @throws ShapeError */
    split(size: number | readonly number[], dim?: number): Tensor[];
    /** At most `chunks` equal pieces, as views. Gradient: yes. */
    chunk(chunks: number, dim?: number): Tensor[];
    /** The slices along a dim, as views. Gradient: yes. */
    unbind(dim?: number): Tensor[];
    /** The diagonal of two dims, as a view. Gradient: yes. */
    diagonal(offset?: number, dim1?: number, dim2?: number): Tensor;
    /** Windows along a dim, as a view. Gradient: yes. */
    unfold(dim: number, size: number, step: number): Tensor;
    /** Any window on this storage. @throws ArgumentError */
    asStrided(size: Shape, stride: Shape, storageOffset?: number): Tensor;
  }
}
