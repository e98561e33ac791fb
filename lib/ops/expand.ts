/**
 * Views with dims of size 1 stretched, and sums that undo it: expand, expandAs, sumToSize.
 *
 * Dtypes: all, kept. Gradient: yes. Every function throws ArgumentError unless it gets a tensor and
 * sizes, and FreedError if the memory was freed.
 */

import { dispatchOne } from '../core/dispatch.js';
import { ArgumentError, ShapeError } from '../core/errors.js';
import type { Op } from '../core/op.js';
import { checkIntegers } from '../core/options.js';
import {
  broadcastShapes,
  broadcastStrides,
  checkSizes,
  formatShape,
  type Shape,
  sameShape,
} from '../core/shape.js';
import { defineFunction, type MethodOf, methodOf } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { defineView } from './define-view.js';
import { addMethod } from './method.js';
import { requireTensor } from './operand.js';
import { sampleTensor } from './samples.js';
import { expandRule } from './sharding/views.js';
import { listOrFirst } from './sized.js';
import { type Size, sizeParams } from './view.js';

const expandOp: Op<Size> = defineView({
  name: 'expand',
  params: sizeParams,
  doc: 'Dims of size 1 stretched without copying.',
  sharding: expandRule,
  view: (input, { size }) => {
    const lead = size.length - input.sizes.length;
    const fits = lead >= 0 && input.sizes.every((s, i) => s === size[i + lead] || s === 1);
    if (!fits) {
      throw new ShapeError(
        `expand: shape ${formatShape(input.sizes)} does not stretch to ${formatShape(size)}; ` +
          'only sizes of 1 do',
        {
          op: 'expand',
          shape: input.sizes,
          size,
        },
      );
    }
    return {
      shape: size,
      strides: broadcastStrides(input.sizes, input.strides, size),
      offset: input.storageOffset,
    };
  },
  vjp: (ctx, g) => [sumToSize(g, ctx.inputShape(0))],
  samples: () => [{ inputs: [sampleTensor([3, 1])], params: { size: [2, 3, 4] } }],
});

/** Sums a gradient over the dims that broadcasting added or stretched. @internal */
export function sumToSize(g: Tensor, shape: Shape): Tensor {
  if (sameShape(g.sizes, shape)) return g;
  const lead = g.sizes.length - shape.length;
  if (lead < 0 || shape.some((s, i) => s !== 1 && s !== g.sizes[i + lead]))
    throw new ShapeError(
      `sumToSize: ${formatShape(g.sizes)} is no broadcast form of ${formatShape(shape)}`,
      { op: 'sumToSize', shape: g.sizes, size: shape },
    );
  const dims: number[] = [];
  for (let i = 0; i < g.sizes.length; i++)
    if (i < lead || (shape[i - lead] === 1 && g.sizes[i] !== 1)) dims.push(i);
  const summed = dims.length ? g.sum(dims, { keepdim: true }) : g;
  return lead > 0 ? summed.reshape(shape) : summed;
}

/**
 * Dims of size 1 stretched to `size` without copying, and new ones in front; -1 keeps a size. Do
 * not write into the result. Gradient: yes, the sum.
 *
 * @throws ShapeError if a size that is not 1 differs, or for fewer sizes than dims; ArgumentError
 * for a size that is not an integer of 0 or more
 * @see PyTorch `torch.Tensor.expand`
 */
export const expand = defineFunction(
  'expand(input, /, size)',
  (input: Tensor, size: Shape): Tensor => {
    requireTensor(input, 'expand');
    checkIntegers('expand', 'size', size);
    const lead = size.length - input.sizes.length;
    const target = size.map((s, i) =>
      s === -1 && i >= lead ? (input.sizes[i - lead] as number) : s,
    );
    if (target.some((s) => s < 0))
      throw new ArgumentError(`expand: bad size ${formatShape(size)}`, { op: 'expand', size });
    return dispatchOne(expandOp, [input], { size: target });
  },
);

/**
 * {@link expand} to the shape of `other`. Gradient: yes. @throws ShapeError if it does not stretch
 * to that @see PyTorch `torch.Tensor.expand_as`
 */
export const expandAs = defineFunction(
  'expandAs(input, /, other)',
  (input: Tensor, other: Tensor): Tensor => {
    requireTensor(input, 'expandAs');
    requireTensor(other, 'expandAs', 'other');
    if (!sameShape(broadcastShapes(input.sizes, other.sizes, 'expandAs'), other.sizes))
      throw new ShapeError(
        `expandAs: shape ${formatShape(input.sizes)} does not stretch to ` +
          `${formatShape(other.sizes)}; only sizes of 1 do`,
        { op: 'expandAs' },
      );
    return expand(input, other.sizes);
  },
);

addMethod('expand', function (...size: unknown[]) {
  return expand(this, listOrFirst(size));
});
addMethod('expandAs', methodOf(expandAs));
addMethod('sumToSize', function (size: Shape) {
  checkSizes(size, 'sumToSize');
  return sumToSize(this, size);
});

declare module '../core/tensor.js' {
  interface Tensor {
    /**
     * Dims of size 1 stretched without copying; the same as {@link expand}.
     * @example tensor([[1], [2]]).expand([2, 3]); // [[1, 1, 1], [2, 2, 2]]
     */
    expand: MethodOf<typeof expand> & ((...size: number[]) => Tensor);
    /** Stretched to the shape of `other`; the same as {@link expandAs}. */ expandAs: MethodOf<
      typeof expandAs
    >;
    /**
     * Summed over the dims that broadcasting from `size` added or stretched: `[2, 3]` to `[3]` or
     * `[1, 3]`; itself if it has the size already. Gradient: yes.
     *
     * @throws ShapeError for sizes that do not broadcast to this shape; some are not detected
     * @see PyTorch `torch.Tensor.sum_to_size`
     */
    sumToSize(size: Shape): Tensor;
  }
}
