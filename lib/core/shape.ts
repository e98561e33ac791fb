/** Shapes, strides and dims: pure functions on arrays of integers. Strides are in elements. */
import { ArgumentError, IndexError, ShapeError } from './errors.js';
import { shown, unexpected } from './options.js';

/** The size of each dim. */
export type Shape = readonly number[];

/** Number of elements. */
export function numelOf(shape: Shape): number {
  let n = 1;
  for (let i = 0; i < shape.length; i++) n *= shape[i] as number;
  return n;
}

/** Row-major strides. A dim of size 0 counts as 1, as in PyTorch. */
export function contiguousStrides(shape: Shape): number[] {
  const strides = new Array<number>(shape.length);
  let step = 1;
  for (let i = shape.length - 1; i >= 0; i--) {
    strides[i] = step;
    const size = shape[i] as number;
    if (size > 1) step *= size;
  }
  return strides;
}

/**
 * Whether strides walk the elements in row-major order without gaps; true for any strides if there
 * are no elements.
 */
export function isContiguousLayout(shape: Shape, strides: Shape): boolean {
  let expected = 1;
  for (let i = shape.length - 1; i >= 0; i--) {
    const size = shape[i] as number;
    if (size === 0) return true;
    if (size !== 1) {
      if (strides[i] !== expected) return shape.includes(0);
      expected *= size;
    }
  }
  return true;
}

/**
 * Whether the elements fill a block of memory exactly once, in some order of dims (a permuted
 * contiguous tensor does).
 */
export function isNonOverlappingAndDense(shape: Shape, strides: Shape): boolean {
  if (isContiguousLayout(shape, strides)) return true;
  const order = shape.map((_, i) => i).filter((i) => shape[i] !== 1);
  order.sort((a, b) => (strides[a] as number) - (strides[b] as number));
  let expected = 1;
  for (const i of order) {
    if (shape[i] === 0) return true;
    if (strides[i] !== expected) return false;
    expected *= shape[i] as number;
  }
  return true;
}

/**
 * The strides of a dense tensor with the layout of another: these strides if they are dense, else
 * packed ones with the dims in the same order in memory. Dims that broadcasting stretched stay
 * where they are.
 *
 * @see PyTorch `infer_dense_strides` in ATen/ExpandUtils.cpp
 */
export function stridesLike(shape: Shape, strides: Shape): Shape {
  if (isNonOverlappingAndDense(shape, strides)) return strides;
  const order = shape.map((_, i) => shape.length - 1 - i); // of dims, the innermost first
  // Whether a dim lies outside of another one; null where strides do not say.
  const isOutside = (a: number, b: number): boolean | null => {
    const [s, t] = [strides[a] as number, strides[b] as number];
    if (s === 0 || t === 0) return null;
    if (s !== t) return s > t;
    return (shape[a] as number) > (shape[b] as number) ? true : null;
  };
  for (let i = 1; i < order.length; i++)
    for (let at = i, before = i - 1; before >= 0; before--) {
      const [a, b] = [order[before] as number, order[at] as number];
      const outside = isOutside(a, b);
      if (outside === false) break;
      if (outside === null) continue;
      [order[before], order[at]] = [b, a];
      at = before;
    }
  const packed = new Array<number>(shape.length);
  let step = 1;
  for (const dim of order) {
    packed[dim] = step;
    if ((shape[dim] as number) > 1) step *= shape[dim] as number;
  }
  return packed;
}

/**
 * Whether two elements certainly share memory, as after `expand`, or `unfold` by less than the
 * size.
 */
export function overlapsItself(shape: Shape, strides: Shape): boolean {
  let count = 1;
  let span = 1;
  for (let i = 0; i < shape.length; i++) {
    const size = shape[i] as number;
    if (size === 0) return false;
    count *= size;
    span += (size - 1) * Math.abs(strides[i] as number);
  }
  return count > span;
}

export function sameShape(a: Shape, b: Shape): boolean {
  if (a === b) return true;
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
  return true;
}

/** `[2, 3]`, for messages. */
export function formatShape(shape: Shape): string {
  return `[${shape.join(', ')}]`;
}

/**
 * The shape that `a` and `b` broadcast to: aligned at the last dim, a size of 1 stretches.
 *
 * @throws ShapeError naming the first dim that does not fit.
 */
export function broadcastShapes(a: Shape, b: Shape, op: string): Shape {
  if (sameShape(a, b)) return a;
  if (b.length === 0) return a;
  if (a.length === 0) return b;
  const ndim = Math.max(a.length, b.length);
  const out = new Array<number>(ndim);
  for (let i = 0; i < ndim; i++) {
    const sizeA = i < ndim - a.length ? 1 : (a[i - (ndim - a.length)] as number);
    const sizeB = i < ndim - b.length ? 1 : (b[i - (ndim - b.length)] as number);
    if (sizeA === sizeB || sizeB === 1) out[i] = sizeA;
    else if (sizeA === 1) out[i] = sizeB;
    else {
      throw new ShapeError(
        `${op}: shapes ${formatShape(a)} and ${formatShape(b)} do not broadcast: sizes ` +
          `${sizeA} and ${sizeB} meet at dim ${i} of the result. Sizes must be equal, or one of ` +
          'them 1; reshape or unsqueeze one operand.',
        { op, shapes: [a, b], dim: i },
      );
    }
  }
  return out;
}

/** Strides of a tensor seen at a larger, broadcast shape: 0 where a size of 1 is stretched. */
export function broadcastStrides(shape: Shape, strides: Shape, target: Shape): number[] {
  const lead = target.length - shape.length;
  const out = new Array<number>(target.length);
  for (let i = 0; i < target.length; i++)
    out[i] = i >= lead && shape[i - lead] === target[i] ? (strides[i - lead] as number) : 0;
  return out;
}

/** The value given for a dim, in quotes if it is a string, since '1' looks like a number. */
function given(dim: unknown): string {
  return dim === undefined ? 'none' : typeof dim === 'string' ? `string ${dim}` : shown(dim);
}

/**
 * Wraps a negative dim and checks its range.
 *
 * @throws IndexError if `dim` is not in `[-ndim, ndim)`.
 */
export function wrapDim(dim: number, ndim: number, op: string): number {
  const range = ndim === 0 ? 1 : ndim; // a scalar accepts dims 0 and -1, as in PyTorch
  if (typeof dim !== 'number')
    throw new ArgumentError(`${op}: expected dim to be a number, got ${given(dim)}`, { op, dim });
  if (!Number.isInteger(dim) || dim < -range || dim >= range) {
    throw new IndexError(
      `${op}: dim ${String(dim)} is out of range for a tensor of ${ndim} dims: expected ` +
        `${-range} to ${range - 1}`,
      {
        op,
        dim,
        ndim,
      },
    );
  }
  return dim < 0 ? dim + range : dim;
}

/**
 * Wraps and checks a list of dims; no list means all dims.
 *
 * @throws IndexError if a dim is out of range or given twice.
 */
export function wrapDims(
  dims: number | readonly number[] | null | undefined,
  ndim: number,
  op: string,
): number[] {
  if (dims === null || dims === undefined) return Array.from({ length: ndim }, (_, i) => i);
  if (typeof dims === 'number')
    return ndim === 0 ? (wrapDim(dims, 0, op), []) : [wrapDim(dims, ndim, op)];
  if (!Array.isArray(dims))
    throw new ArgumentError(
      `${op}: expected dims to be a number or an array of them, got ${given(dims)}`,
      { op, dims },
    );
  if (dims.length === 0) return Array.from({ length: ndim }, (_, i) => i);
  const wrapped: number[] = [];
  // Stops at the first bad dim, which comes after at most ndim good ones, however long the list is.
  for (let i = 0; i < dims.length; i++) {
    const d = wrapDim(dims[i], ndim, op);
    if (wrapped.includes(d))
      throw new IndexError(`${op}: dim ${d} appears more than once in ${shown(dims)}`, {
        op,
        dims,
      });
    wrapped.push(d);
  }
  return ndim === 0 ? [] : wrapped;
}

/**
 * Checks that every size is a non-negative safe integer.
 *
 * @throws ArgumentError naming the bad size.
 */
export function checkSizes(shape: Shape, op: string): void {
  if (!Array.isArray(shape))
    throw new ArgumentError(`${op}: expected a shape such as [2, 3], got ${shown(shape)}`, {
      op,
      shape,
    });
  let n = 1;
  for (const size of shape) {
    if (!Number.isSafeInteger(size) || size < 0) {
      throw new ArgumentError(
        `${op}: sizes must be non-negative integers, got ${shown(size)} in ${shown(shape)}`,
        { op, shape },
      );
    }
    n *= size;
  }
  if (!Number.isSafeInteger(n) || n > 2 ** 48) {
    throw new ArgumentError(
      `${op}: shape [${shape.join(', ')}] has ${n} elements, more than can be addressed`,
      { op, shape },
    );
  }
  if (shape.length > 16) {
    throw new ArgumentError(`${op}: at most 16 dims are supported, got ${shape.length}`, {
      op,
      shape,
    });
  }
}

/** A copy of a shape with the size that makes the element count fit in the place of one -1. */
export function inferSize(shape: Shape, numel: number, op: string): Shape {
  if (!Array.isArray(shape)) throw unexpected(op, 'the shape', 'an array of whole numbers', shape);
  let unknown = -1;
  let known = 1;
  const out = new Array<number>(shape.length); // the caller may change the given one
  for (let i = 0; i < shape.length; i++) {
    const size: unknown = shape[i];
    if (typeof size !== 'number')
      throw unexpected(op, 'the shape', 'an array of whole numbers', shape);
    if (size === -1) {
      if (unknown >= 0)
        throw new ShapeError(`${op}: only one size can be -1, got ${formatShape(shape)}`, {
          op,
          shape,
        });
      unknown = i;
    } else known *= size;
    out[i] = size;
  }
  if (unknown < 0) {
    checkSizes(shape, op);
    if (known === numel) return out;
  } else if (known > 0 && numel % known === 0) {
    out[unknown] = numel / known;
    checkSizes(out, op);
    return out;
  }
  throw new ShapeError(
    `${op}: shape ${formatShape(shape)} does not hold ${numel} elements; the product of the sizes ` +
      'must be their number, and one size may be -1',
    { op, shape, numel },
  );
}

/**
 * Strides that show the same elements at another shape without a copy, or null where that is
 * impossible.
 *
 * @see PyTorch `computeStride` in ATen/TensorUtils.cpp
 */
export function viewStrides(shape: Shape, strides: Shape, target: Shape): number[] | null {
  const numel = numelOf(shape);
  if (numel === 0) return contiguousStrides(target);
  const out = new Array<number>(target.length);
  let viewDim = target.length - 1;
  let chunkStride = strides.length ? (strides[strides.length - 1] as number) : 1;
  let chunkNumel = 1;
  let viewNumel = 1;
  for (let d = shape.length - 1; d >= 0; d--) {
    chunkNumel *= shape[d] as number;
    const ends =
      d === 0 || ((shape[d - 1] as number) !== 1 && strides[d - 1] !== chunkNumel * chunkStride);
    if (!ends) continue;
    while (viewDim >= 0 && (viewNumel < chunkNumel || target[viewDim] === 1)) {
      out[viewDim] = viewNumel * chunkStride;
      viewNumel *= target[viewDim] as number;
      viewDim--;
    }
    if (viewNumel !== chunkNumel) return null;
    if (d > 0) {
      chunkStride = strides[d - 1] as number;
      chunkNumel = 1;
      viewNumel = 1;
    }
  }
  if (shape.length === 0) return contiguousStrides(target);
  return viewDim === -1 ? out : null;
}
