/**
 * Repeats, rotates and reshapes tensors by views and joins: tile, repeatInterleave, rot90, ravel,
 * blockDiag and similar.
 *
 * Dtypes: all, kept; joins promote. Gradient: yes. Negative dims count from the end; a dim out of
 * range is an IndexError.
 */

import { int64 } from '../core/dtype.js';
import { ArgumentError, ShapeError } from '../core/errors.js';
import { checkIntegers, checkNumber } from '../core/options.js';
import { resultType } from '../core/promotion.js';
import { checkSizes, formatShape, sameShape, wrapDim } from '../core/shape.js';
import { defineFunction, type MethodOf } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { atleast2d } from './broadcast.js';
import { addProperty, defineComposite } from './composite.js';
import { copyRowMajor } from './copy.js';
import { cat, flip, repeat } from './join.js';
import { alongside, requireTensor, requireTensors } from './operand.js';
import { arange } from './ranges.js';
import { sampleTensor } from './samples.js';
import { searchsorted } from './search.js';
import { listOrFirst } from './sized.js';
import { reshape } from './view.js';

const matrix = () => sampleTensor([3, 4]);

const tiled = defineFunction(
  'tile(input, /, dims)',
  (input: Tensor, dims: readonly number[]): Tensor => {
    requireTensor(input, 'tile');
    checkSizes(dims, 'tile');
    return repeat(input, [
      ...Array<number>(Math.max(0, input.ndim - dims.length)).fill(1),
      ...dims,
    ]);
  },
);

/**
 * A copy of the tensor repeated along each dim. Missing counts at the front are 1; further counts
 * add dims in front. Shapes: `[n]` with 2 gives `[2 n]`; `[m, n]` with 2 gives `[m, 2 n]`.
 * Gradient: yes.
 *
 * @throws ArgumentError for a count that is not a non-negative integer, or for a value that is not
 * a tensor
 * @see PyTorch `torch.tile`
 */
export const tile = defineComposite(
  'tile',
  ((input: Tensor, ...dims: unknown[]): Tensor => tiled(input, listOrFirst(dims))) as typeof tiled &
    ((input: Tensor, ...dims: number[]) => Tensor),
  {
    samples: () => [
      [matrix(), 2],
      [matrix(), 2, 1, 3],
      [matrix(), [2, 2]],
    ],
  },
);

/**
 * Each element (or slice of `dim`) repeated, next to itself. A tensor of counts (one, or one for
 * each; fractions are truncated) may differ between elements; the size of the result must then be
 * read, which blocks, unless `outputSize` is given. Without `dim` the input is flattened.
 *
 * Shapes: `[..., n, ...]` gives `[..., n * repeats, ...]`, or the sum of the counts. Gradient: yes.
 *
 * @throws ArgumentError for a negative count; ShapeError if counts and sizes differ; IndexError for
 * the dim, and an outputSize above the sum of counts
 * @see PyTorch `torch.repeat_interleave`
 */
export const repeatInterleave = defineComposite(
  'repeatInterleave',
  defineFunction(
    'repeatInterleave(input, /, repeats, dim, *, outputSize)',
    (
      input: Tensor,
      repeats: number | Tensor,
      dim: number | null = null,
      { outputSize = null }: { outputSize?: number | null } = {},
    ): Tensor => {
      requireTensor(input, 'repeatInterleave');
      if (dim === null || input.ndim === 0) {
        if (dim !== null) wrapDim(dim, 0, 'repeatInterleave');
        return repeatInterleave(input.reshape(-1), repeats, 0, { outputSize });
      }
      const at = wrapDim(dim, input.ndim, 'repeatInterleave');
      const size = input.sizes[at] ?? 1;
      if (typeof repeats === 'number') {
        if (!Number.isInteger(repeats) || repeats < 0)
          throw new ArgumentError(
            `repeatInterleave: expected a count of 0 or more, got ${repeats}`,
            {
              op: 'repeatInterleave',
              repeats,
            },
          );
        const shape = [...input.sizes.slice(0, at + 1), repeats, ...input.sizes.slice(at + 1)];
        return copyRowMajor(input.unsqueeze(at + 1).expand(shape)).reshape(
          input.sizes.map((s, i) => (i === at ? s * repeats : s)),
        );
      }
      requireTensor(repeats, 'repeatInterleave', 'repeats');
      if (repeats.ndim > 1 || (repeats.numel() !== 1 && repeats.numel() !== size)) {
        throw new ShapeError(
          `repeatInterleave: ${formatShape(repeats.sizes)} counts for ${size} slices`,
          { op: 'repeatInterleave' },
        );
      }
      if (outputSize === null && repeats.numel() > 0 && repeats.lt(0).any().item())
        throw new ArgumentError(
          'repeatInterleave: expected counts of 0 or more, got negative ones',
          {
            op: 'repeatInterleave',
          },
        );
      const ends = repeats.long().expand([size]).cumsum(0);
      const total = outputSize ?? (size === 0 ? 0 : Number(ends.select(0, -1).item()));
      return input.indexSelect(
        at,
        searchsorted(ends, alongside(ends, arange(total, { device: input.device })), {
          right: true,
        }),
      );
    },
  ),
  {
    samples: () => [
      [matrix(), 2],
      [matrix(), 3, 1],
      [matrix(), sampleTensor([3], { dtype: int64, low: 1, high: 2 }), 0, { outputSize: 3 }],
    ],
  },
);

/**
 * Quarter turns in the plane of two dims, from the first towards the second, `k` (1) times; a
 * negative k turns back. Shapes: sizes of the two dims exchanged for odd k. Gradient: yes.
 *
 * @throws ArgumentError for two equal dims or a value that is not a tensor; IndexError for a dim
 * out of range
 * @see PyTorch `torch.rot90`
 */
export const rot90 = defineComposite(
  'rot90',
  defineFunction(
    'rot90(input, /, k, dims)',
    (input: Tensor, k = 1, dims: readonly [number, number] = [0, 1]): Tensor => {
      requireTensor(input, 'rot90');
      checkNumber('rot90', 'k', k, { whole: true });
      checkIntegers('rot90', 'dims', dims);
      const [a, b] = [wrapDim(dims[0], input.ndim, 'rot90'), wrapDim(dims[1], input.ndim, 'rot90')];
      if (a === b)
        throw new ArgumentError(`rot90: dims ${dims[0]} and ${dims[1]} are the same`, {
          op: 'rot90',
          dims,
        });
      const turns = ((k % 4) + 4) % 4;
      if (turns === 0) return input.clone();
      if (turns === 2) return flip(input, [a, b]);
      return turns === 1 ? flip(input, b).transpose(a, b) : flip(input, a).transpose(a, b);
    },
  ),
  {
    samples: () => [[matrix()], [matrix(), 2], [matrix(), -1, [0, 1]]],
  },
);

/**
 * Columns (dim 1) in reverse order, as a copy. Gradient: yes. @throws IndexError for fewer than two
 * dims @see PyTorch `torch.fliplr`
 */
export const fliplr = defineComposite(
  'fliplr',
  (input: Tensor): Tensor => {
    requireTensor(input, 'fliplr');
    if (input.ndim < 2)
      throw new ShapeError(
        `fliplr: expected at least 2 dims, got shape ${formatShape(input.sizes)}`,
        { op: 'fliplr' },
      );
    return flip(input, 1);
  },
  { samples: () => [[matrix()]] },
);

/**
 * Rows (dim 0) in reverse order, as a copy. Gradient: yes. @throws ArgumentError for a value that
 * is not a tensor @see PyTorch `torch.flipud`
 */
export const flipud = defineComposite(
  'flipud',
  (input: Tensor): Tensor => {
    requireTensor(input, 'flipud');
    if (input.ndim < 1)
      throw new ShapeError('flipud: expected at least one dim, got a tensor without dims', {
        op: 'flipud',
      });
    return flip(input, 0);
  },
  { samples: () => [[matrix()]] },
);

/**
 * All elements in one dim: a view where possible, else a copy. Gradient: yes. @throws ArgumentError
 * for a value that is not a tensor @see PyTorch `torch.ravel`
 */
export const ravel = defineComposite(
  'ravel',
  (input: Tensor): Tensor => {
    requireTensor(input, 'ravel');
    return reshape(input, [-1]);
  },
  { samples: () => [[matrix()], [matrix().t()]] },
);

function requireSameNumel(op: string, input: Tensor, other: Tensor): void {
  if (input.numel() !== other.numel())
    throw new ShapeError(
      `${op}: shape ${formatShape(input.sizes)} does not hold as many elements as ` +
        `${formatShape(other.sizes)}`,
      { op, shapes: [input.sizes, other.sizes] },
    );
}

/**
 * In the shape of `other`, as a view. Gradient: yes. @throws ShapeError if it holds another number
 * of elements, or needs a copy
 */
defineComposite(
  'viewAs',
  (input: Tensor, other: Tensor): Tensor => {
    requireTensor(input, 'viewAs');
    requireTensor(other, 'viewAs', 'other');
    requireSameNumel('viewAs', input, other);
    return input.view(other.sizes);
  },
  { samples: () => [[matrix(), sampleTensor([2, 6]).detach()]] },
);

/**
 * In the shape of `other`: a view where possible, else a copy. Gradient: yes. @throws ShapeError if
 * it holds another number of elements
 */
defineComposite(
  'reshapeAs',
  (input: Tensor, other: Tensor): Tensor => {
    requireTensor(input, 'reshapeAs');
    requireTensor(other, 'reshapeAs', 'other');
    requireSameNumel('reshapeAs', input, other);
    return reshape(input, other.sizes);
  },
  {
    samples: () => [[matrix().t(), sampleTensor([2, 6]).detach()]],
  },
);

/**
 * The last two dims exchanged, as a view: `[..., m, n]` gives `[..., n, m]`. Gradient: yes. @throws
 * ShapeError for fewer dims @see PyTorch `torch.adjoint`
 */
export const adjoint = defineComposite(
  'adjoint',
  (input: Tensor): Tensor => {
    requireTensor(input, 'adjoint');
    if (input.ndim < 2)
      throw new ShapeError(
        `adjoint: expected at least 2 dims, got shape ${formatShape(input.sizes)}`,
        { op: 'adjoint' },
      );
    return input.transpose(-2, -1);
  },
  { samples: () => [[matrix()]] },
);

/**
 * Matrices (vectors as rows) along the diagonal of a larger one, zeros elsewhere. Shapes: `[a, b]`
 * and `[c, d]` give `[a + c, b + d]`. Dtypes: promoted. Gradient: all.
 *
 * @throws ShapeError for more than two dims; ArgumentError for none; DeviceError for two devices
 * @see PyTorch `torch.block_diag`
 */
export function blockDiag(...tensors: readonly Tensor[]): Tensor {
  requireTensors(tensors, 'blockDiag');
  const dtype = tensors.length === 0 ? undefined : resultType(tensors);
  const blocks = tensors.map((t) => atleast2d(dtype === undefined ? t : t.to(dtype)));
  const columns = blocks.reduce((n, b) => n + (b.sizes[1] as number), 0);
  let start = 0;
  const rows = blocks.map((b) => {
    if (b.ndim !== 2)
      throw new ShapeError(
        `blockDiag: expected at most 2 dims, got shape ${formatShape(b.sizes)}`,
        { op: 'blockDiag' },
      );
    const [height, width] = b.sizes as [number, number];
    const padded = cat(
      [b.newZeros([height, start]), b, b.newZeros([height, columns - start - width])],
      1,
    );
    start += width;
    return padded;
  });
  return cat(rows);
}

/** Whether two tensors have one shape. @see PyTorch `torch.is_same_size` */
export const isSameSize = defineComposite(
  'isSameSize',
  (input: Tensor, other: Tensor): boolean => {
    requireTensor(input, 'isSameSize');
    requireTensor(other, 'isSameSize', 'other');
    return sameShape(input.sizes, other.sizes);
  },
  { samples: () => [[matrix(), matrix()]] },
);

addProperty('T', (t) => t.permute(t.sizes.map((_, i) => t.ndim - 1 - i)));
addProperty('mT', adjoint);

declare module '../core/tensor.js' {
  interface Tensor {
    /** All dims in reverse order, as a view. Gradient: yes. @see PyTorch `torch.Tensor.T` */
    readonly T: Tensor;
    /** The last two dims exchanged, as a view; the same as {@link adjoint}. */
    readonly mT: Tensor;
    /** The last two dims exchanged, as a view; the same as {@link adjoint}. */
    adjoint(): Tensor;
    /** The tensor repeated; the same as {@link tile}. */
    tile: MethodOf<typeof tiled> & ((...dims: number[]) => Tensor);
    /**
     * Each element (or slice of `dim`) repeated, next to itself; the same as {@link
     * repeatInterleave}.
     */
    repeatInterleave: MethodOf<typeof repeatInterleave>;
    /** Quarter turns in the plane of two dims; the same as {@link rot90}. */
    rot90: MethodOf<typeof rot90>;
    /** Columns in reverse order; the same as {@link fliplr}. */
    fliplr(): Tensor;
    /** Rows in reverse order; the same as {@link flipud}. */
    flipud(): Tensor;
    /** All elements in one dim; the same as {@link ravel}. */
    ravel(): Tensor;
    /**
     * In the shape of `other`, as a view. Gradient: yes. @throws ShapeError if {@link Tensor.view}
     * to it is impossible @see PyTorch `torch.Tensor.view_as`
     */
    viewAs(other: Tensor): Tensor;
    /**
     * {@link reshape} to the shape of `other`. Gradient: yes. @throws ShapeError for another number
     * of elements @see PyTorch `torch.Tensor.reshape_as`
     */
    reshapeAs(other: Tensor): Tensor;
    /** Whether two tensors have one shape; the same as {@link isSameSize}. */
    isSameSize(other: Tensor): boolean;
  }
}
