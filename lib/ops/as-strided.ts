/** Views by explicit sizes and strides over the whole storage: asStrided. */

import { dispatchOne } from '../core/dispatch.js';
import { int64 } from '../core/dtype.js';
import { ArgumentError, ShardingError } from '../core/errors.js';
import { layers } from '../core/hooks.js';
import type { Op } from '../core/op.js';
import { type ParamsOf, param } from '../core/op-params.js';
import { checkIntegers, shown } from '../core/options.js';
import {
  checkSizes,
  formatShape,
  isContiguousLayout,
  isNonOverlappingAndDense,
  type Shape,
} from '../core/shape.js';
import { defineFunction, type MethodOf, methodOf } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { defineView } from './define-view.js';
import { addMethod } from './method.js';
import { requireTensor } from './operand.js';
import { sampleTensor } from './samples.js';
import { viewRule } from './sharding/views.js';

const stridedParams = {
  size: param.value<Shape>(),
  stride: param.value<Shape>(),
  storageOffset: param.value<number>(),
  /** The window of the input itself on the storage. */
  from: param.value<{ strides: Shape; offset: number }>(),
};
type Strided = ParamsOf<typeof stridedParams>;

/** One more than the largest position that a window reaches. @internal */
export function endOf(size: Shape, stride: Shape, offset: number): number {
  return size.some((s) => s === 0)
    ? 0
    : size.reduce((end, s, i) => end + (s - 1) * (stride[i] as number), offset + 1);
}

const asStridedOp: Op<Strided> = defineView({
  name: 'asStrided',
  params: stridedParams,
  doc: 'Any window on the storage.',
  sharding: viewRule<Strided>(() => []), // the storage of a piece is another one
  view: (_input, { size, stride, storageOffset }) => ({
    shape: size,
    strides: stride,
    offset: storageOffset,
  }),
  vjp: (ctx, g) => {
    const { size, stride, storageOffset, from } = ctx.params;
    const shape = ctx.inputShape(0);
    // Computes as if the input had its own storage; elements outside of the input's window have no
    // gradient.
    const storage = g.newZeros([
      Math.max(endOf(size, stride, storageOffset), endOf(shape, from.strides, from.offset)),
    ]);
    const positions = stridedPositions(size, stride, storageOffset, g);
    return [
      asStrided(storage.indexAdd(0, positions, g.reshape(-1)), shape, from.strides, from.offset),
    ];
  },
  samples: () => [
    {
      inputs: [sampleTensor([6])],
      params: { size: [2, 3], stride: [1, 2], storageOffset: 0, from: { strides: [1], offset: 0 } },
    },
    {
      inputs: [sampleTensor([6])],
      params: { size: [4], stride: [1], storageOffset: 2, from: { strides: [1], offset: 0 } },
    },
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

/**
 * The number of elements that windows may reach. A distributed tensor has no whole storage; if it
 * is not a view, its elements are taken as contiguous.
 */
function bytesOf(input: Tensor): number {
  const { sharding } = input;
  if (sharding === null) return input.liveStorage('asStrided').nbytes;
  if (
    input.base === null &&
    sharding.local.storageOffset === 0 &&
    isContiguousLayout(input.sizes, input.strides)
  )
    return input.numel() * input.dtype.itemsize;
  throw new ShardingError(
    'asStrided: expected a plain tensor or a contiguous one, got a view of a tensor placed as ' +
      `${sharding.spec}, whose shards have memory of their own. Use narrow, select, t or unfold, ` +
      'or toLocal() first.',
    { op: 'asStrided' },
  );
}

/** {@link asStrided} of valid numbers, on memory that need not be there yet. @internal */
export const windowOn = (
  input: Tensor,
  size: Shape,
  stride: Shape,
  storageOffset: number,
): Tensor =>
  dispatchOne(asStridedOp, [input], {
    size: [...size],
    stride: [...stride],
    storageOffset,
    from: { strides: input.strides, offset: input.storageOffset },
  });

/**
 * Any window on the storage of a tensor; `stride` and `storageOffset` (the tensor's own) are in
 * elements. Shapes: `size`. Gradient: yes, summed for elements that occur twice in the window.
 *
 * @throws ShardingError for a view of a distributed tensor; ArgumentError if it reaches outside the
 * storage, for sizes, strides or an offset that are not integers of 0 or more, and for an input
 * with gaps or overlaps that requires a gradient; FreedError if the memory was freed
 * @see PyTorch `torch.as_strided`
 */
export const asStrided = defineFunction(
  'asStrided(input, /, size, stride, storageOffset)',
  (input: Tensor, size: Shape, stride: Shape, storageOffset: number | null = null): Tensor => {
    requireTensor(input, 'asStrided');
    layers.backend.capture?.readsMemory(input, 'the storage offset');
    const memory = bytesOf(input);
    const offset = storageOffset ?? input.storageOffset;
    checkSizes(size, 'asStrided');
    checkIntegers('asStrided', 'stride', stride);
    const fits =
      stride.length === size.length &&
      stride.every((s) => s >= 0) &&
      Number.isSafeInteger(offset) &&
      offset >= 0;
    if (!fits || endOf(size, stride, offset) * input.dtype.itemsize > memory) {
      throw new ArgumentError(
        `asStrided: size ${formatShape(size)}, stride ${formatShape(stride)}, offset ` +
          `${shown(offset)} reach outside the storage`,
        {
          op: 'asStrided',
          size,
          stride,
        },
      );
    }
    if (input.requiresGrad && !isNonOverlappingAndDense(input.sizes, input.strides)) {
      throw new ArgumentError(
        'asStrided: a gradient is only defined for an input without gaps and overlaps; call ' +
          'contiguous() first',
        { op: 'asStrided' },
      );
    }
    return windowOn(input, size, stride, offset);
  },
);
addMethod('asStrided', methodOf(asStrided));

declare module '../core/tensor.js' {
  interface Tensor {
    /** Any window on this storage; the same as {@link asStrided}. */
    asStrided: MethodOf<typeof asStrided>;
  }
}
