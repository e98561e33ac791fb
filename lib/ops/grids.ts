/** Combinations of several tensors: meshgrid, cartesianProd, blockDiag. */

import { ShapeError } from '../core/errors.js';
import { checkOneOf } from '../core/options.js';
import { resultType } from '../core/promotion.js';
import { formatShape } from '../core/shape.js';
import { defineFunction, isOptions } from '../core/signature.js';
import { Tensor } from '../core/tensor.js';
import { cat, stack } from './join.js';
import { requireTensors } from './operand.js';
import { atleast2d } from './rearrange.js';

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
