/**
 * Shapes put together and taken apart, in views and joins: tile, repeatInterleave, rot90,
 * atleast2d, meshgrid and their like.
 *
 * Dtypes: all, kept; joins promote. Gradient: yes, to all tensors. Dims may be negative, from the
 * end; one out of range is an IndexError.
 */

import { calledAs } from '../core/call-context.js';
import { int64 } from '../core/dtype.js';
import { ArgumentError, ShapeError } from '../core/errors.js';
import { checkIntegers, checkNumber, checkOneOf } from '../core/options.js';
import { resultType } from '../core/promotion.js';
import {
  broadcastShapes as broadcastPair,
  checkSizes,
  formatShape,
  type Shape,
  sameShape,
  wrapDim,
} from '../core/shape.js';
import { defineFunction, isOptions, type MethodOf } from '../core/signature.js';
import { Tensor } from '../core/tensor.js';
import { addProperty, defineComposite } from './composite.js';
import { copyRowMajor } from './copy.js';
import { arange } from './factories.js';
import { cat, flip, repeat, stack } from './join.js';
import { alongside, requireTensor, requireTensors } from './operand.js';
import { sampleTensor } from './samples.js';
import { searchsorted } from './search.js';
import { listOrFirst } from './sized.js';
import { expand, reshape } from './view.js';

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
 * The tensor repeated, a copy; of too few counts the missing ones are 1 in front, of more the
 * tensor gets dims in front. Shapes: `[n]` with 2 gives `[2 n]`; `[m, n]` with 2 gives `[m, 2 n]`.
 * Gradient: yes.
 *
 * @throws ArgumentError for a count that is no non-negative integer, or for no tensor
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
 * each; fractions are cut off) gives each its own; then the size of the result must be read, which
 * blocks, unless `outputSize` says it. Without `dim` the input is flattened.
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
      const size = input.shape[at] ?? 1;
      if (typeof repeats === 'number') {
        if (!Number.isInteger(repeats) || repeats < 0)
          throw new ArgumentError(
            `repeatInterleave: expected a count of 0 or more, got ${repeats}`,
            {
              op: 'repeatInterleave',
              repeats,
            },
          );
        const shape = [...input.shape.slice(0, at + 1), repeats, ...input.shape.slice(at + 1)];
        return copyRowMajor(input.unsqueeze(at + 1).expand(shape)).reshape(
          input.shape.map((s, i) => (i === at ? s * repeats : s)),
        );
      }
      requireTensor(repeats, 'repeatInterleave', 'repeats');
      if (repeats.ndim > 1 || (repeats.numel() !== 1 && repeats.numel() !== size)) {
        throw new ShapeError(
          `repeatInterleave: ${formatShape(repeats.shape)} counts for ${size} slices`,
          { op: 'repeatInterleave' },
        );
      }
      if (
        outputSize === null &&
        repeats.numel() > 0 &&
        calledAs('repeatInterleave', () => repeats.lt(0).any().item())
      )
        throw new ArgumentError(
          'repeatInterleave: expected counts of 0 or more, got negative ones',
          {
            op: 'repeatInterleave',
          },
        );
      const ends = repeats.long().expand([size]).cumsum(0);
      const total =
        outputSize ??
        (size === 0 ? 0 : Number(calledAs('repeatInterleave', () => ends.select(0, -1).item())));
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
 * @throws ArgumentError for two equal dims or no tensor; IndexError for a dim out of range
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
        `fliplr: expected at least 2 dims, got shape ${formatShape(input.shape)}`,
        { op: 'fliplr' },
      );
    return flip(input, 1);
  },
  { samples: () => [[matrix()]] },
);

/**
 * Rows (dim 0) in reverse order, as a copy. Gradient: yes. @throws ArgumentError for no tensor @see
 * PyTorch `torch.flipud`
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
 * The tensor with at least one dim: `[]` gives `[1]`, others themselves. A view. Gradient: yes.
 * @see PyTorch `torch.atleast_1d`
 */
export const atleast1d = defineComposite(
  'atleast1d',
  (input: Tensor): Tensor => {
    requireTensor(input, 'atleast1d');
    return input.ndim >= 1 ? input : input.reshape([1]);
  },
  { method: false, samples: () => [[sampleTensor([])]] },
);
/**
 * The tensor with at least two dims: `[n]` gives `[1, n]`. A view. Gradient: yes. @see PyTorch
 * `torch.atleast_2d`
 */
export const atleast2d = defineComposite(
  'atleast2d',
  (input: Tensor): Tensor => {
    requireTensor(input, 'atleast2d');
    return input.ndim >= 2 ? input : atleast1d(input).unsqueeze(0);
  },
  { method: false, samples: () => [[sampleTensor([3])]] },
);
/**
 * The tensor with at least three dims: `[n]` gives `[1, n, 1]`, `[m, n]` gives `[m, n, 1]`. A view.
 * Gradient: yes. @see PyTorch `torch.atleast_3d`
 */
export const atleast3d = defineComposite(
  'atleast3d',
  (input: Tensor): Tensor => {
    requireTensor(input, 'atleast3d');
    return input.ndim >= 3 ? input : atleast2d(input).unsqueeze(-1);
  },
  { method: false, samples: () => [[sampleTensor([3])]] },
);

/**
 * The shape that all broadcast to; of none, `[]`. @throws ShapeError where sizes differ and none is
 * 1 @see PyTorch `torch.broadcast_shapes`
 */
export function broadcastShapes(...shapes: readonly Shape[]): Shape {
  for (const shape of shapes) checkSizes(shape, 'broadcastShapes');
  return shapes.reduce<Shape>((all, shape) => broadcastPair(all, shape, 'broadcastShapes'), []);
}

/**
 * All tensors in the shape that they broadcast to, as views; dtypes stay. Gradient: all. @throws
 * ShapeError @see PyTorch `torch.broadcast_tensors`
 */
export function broadcastTensors(...tensors: readonly Tensor[]): Tensor[] {
  requireTensors(tensors, 'broadcastTensors');
  const shape = tensors.reduce<Shape>(
    (all, t) => broadcastPair(all, t.shape, 'broadcastTensors'),
    [],
  );
  return tensors.map((t) => expand(t, shape));
}

/**
 * {@link expand}: sizes of 1 stretched to a shape, as a view. Gradient: yes. @throws ShapeError,
 * ArgumentError @see PyTorch `torch.broadcast_to`
 */
export const broadcastTo = defineComposite(
  'broadcastTo',
  defineFunction('broadcastTo(input, /, size)', (input: Tensor, size: Shape): Tensor => {
    requireTensor(input, 'broadcastTo');
    checkIntegers('broadcastTo', 'size', size);
    return expand(input, size);
  }),
  { samples: () => [[sampleTensor([3, 1]), [2, 3, 4]]] },
);

/**
 * All elements in one dim: a view where possible, else a copy. Gradient: yes. @throws ArgumentError
 * for no tensor @see PyTorch `torch.ravel`
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
      `${op}: shape ${formatShape(input.shape)} does not hold as many elements as ${formatShape(other.shape)}`,
      { op, shapes: [input.shape, other.shape] },
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
    return input.view(other.shape);
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
    return reshape(input, other.shape);
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
        `adjoint: expected at least 2 dims, got shape ${formatShape(input.shape)}`,
        { op: 'adjoint' },
      );
    return input.transpose(-2, -1);
  },
  { samples: () => [[matrix()]] },
);

const meshgridOf = defineFunction(
  'meshgrid(tensors, /, *, indexing)',
  (tensors: readonly Tensor[], { indexing = 'ij' }: { indexing?: 'ij' | 'xy' } = {}): Tensor[] => {
    requireTensors(tensors, 'meshgrid');
    checkOneOf('meshgrid', 'indexing', indexing, ['ij', 'xy']);
    for (const t of tensors)
      if (t.ndim > 1)
        throw new ShapeError(`meshgrid: expected vectors, got shape ${formatShape(t.shape)}`, {
          op: 'meshgrid',
        });
    const swap = indexing === 'xy' && tensors.length > 1;
    const order = swap
      ? [tensors[1] as Tensor, tensors[0] as Tensor, ...tensors.slice(2)]
      : tensors;
    const shape = order.map((t) => t.numel());
    const grids = order.map((t, i) =>
      t.reshape(shape.map((s, k) => (k === i ? s : 1))).expand(shape),
    );
    return swap ? [grids[1] as Tensor, grids[0] as Tensor, ...grids.slice(2)] : grids;
  },
);

/** The forms of {@link meshgrid}: vectors in an array or one by one. */
interface Meshgrid {
  (tensors: readonly Tensor[], options?: { indexing?: 'ij' | 'xy' }): Tensor[];
  (...tensors: Tensor[]): Tensor[];
  (...tensorsAndOptions: [...tensors: Tensor[], options: { indexing?: 'ij' | 'xy' }]): Tensor[];
}

/**
 * Grids of coordinates from vectors, as views: one for each, in its dtype, all of one shape.
 * `indexing` is `ij` (the first vector varies along dim 0) or `xy` (along dim 1). Shapes: `[m]` and
 * `[n]` give `[m, n]` twice, or with `xy` `[n, m]`. Gradient: all.
 *
 * @throws ShapeError for more than one dim
 * @see PyTorch `torch.meshgrid`
 */
export const meshgrid: Meshgrid = (...args: unknown[]): Tensor[] => {
  const given = args[args.length - 1];
  const count = isOptions(given) || given === undefined ? args.length - 1 : args.length;
  const tensors = args[0] instanceof Tensor ? args.slice(0, count) : args[0];
  return meshgridOf(
    tensors as Tensor[],
    (args[0] instanceof Tensor ? args[count] : args[1]) as { indexing?: 'ij' | 'xy' },
  );
};

/**
 * All combinations of elements of vectors, one row each; of one vector, itself. Shapes: `[m]` and
 * `[n]` give `[m n, 2]`. Dtypes: promoted. Gradient: all.
 *
 * @throws ShapeError for more than one dim; ArgumentError for none; DeviceError for two devices
 * @see PyTorch `torch.cartesian_prod`
 */
export function cartesianProd(...tensors: readonly Tensor[]): Tensor {
  requireTensors(tensors, 'cartesianProd');
  for (const t of tensors)
    if (t.ndim !== 1)
      throw new ShapeError(`cartesianProd: expected vectors, got shape ${formatShape(t.shape)}`, {
        op: 'cartesianProd',
      });
  if (tensors.length === 1) return tensors[0] as Tensor;
  return stack(
    meshgridOf(tensors).map((g) => g.reshape(-1)),
    1,
  );
}

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
  const columns = blocks.reduce((n, b) => n + (b.shape[1] as number), 0);
  let start = 0;
  const rows = blocks.map((b) => {
    if (b.ndim !== 2)
      throw new ShapeError(
        `blockDiag: expected at most 2 dims, got shape ${formatShape(b.shape)}`,
        { op: 'blockDiag' },
      );
    const [height, width] = b.shape as [number, number];
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
    return sameShape(input.shape, other.shape);
  },
  { samples: () => [[matrix(), matrix()]] },
);

addProperty('T', (t) => t.permute(t.shape.map((_, i) => t.ndim - 1 - i)));
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
    /** Stretched to a shape, as a view; the same as {@link broadcastTo}. */
    broadcastTo: MethodOf<typeof broadcastTo>;
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
