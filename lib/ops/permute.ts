/**
 * Views with their dims in another order: permute, transpose, t, movedim.
 *
 * Dtypes: all, kept. Gradient: yes. Every function throws ArgumentError unless it gets a tensor and
 * dims, IndexError for a dim out of range, and FreedError if the memory was freed.
 */

import { dispatchOne } from '../core/dispatch.js';
import { ArgumentError, ShapeError } from '../core/errors.js';
import type { Op } from '../core/op.js';
import { type ParamsOf, param } from '../core/op-params.js';
import { checkIntegers } from '../core/options.js';
import { formatShape, type Shape, wrapDim, wrapDims } from '../core/shape.js';
import { defineFunction, type MethodOf, methodOf } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { defineView } from './define-view.js';
import { addMethod } from './method.js';
import { requireTensor } from './operand.js';
import { sampleTensor } from './samples.js';
import { movedDims, viewRule } from './sharding/views.js';
import { listOrFirst } from './sized.js';
import { type Dims, dimsParams, view } from './view.js';

const permuteOp: Op<Dims> = defineView({
  name: 'permute',
  params: dimsParams,
  doc: 'Dims in another order.',
  sharding: viewRule<Dims>((_input, { dims }) => movedDims(dims)),
  view: (input, { dims }) => ({
    shape: dims.map((d) => input.sizes[d] as number),
    strides: dims.map((d) => input.strides[d] as number),
    offset: input.storageOffset,
  }),
  vjp: (ctx, g) => {
    const inverse: number[] = [];
    ctx.params.dims.forEach((d, i) => {
      inverse[d] = i;
    });
    return [permute(g, inverse)];
  },
  samples: () => [{ inputs: [sampleTensor([2, 3, 4])], params: { dims: [2, 0, 1] } }],
});

const dimPairParams = {
  dim0: param.value<number>(),
  dim1: param.value<number>(),
};
type DimPair = ParamsOf<typeof dimPairParams>;

const transposeOp: Op<DimPair> = defineView({
  name: 'transpose',
  params: dimPairParams,
  doc: 'Two dims exchanged.',
  sharding: viewRule<DimPair>(({ sizes: shape }, { dim0, dim1 }) =>
    movedDims(swapped([...shape.keys()], dim0, dim1)),
  ),
  view: (input, { dim0, dim1 }) => ({
    shape: swapped(input.sizes, dim0, dim1),
    strides: swapped(input.strides, dim0, dim1),
    offset: input.storageOffset,
  }),
  vjp: (ctx, g) => [transpose(g, ctx.params.dim0, ctx.params.dim1)],
  samples: () => [{ inputs: [sampleTensor([2, 3, 4])], params: { dim0: 0, dim1: 2 } }],
});

function swapped(list: Shape, a: number, b: number): number[] {
  const out = list.slice();
  out[a] = list[b] as number;
  out[b] = list[a] as number;
  return out;
}

/**
 * All dims in the order listed, as a view: `[a, b, c]` with `[2, 0, 1]` gives `[c, a, b]`.
 * Gradient: yes.
 *
 * @throws ShapeError unless there are as many dims; IndexError for one out of range or given twice
 * @see PyTorch `torch.permute`
 */
export const permute = defineFunction(
  'permute(input, /, dims)',
  (input: Tensor, dims: readonly number[]): Tensor => {
    requireTensor(input, 'permute');
    checkIntegers('permute', 'dims', dims);
    if (dims.length !== input.sizes.length) {
      throw new ShapeError(
        `permute: expected ${input.sizes.length} dims, got [${dims.join(', ')}]`,
        { op: 'permute', dims, shape: input.sizes },
      );
    }
    return dispatchOne(permuteOp, [input], {
      dims: dims.length ? wrapDims(dims, input.sizes.length, 'permute') : [],
    });
  },
);

/**
 * Two dims exchanged, as a view; without dims, a view of all. Gradient: yes. @throws IndexError for
 * a dim out of range @see PyTorch `torch.transpose`
 */
export const transpose = defineFunction(
  'transpose(input, /, dim0, dim1)',
  (input: Tensor, dim0: number, dim1: number): Tensor => {
    requireTensor(input, 'transpose');
    const ndim = input.sizes.length;
    const pair = { dim0: wrapDim(dim0, ndim, 'transpose'), dim1: wrapDim(dim1, ndim, 'transpose') };
    return ndim === 0 ? view(input, []) : dispatchOne(transposeOp, [input], pair);
  },
);

/**
 * The transpose of a matrix, as a view: `[m, n]` gives `[n, m]`; of fewer dims a view of all.
 * Gradient: yes. @throws ShapeError for more @see PyTorch `torch.t`
 */
export function t(input: Tensor): Tensor {
  requireTensor(input, 't');
  if (input.sizes.length > 2)
    throw new ShapeError(
      `t: expected at most 2 dims, got shape ${formatShape(input.sizes)}; use ` +
        'transpose(dim0, dim1)',
      { op: 't' },
    );
  return input.sizes.length < 2 ? view(input, input.sizes) : transpose(input, 0, 1);
}

/**
 * Dims moved to other places, as a view; the others keep their order: `[a, b, c]` from 0 to 2 gives
 * `[b, c, a]`. Gradient: yes.
 *
 * @throws IndexError for a dim out of range or given twice; ArgumentError if the lists differ in
 * length
 * @see PyTorch `torch.movedim`
 */
export const movedim = defineFunction(
  'movedim(input, /, source, destination)',
  (
    input: Tensor,
    source: number | readonly number[],
    destination: number | readonly number[],
  ): Tensor => {
    requireTensor(input, 'movedim');
    const ndim = input.sizes.length;
    const listed = (dims: number | readonly number[]): number[] =>
      typeof dims === 'number' ? [wrapDim(dims, ndim, 'movedim')] : wrapDims(dims, ndim, 'movedim');
    const [from, to] = [listed(source), listed(destination)];
    if (from.length !== to.length)
      throw new ArgumentError(`movedim: ${from.length} dims for ${to.length} places`, {
        op: 'movedim',
        source,
        destination,
      });
    const rest = input.sizes.map((_, i) => i).filter((i) => !from.includes(i));
    return permute(
      input,
      input.sizes.map((_, i) =>
        to.includes(i) ? (from[to.indexOf(i)] as number) : (rest.shift() as number),
      ),
    );
  },
);
addMethod('permute', function (...dims: unknown[]) {
  return permute(this, listOrFirst(dims));
});
addMethod('transpose', methodOf(transpose));
addMethod('t', function () {
  return t(this);
});
addMethod('movedim', methodOf(movedim));

declare module '../core/tensor.js' {
  interface Tensor {
    /** Dims in another order, as a view; the same as {@link permute}. */ permute: MethodOf<
      typeof permute
    > &
      ((...dims: number[]) => Tensor);
    /**
     * Two dims exchanged, as a view; the same as {@link transpose}.
     *
     * @example
     * zeros([2, 3, 4]).transpose(1, 2).shape; // [2, 4, 3]
     */ transpose: MethodOf<typeof transpose>;
    /**
     * The transpose of a matrix, as a view; the same as {@link t}.
     *
     * @example
     * tensor([[1, 2], [3, 4]]).t(); // [[1, 3], [2, 4]]
     */ t(): Tensor;
    /** Dims moved elsewhere; the same as {@link movedim}. */ movedim: MethodOf<typeof movedim>;
  }
}
