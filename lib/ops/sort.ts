/**
 * Order: argmax, argmin, max, min, sort, argsort, topk. Dtypes: all, kept by values; indices are
 * int64. Along a dim `[..., n, ...]`. All throw IndexError for a dim out of range, ArgumentError
 * for a value that is not a tensor, dim or options object.
 */
import { dispatch, dispatchOne } from '../core/dispatch.js';
import { int64 } from '../core/dtype.js';
import { ArgumentError, IndexError } from '../core/errors.js';
import { defineOp, type Op } from '../core/op.js';
import { type ParamsOf, param } from '../core/op-params.js';
import { checkFlag, shown } from '../core/options.js';
import { formatShape, wrapDim } from '../core/shape.js';
import { defineFunction, type FunctionOf, type MethodOf, methodOf } from '../core/signature.js';
import { Tensor } from '../core/tensor.js';
import { ValuesAndIndices } from '../core/values-and-indices.js';
import { addMethod } from './method.js';
import { lowerRows } from './one-dim.js';
import { requirePair, requireTensor } from './operand.js';
import { maximum, minimum } from './pointwise-binary.js';
import {
  amax,
  amin,
  lowerReduction,
  type Reduction,
  reductionParams,
  reductionSamples,
} from './reduce.js';
import { sampleTensor } from './samples.js';
import { alongDimRule } from './sharding/along-dim.js';
import { keptDimsRule } from './sharding/reductions.js';

function argReduction(name: string, kernel: string, doc: string): Op<Reduction> {
  return defineOp({
    name,
    doc,
    sharding: keptDimsRule<Reduction>(1, false),
    kernel,
    inputs: ['x'],
    outputs: ['indices'],
    operands: '(x: [...]) -> (indices: [...]) where reducesTo(x, indices, reducedNdim)',
    params: reductionParams,
    meta: ([input], { dims, keepdim }) => {
      const shape = keepdim
        ? input.sizes.map((s, i) => (dims.includes(i) ? 1 : s))
        : input.sizes.filter((_, i) => !dims.includes(i));
      return [{ shape, strides: null, dtype: int64, device: input.device }];
    },
    lower: (command, [x], outputs, { dims }) => lowerReduction(command, x, outputs, dims),
    vjp: 'not-differentiable',
    samples: reductionSamples({}),
  });
}

const argmaxOp = argReduction(
  'argmax',
  'reduce_argmax',
  'Index of the largest element; the first of several, NaN wins.',
);
const argminOp = argReduction(
  'argmin',
  'reduce_argmin',
  'Index of the smallest element; the first of several, NaN wins.',
);

function nothing(op: string, input: Tensor): IndexError {
  return new IndexError(`${op}: nothing to choose from in shape ${formatShape(input.sizes)}`, {
    op,
    shape: input.sizes,
  });
}

function argFunction(op: Op<Reduction>) {
  const fn = defineFunction(
    `${op.name}(input, /, dim, keepdim)`,
    (input: Tensor, dim: number | null = null, keepdim = false): Tensor => {
      requireTensor(input, op.name);
      checkFlag(op.name, 'keepdim', keepdim);
      const ndim = input.sizes.length;
      const dims =
        dim === null
          ? input.sizes.map((_, i) => i)
          : ndim === 0
            ? []
            : [wrapDim(dim, ndim, op.name)];
      if (input.numel() === 0 && dims.some((d) => input.sizes[d] === 0))
        throw nothing(op.name, input);
      return dispatchOne(op, [input], { dims, keepdim });
    },
  );
  addMethod(op.name, methodOf(fn));
  return fn;
}

/**
 * Index of the largest element along a dim, or of all elements in row-major order without `dim`;
 * the first of several, NaN wins.
 *
 * Shapes: the input's without the dim, or with size 1 there (`keepdim`, false). Dtypes: all; int64.
 * Gradient: none.
 *
 * @throws IndexError over nothing, or for a dim out of range; ArgumentError
 * @see PyTorch `torch.argmax`
 */
export const argmax = argFunction(argmaxOp);
/**
 * Index of the smallest element along a dim, or of all elements in row-major order without `dim`;
 * the first of several, NaN wins.
 *
 * Shapes: the input's without the dim, or with size 1 there (`keepdim`, false). Dtypes: all; int64.
 * Gradient: none.
 *
 * @throws IndexError over nothing, or for a dim out of range; ArgumentError
 * @see PyTorch `torch.argmin`
 */
export const argmin = argFunction(argminOp);

type OfAll = FunctionOf<'max(input, /)', (input: Tensor) => Tensor>;
type OfTwo = FunctionOf<'max(input, /, other)', (input: Tensor, other: Tensor) => Tensor>;
type Along = FunctionOf<
  'max(input, /, dim, keepdim)',
  (input: Tensor, dim: number, keepdim?: boolean) => ValuesAndIndices
>;

function extremum(
  name: 'max' | 'min',
  whole: typeof amax,
  arg: typeof argmax,
  ofTwo: typeof maximum,
): OfAll & OfTwo & Along {
  const body = (
    input: Tensor,
    dim: number | Tensor | null = null,
    keepdim = false,
    { other }: { other?: Tensor } = {},
  ): Tensor | ValuesAndIndices => {
    requireTensor(input, name);
    checkFlag(name, 'keepdim', keepdim);
    const second = other ?? dim;
    if (second === null && input.numel() === 0) throw nothing(name, input);
    if (second === null) return whole(input);
    if (second instanceof Tensor) {
      requirePair(input, second, name);
      return ofTwo(input, second);
    }
    if (input.sizes[wrapDim(second, input.sizes.length, name)] === 0) throw nothing(name, input);
    const indices = arg(input, second, true);
    const values = input.sizes.length === 0 ? input.clone() : input.gather(second, indices);
    return keepdim || input.sizes.length === 0
      ? new ValuesAndIndices(values, indices)
      : new ValuesAndIndices(values.squeeze(second), indices.squeeze(second));
  };
  const fn = defineFunction(`${name}(input, /, dim, keepdim, *, other)`, body);
  addMethod(name, methodOf(fn));
  return fn as unknown as OfAll & OfTwo & Along;
}

/**
 * The largest element of all, as {@link amax}; with another tensor, the larger of two, as {@link
 * maximum}; with `dim`, the largest along it and their indices (the first of several, NaN wins), of
 * shapes as {@link argmax}. Dtypes: all, kept. Gradient: values; without `dim`, shared by ties.
 *
 * @throws IndexError over nothing, or for a dim out of range; ArgumentError for a value that is not
 * a tensor
 * @see PyTorch `torch.max`
 */
export const max = extremum('max', amax, argmax, maximum);
/**
 * The smallest element of all, as {@link amin}; with another tensor, the smaller of two, as {@link
 * minimum}; with `dim`, the smallest along it and their indices (the first of several, NaN wins),
 * of shapes as {@link argmax}. Dtypes: all, kept. Gradient: values; without `dim`, shared by ties.
 *
 * @throws IndexError over nothing, or for a dim out of range; ArgumentError for a value that is not
 * a tensor
 * @see PyTorch `torch.min`
 */
export const min = extremum('min', amin, argmin, minimum);

const sortParams = {
  dim: param.value<number>(),
  descending: param.kernel(),
};
type SortParams = ParamsOf<typeof sortParams>;

const sortOp: Op<SortParams> = defineOp({
  name: 'sort',
  traits: ['compute-bound'],
  sharding: alongDimRule<SortParams>({ outputs: 2 }),
  doc: 'Elements of one dim in order, and where they were; stable, NaN counts as largest.',
  inputs: ['x'],
  outputs: ['values', 'indices'],
  operands: '(x: [...s, n]) -> (values: [...s, n], indices: [...s, n])',
  params: sortParams,
  meta: ([{ sizes: shape, dtype, device }]) => [
    { shape, strides: null, dtype, device },
    { shape, strides: null, dtype: int64, device },
  ],
  lower: (command, inputs, outputs, { dim }) => lowerRows(command, inputs, outputs, dim),
  saves: { outputs: [1] },
  vjp: (ctx, g) => [g.newZeros(ctx.inputShape(0)).scatter(ctx.params.dim, ctx.output(1), g)],
  samples: () => [
    { inputs: [sampleTensor([3, 5])], params: { dim: 1, descending: 0 } },
    { inputs: [sampleTensor([4, 2])], params: { dim: 0, descending: 1 } },
  ],
});

const topkParams = {
  dim: param.value<number>(),
  k: param.kernel(),
  largest: param.kernel(),
};
type TopkParams = ParamsOf<typeof topkParams>;

const topkOp: Op<TopkParams> = defineOp({
  name: 'topk',
  traits: ['compute-bound'],
  sharding: alongDimRule<TopkParams>({ outputs: 2 }),
  doc: 'The k largest (or smallest) elements of one dim in order, and where they were.',
  inputs: ['x'],
  outputs: ['values', 'indices'],
  operands: '(x: [...s, n]) -> (values: [...s, k], indices: [...s, k]) where atMost(k, n)',
  params: topkParams,
  meta: ([{ sizes: shape, dtype, device }], { dim, k }) => {
    const chosen = shape.map((s, i) => (i === dim ? k : s));
    return [
      { shape: chosen, strides: null, dtype, device },
      { shape: chosen, strides: null, dtype: int64, device },
    ];
  },
  lower: (command, inputs, outputs, { dim }) => lowerRows(command, inputs, outputs, dim),
  saves: { outputs: [1] },
  vjp: (ctx, g) => [g.newZeros(ctx.inputShape(0)).scatter(ctx.params.dim, ctx.output(1), g)],
  samples: () => [{ inputs: [sampleTensor([3, 7])], params: { dim: 1, k: 3, largest: 1 } }],
});

interface StableOption {
  /** Accepted and ignored: equal elements always keep their order. */
  stable?: boolean;
}

/** Options of {@link sort} and {@link argsort}. */
export interface SortOptions extends StableOption {
  /** From the largest to the smallest; false by default. */
  descending?: boolean;
}

function checkOrder(op: string, descending: boolean, stable: boolean): void {
  checkFlag(op, 'descending', descending);
  checkFlag(op, 'stable', stable);
}

/** Options of {@link topk}. */
export interface TopkOptions {
  /** The largest (true, the default) or the smallest elements. */
  largest?: boolean;
  /** Accepted and ignored: values are always sorted. */
  sorted?: boolean;
}

/**
 * Elements of one dim (the last) in rising order, or falling with `descending`, and their indices.
 * Always stable; NaN counts as largest. Shapes: as the input, in row-major order. Dtypes: all,
 * kept; indices int64. Gradient: values.
 *
 * @throws IndexError for a dim out of range; ArgumentError for a value that is not a tensor or an
 * options object
 * @see PyTorch `torch.sort`
 */
export const sort = defineFunction(
  'sort(input, /, dim, descending, *, stable)',
  (
    input: Tensor,
    dim = -1,
    descending = false,
    { stable = true }: StableOption = {},
  ): ValuesAndIndices => {
    requireTensor(input, 'sort');
    checkOrder('sort', descending, stable);
    const [values, indices] = dispatch(sortOp, [input], {
      dim: wrapDim(dim, input.sizes.length, 'sort'),
      descending: Number(descending),
    });
    return new ValuesAndIndices(values as Tensor, indices as Tensor);
  },
);

/**
 * The indices of {@link sort}, int64, as the input in shape. Gradient: none. @throws IndexError,
 * ArgumentError as that @see PyTorch `torch.argsort`
 */
export const argsort = defineFunction(
  'argsort(input, /, dim, descending, *, stable)',
  (input: Tensor, dim = -1, descending = false, { stable = true }: StableOption = {}): Tensor => {
    requireTensor(input, 'argsort');
    checkOrder('argsort', descending, stable);
    return sort(input, wrapDim(dim, input.sizes.length, 'argsort'), descending).indices;
  },
);

/**
 * The k largest elements of one dim (the last) in falling order, or the smallest in rising order
 * with `largest: false`, and their indices. NaN counts as largest. Shapes: size k at the dim; `[]`
 * for `[]`. Dtypes: all, kept; indices int64. Gradient: values.
 *
 * @throws ArgumentError unless k is an integer from 0 to the size, or for a value that is not a
 * tensor or an options object; IndexError for a dim out of range
 * @see PyTorch `torch.topk`
 * @example
 * const [values, indices] = topk(tensor([3, 9, 5]), 2);
 * values; // [9, 5]
 * indices; // [1, 2]
 */
export const topk = defineFunction(
  'topk(input, /, k, dim, largest, sorted)',
  (input: Tensor, k: number, dim = -1, largest = true, sorted = true): ValuesAndIndices => {
    requireTensor(input, 'topk');
    checkFlag('topk', 'largest', largest);
    checkFlag('topk', 'sorted', sorted);
    const at = wrapDim(dim, input.sizes.length, 'topk');
    const size = input.sizes[at] ?? 1;
    if (!Number.isInteger(k) || k < 0 || k > size)
      throw new ArgumentError(
        `topk: k = ${shown(k)} is out of range for dim ${dim} of shape ${formatShape(input.sizes)}`,
        { op: 'topk', k, shape: input.sizes },
      );
    // A tensor without dims gives its element for any k, as in PyTorch, because the result has no
    // dim of size 0.
    const [values, indices] = dispatch(topkOp, [input], {
      dim: at,
      k: input.sizes.length === 0 ? 1 : k,
      largest: Number(largest),
    });
    return new ValuesAndIndices(values as Tensor, indices as Tensor);
  },
);

addMethod('sort', methodOf(sort));
addMethod('argsort', methodOf(argsort));
addMethod('topk', methodOf(topk));

declare module '../core/tensor.js' {
  interface Tensor {
    /** Index of the largest element, along one dim or of all; the same as {@link argmax}. */
    argmax: MethodOf<typeof argmax>;
    /** Index of the smallest element, along one dim or of all; the same as {@link argmin}. */
    argmin: MethodOf<typeof argmin>;
    /**
     * The largest element of all; with another tensor the larger of two, element by element; or
     * along a dim, with their indices; see {@link max}.
     */
    max: MethodOf<OfAll> & MethodOf<OfTwo> & MethodOf<Along>;
    /**
     * The smallest element of all; with another tensor the smaller of two, element by element; or
     * along a dim, with their indices; see {@link min}.
     */
    min: MethodOf<OfAll> & MethodOf<OfTwo> & MethodOf<Along>;
    /** Elements of one dim in order, and their indices; the same as {@link sort}. */
    sort: MethodOf<typeof sort>;
    /** Indices that would sort one dim; the same as {@link argsort}. */
    argsort: MethodOf<typeof argsort>;
    /** The k largest elements of one dim in order, and their indices; the same as {@link topk}. */
    topk: MethodOf<typeof topk>;
  }
}
