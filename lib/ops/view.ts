/**
 * Views with other sizes: view, reshape, squeeze, unsqueeze, flatten, detach. A view shares its
 * memory with its input, so an in-place change of one changes both.
 *
 * Dtypes: all, kept. Gradient: yes, except of detach. Every function throws ArgumentError unless it
 * gets a tensor and dims, and FreedError if the memory was freed. Negative dims count from the end.
 */

import { dispatchOne } from '../core/dispatch.js';
import { DType, type DTypeLike } from '../core/dtype.js';
import { ArgumentError, ShapeError } from '../core/errors.js';
import type { Op } from '../core/op.js';
import { type ParamsOf, param } from '../core/op-params.js';
import {
  formatShape,
  inferSize,
  type Shape,
  sameShape,
  viewStrides,
  wrapDim,
  wrapDims,
} from '../core/shape.js';
import { defineFunction, type MethodOf, methodOf } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { defineView } from './define-view.js';
import { addMethod, NO_PARAMS } from './method.js';
import { type OneDim, oneDimParams } from './one-dim.js';
import { requireTensor } from './operand.js';
import { reshapeIfNeeded } from './reshape-if-needed.js';
import { sampleTensor } from './samples.js';
import { sameDims, squeezeRule, viewRule, viewSizeRule } from './sharding/views.js';
import { listOrFirst } from './sized.js';
import { viewDtype } from './view-dtype.js';

/** @internal for expand.ts */
export const sizeParams = {
  size: param.value<Shape>(),
};
/** @internal */
export type Size = ParamsOf<typeof sizeParams>;

const viewOp: Op<Size> = defineView({
  name: 'view',
  params: sizeParams,
  doc: 'Another shape of the same elements.',
  sharding: viewSizeRule,
  view: (input, { size }) => {
    const strides = sameShape(size, input.sizes)
      ? input.strides
      : viewStrides(input.sizes, input.strides, size);
    if (strides === null) {
      throw new ShapeError(
        `view: shape ${formatShape(input.sizes)} with strides ${formatShape(input.strides)} ` +
          `cannot be seen as ${formatShape(size)} without a copy. Use reshape().`,
        { op: 'view', shape: input.sizes, strides: input.strides, size },
      );
    }
    return { shape: size, strides, offset: input.storageOffset };
  },
  vjp: (ctx, g) => [reshapeIfNeeded(g, ctx.inputShape(0))],
  samples: () => [
    { inputs: [sampleTensor([3, 4])], params: { size: [2, 6] } },
    { inputs: [sampleTensor([0, 4])], params: { size: [4, 0] } },
  ],
  publicCall: ([x], { size }) => reshape(x, size),
});

/** @internal */
export const dimsParams = { dims: param.value<readonly number[]>() };
/** @internal */
export type Dims = ParamsOf<typeof dimsParams>;

const unsqueezeOp: Op<OneDim> = defineView({
  name: 'unsqueeze',
  params: oneDimParams,
  doc: 'A new dim of size 1.',
  sharding: viewRule<OneDim>(({ sizes: shape }, { dim }) =>
    shape.map((_, at) => (at < dim ? at : at + 1)),
  ),
  view: (input, { dim }) => {
    const next =
      dim < input.sizes.length ? (input.sizes[dim] as number) * (input.strides[dim] as number) : 1;
    return {
      shape: [...input.sizes.slice(0, dim), 1, ...input.sizes.slice(dim)],
      strides: [...input.strides.slice(0, dim), next, ...input.strides.slice(dim)],
      offset: input.storageOffset,
    };
  },
  vjp: (ctx, g) => [reshapeIfNeeded(g, ctx.inputShape(0))],
  samples: () => [{ inputs: [sampleTensor([2, 3])], params: { dim: 1 } }],
});

const squeezeOp: Op<Dims> = defineView({
  name: 'squeeze',
  params: dimsParams,
  doc: 'Dims of size 1 left out.',
  sharding: squeezeRule,
  view: (input, { dims }) => {
    const isKept = (i: number): boolean => input.sizes[i] !== 1 || !dims.includes(i);
    return {
      shape: input.sizes.filter((_, i) => isKept(i)),
      strides: input.strides.filter((_, i) => isKept(i)),
      offset: input.storageOffset,
    };
  },
  vjp: (ctx, g) => [reshapeIfNeeded(g, ctx.inputShape(0))],
  samples: () => [{ inputs: [sampleTensor([2, 1, 3, 1])], params: { dims: [1, 3] } }],
});

const detachOp: Op<object> = defineView({
  name: 'detach',
  doc: 'The same elements, cut off from the autograd graph.',
  sharding: viewRule<object>((input) => sameDims(input.sizes.length)),
  view: (input) => ({ shape: input.sizes, strides: input.strides, offset: input.storageOffset }),
  vjp: 'not-differentiable',
  samples: () => [{ inputs: [sampleTensor([3])], params: {} }],
});

/** The same elements, sharing memory and version, without history. @internal for layers */
export { detachOp };

/**
 * The same memory without history: no gradient flows through it; in-place changes are shared.
 * @throws FreedError @see PyTorch `torch.Tensor.detach`
 */
export function detach(input: Tensor): Tensor {
  requireTensor(input, 'detach');
  return dispatchOne(detachOp, [input], NO_PARAMS);
}

/**
 * The same memory with another shape; one size may be -1, which is computed. Shapes: as many
 * elements, in the same order. Gradient: yes.
 *
 * With a dtype, the same memory with its bytes read as that dtype. Elements of another size change
 * the last dim: its stride must be 1, and its bytes, the offset and the other strides must be
 * multiples of the new size. Gradient: none.
 *
 * @throws ShapeError if that needs a copy, for another number of elements, or several -1;
 * ArgumentError for a size that is not an integer of 0 or more; DtypeError for a dtype that is none
 * @see PyTorch `torch.Tensor.view`
 */
export const view = defineFunction(
  'view(input, /, size)',
  (input: Tensor, size: Shape | DTypeLike): Tensor => {
    requireTensor(input, 'view');
    if (size instanceof DType || typeof size === 'string') return viewDtype(input, size);
    return dispatchOne(viewOp, [input], { size: inferSize(size, input.numel(), 'view') });
  },
);

/**
 * The same elements in row-major order with another shape: a view where possible, also of the same
 * shape, else a copy; one size may be -1. Gradient: yes.
 *
 * @throws ShapeError for another number of elements or several -1; ArgumentError for a size that is
 * not an integer of 0 or more
 * @see PyTorch `torch.reshape`
 */
export const reshape = defineFunction(
  'reshape(input, /, shape)',
  (input: Tensor, shape: Shape): Tensor => {
    requireTensor(input, 'reshape');
    const size = inferSize(shape, input.numel(), 'reshape');
    const fits =
      sameShape(size, input.sizes) || viewStrides(input.sizes, input.strides, size) !== null;
    const strided = fits ? input : input.contiguous();
    return dispatchOne(viewOp, [strided], { size });
  },
);

/**
 * A new dim of size 1 at `dim`, from -ndim - 1 to ndim, as a view. Gradient: yes. @throws
 * IndexError for others @see PyTorch `torch.unsqueeze`
 */
export const unsqueeze = defineFunction(
  'unsqueeze(input, /, dim)',
  (input: Tensor, dim: number): Tensor => {
    requireTensor(input, 'unsqueeze');
    return dispatchOne(unsqueezeOp, [input], {
      dim: wrapDim(dim, input.sizes.length + 1, 'unsqueeze'),
    });
  },
);

/**
 * Drops dims of size 1, as a view; with `dim`, only those listed. Gradient: yes.
 *
 * @throws IndexError for a dim out of range or given twice
 * @see PyTorch `torch.squeeze`
 */
export const squeeze = defineFunction(
  'squeeze(input, /, dim)',
  (input: Tensor, dim: number | readonly number[] | undefined = undefined): Tensor => {
    requireTensor(input, 'squeeze');
    return dispatchOne(squeezeOp, [input], { dims: wrapDims(dim, input.sizes.length, 'squeeze') });
  },
);

/**
 * Dims `startDim` (0) to `endDim` (-1) merged into one: `[a, b, c]` gives `[a b c]`; a view where
 * possible, else a copy. A tensor without dims gives `[1]`, one with one dim itself. Gradient: yes.
 *
 * @throws IndexError for a dim out of range; ArgumentError if the end comes before the start
 * @see PyTorch `torch.flatten`
 */
export const flatten = defineFunction(
  'flatten(input, /, startDim, endDim)',
  (input: Tensor, startDim = 0, endDim = -1): Tensor => {
    requireTensor(input, 'flatten');
    const ndim = input.sizes.length;
    const start = wrapDim(startDim, ndim, 'flatten');
    const end = wrapDim(endDim, ndim, 'flatten');
    if (ndim === 0) return input.reshape([1]);
    if (start > end)
      throw new ArgumentError(`flatten: startDim ${startDim} comes after endDim ${endDim}`, {
        op: 'flatten',
      });
    if (start === end) return input; // as PyTorch does
    const merged = input.sizes.slice(start, end + 1).reduce((a, b) => a * b, 1);
    return reshape(input, [...input.sizes.slice(0, start), merged, ...input.sizes.slice(end + 1)]);
  },
);

/**
 * One dim split into several: `[a, n]` with dim 1 and `[-1, c]` gives `[a, n / c, c]`; one size may
 * be -1. A view where possible. Gradient: yes.
 *
 * @throws ShapeError if the sizes do not multiply to that of the dim; IndexError for a dim out of
 * range; ArgumentError for a bad size
 * @see PyTorch `torch.unflatten`
 */
export const unflatten = defineFunction(
  'unflatten(input, /, dim, sizes)',
  (input: Tensor, dim: number, sizes: Shape): Tensor => {
    requireTensor(input, 'unflatten');
    const at = wrapDim(dim, input.sizes.length, 'unflatten');
    const parts = inferSize(sizes, input.sizes[at] as number, 'unflatten');
    return reshape(input, [...input.sizes.slice(0, at), ...parts, ...input.sizes.slice(at + 1)]);
  },
);

addMethod('view', function (...size: unknown[]) {
  const [first] = size;
  return view(this, typeof first === 'string' ? (first as DTypeLike) : listOrFirst(size));
});
addMethod('reshape', function (...shape: unknown[]) {
  return reshape(this, listOrFirst(shape));
});
addMethod('unsqueeze', methodOf(unsqueeze));
addMethod('squeeze', methodOf(squeeze));
addMethod('flatten', methodOf(flatten));
addMethod('unflatten', methodOf(unflatten));
addMethod('detach', function () {
  return dispatchOne(detachOp, [this], NO_PARAMS);
});

declare module '../core/tensor.js' {
  interface Tensor {
    /**
     * Another shape of the same memory, or its bytes as another dtype; the same as {@link view}.
     * @example
     * arange(6).view([2, -1]); // [[0, 1, 2], [3, 4, 5]]
     * tensor([1, -2], { dtype: float32 }).view(int32); // [1065353216, -1073741824]
     */
    view: MethodOf<typeof view> & ((...size: number[]) => Tensor);
    /**
     * Another shape: a view where possible, else a copy; the same as {@link reshape}.
     *
     * @example
     * arange(6).reshape([2, 3]); // [[0, 1, 2], [3, 4, 5]]
     * arange(6).reshape([3, -1]).shape; // [3, 2]
     */
    reshape: MethodOf<typeof reshape> & ((...shape: number[]) => Tensor);
    /**
     * A new dim of size 1; the same as {@link unsqueeze}.
     * @example zeros([2, 3]).unsqueeze(1).shape; // [2, 1, 3]
     */
    unsqueeze: MethodOf<typeof unsqueeze>;
    /** Without dims of size 1; the same as {@link squeeze}. */ squeeze: MethodOf<typeof squeeze>;
    /**
     * Neighbouring dims merged into one; the same as {@link flatten}.
     * @example
     * zeros([2, 3, 4]).flatten().shape; // [24]
     * zeros([2, 3, 4]).flatten(1).shape; // [2, 12]
     */
    flatten: MethodOf<typeof flatten>;
    /** One dim split into several; the same as {@link unflatten}. */ unflatten: MethodOf<
      typeof unflatten
    >;
    /**
     * The same memory without history; the same as {@link detach}.
     *
     * @example
     * const w = ones([2], { requiresGrad: true });
     * w.mul(2).detach().requiresGrad; // false
     */ detach(): Tensor;
  }
}
