/**
 * Makes shapes fit each other: atleast1d to atleast3d, broadcastTensors, broadcastTo, meshgrid,
 * cartesianProd.
 */

import { ShapeError } from '../core/errors.js';
import { checkIntegers, checkOneOf } from '../core/options.js';
import {
  broadcastShapes as broadcastPair,
  checkSizes,
  formatShape,
  type Shape,
} from '../core/shape.js';
import { defineFunction, isOptions, type MethodOf } from '../core/signature.js';
import { Tensor } from '../core/tensor.js';
import { defineComposite } from './composite.js';
import { expand } from './expand.js';
import { stack } from './join.js';
import { requireTensor, requireTensors } from './operand.js';
import { sampleTensor } from './samples.js';

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
 * The shape that all broadcast to; `[]` for no shapes. @throws ShapeError if sizes differ and
 * neither is 1 @see PyTorch `torch.broadcast_shapes`
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
    (all, t) => broadcastPair(all, t.sizes, 'broadcastTensors'),
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

const meshgridOf = defineFunction(
  'meshgrid(tensors, /, *, indexing)',
  (tensors: readonly Tensor[], { indexing = 'ij' }: { indexing?: 'ij' | 'xy' } = {}): Tensor[] => {
    requireTensors(tensors, 'meshgrid');
    checkOneOf('meshgrid', 'indexing', indexing, ['ij', 'xy']);
    for (const t of tensors)
      if (t.ndim > 1)
        throw new ShapeError(`meshgrid: expected vectors, got shape ${formatShape(t.sizes)}`, {
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
      throw new ShapeError(`cartesianProd: expected vectors, got shape ${formatShape(t.sizes)}`, {
        op: 'cartesianProd',
      });
  if (tensors.length === 1) return tensors[0] as Tensor;
  return stack(
    meshgridOf(tensors).map((g) => g.reshape(-1)),
    1,
  );
}

declare module '../core/tensor.js' {
  interface Tensor {
    /** Stretched to a shape, as a view; the same as {@link broadcastTo}. */
    broadcastTo: MethodOf<typeof broadcastTo>;
  }
}
