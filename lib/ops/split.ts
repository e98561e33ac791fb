/** Splits a tensor into views: split, chunk, unbind. */

import { ArgumentError, IndexError, ShapeError } from '../core/errors.js';
import { shown, unexpected } from '../core/options.js';
import { checkSizes, formatShape, wrapDim } from '../core/shape.js';
import { defineFunction, type MethodOf, methodOf } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { addMethod } from './method.js';
import { requireTensor } from './operand.js';
import { narrow, select } from './window.js';

/**
 * Chunks of `splitSize` (the last may be smaller), or of the listed sizes, along a dim (0), as
 * views, which may be changed in place (not so in PyTorch where gradients are recorded). Gradient:
 * yes.
 *
 * @throws ShapeError if listed sizes do not add up, or without dims; ArgumentError for a size that
 * is not a positive integer (0 is allowed for an empty dim); IndexError for a dim out of range, or
 * a listed size below 0
 * @see PyTorch `torch.split`
 */
export const split = defineFunction(
  'split(input, /, splitSize, dim)',
  (input: Tensor, splitSize: number | readonly number[], dim = 0): Tensor[] => {
    requireTensor(input, 'split');
    if (input.sizes.length === 0)
      throw new ShapeError('split: expected at least one dim, got a tensor without dims', {
        op: 'split',
        given: input.sizes,
      });
    const at = wrapDim(dim, input.sizes.length, 'split');
    const total = input.sizes[at] as number;
    const sizes = typeof splitSize === 'number' ? evenSizes(total, splitSize) : listed(splitSize);
    if (sizes.reduce((a, b) => a + b, 0) !== total) {
      throw new ShapeError(
        `split: sizes ${formatShape(sizes)} do not add up to ${total}, the size of dim ${dim} ` +
          `of ${formatShape(input.sizes)}`,
        { op: 'split', sizes },
      );
    }
    let start = 0;
    return sizes.map((length) => {
      const chunk = narrow(input, at, start, length);
      start += length;
      return chunk;
    });
  },
);

/** A limit, because each chunk is an object: billions of them would exhaust the memory. */
const MOST_CHUNKS = 2 ** 22;

function checkChunks(op: string, count: number): void {
  if (count > MOST_CHUNKS)
    throw new ArgumentError(
      `${op}: ${Math.ceil(count)} chunks are too many, expected at most ${MOST_CHUNKS}`,
      { op, count },
    );
}

function listed(sizes: readonly number[]): readonly number[] {
  if (!Array.isArray(sizes))
    throw unexpected('split', 'size', 'a number or a list of sizes', sizes);
  // checked one by one, because the list is not a shape
  for (const length of sizes) checkSizes([length], 'split');
  return sizes;
}

function evenSizes(total: number, size: number): number[] {
  if (!Number.isInteger(size) || size < 0 || (size === 0 && total > 0))
    throw new ArgumentError(`split: size must be a positive integer, got ${shown(size)}`, {
      op: 'split',
      size,
    });
  checkChunks('split', total / size);
  const sizes: number[] = [];
  for (let at = 0; at < total; at += size) sizes.push(Math.min(size, total - at));
  return sizes.length ? sizes : [0];
}

/**
 * At most `chunks` chunks of equal size (the last may be smaller) along a dim (0), as views; for an
 * empty dim as many empty ones. Gradient: yes.
 *
 * @throws ArgumentError unless the count is a positive integer; ShapeError without dims; IndexError
 * for a dim out of range
 * @see PyTorch `torch.chunk`
 */
export const chunk = defineFunction(
  'chunk(input, /, chunks, dim)',
  (input: Tensor, chunks: number, dim = 0): Tensor[] => {
    requireTensor(input, 'chunk');
    if (!Number.isInteger(chunks) || chunks < 1)
      throw new ArgumentError(`chunk: expected a positive count, got ${shown(chunks)}`, {
        op: 'chunk',
        chunks,
      });
    if (input.sizes.length === 0)
      throw new ShapeError('chunk: expected at least one dim, got a tensor without dims', {
        op: 'chunk',
        given: input.sizes,
      });
    const total = input.sizes[wrapDim(dim, input.sizes.length, 'chunk')] as number;
    // PyTorch returns the requested number of empty chunks
    if (total === 0) checkChunks('chunk', chunks);
    if (total === 0) return Array.from({ length: chunks }, () => narrow(input, dim, 0, 0));
    return split(input, Math.ceil(total / chunks), dim);
  },
);

/**
 * The slices along a dim (0), as views without this dim. Gradient: yes. @throws IndexError for a
 * dim out of range or no dims @see PyTorch `torch.unbind`
 */
export const unbind = defineFunction(
  'unbind(input, /, dim)',
  (input: Tensor, dim = 0): Tensor[] => {
    requireTensor(input, 'unbind');
    const at = wrapDim(dim, input.sizes.length, 'unbind');
    checkChunks('unbind', input.sizes[at] ?? 0);
    if (input.sizes.length === 0)
      throw new IndexError('unbind: a tensor without dims has no slices', { op: 'unbind' });
    return Array.from({ length: input.sizes[at] as number }, (_, i) => select(input, at, i));
  },
);

addMethod('split', methodOf(split));
addMethod('chunk', methodOf(chunk));
addMethod('unbind', methodOf(unbind));

declare module '../core/tensor.js' {
  interface Tensor {
    /** Pieces along a dim, as views; the same as {@link split}. */
    split: MethodOf<typeof split>;
    /**
     * At most `chunks` equal chunks, as views; the same as {@link chunk}.
     *
     * @example
     * const [first, second] = tensor([1, 2, 3, 4]).chunk(2);
     * second; // [3, 4]
     */
    chunk: MethodOf<typeof chunk>;
    /** The slices along a dim, as views; the same as {@link unbind}. */
    unbind: MethodOf<typeof unbind>;
  }
}
