/**
 * softmax and logSoftmax along a dim, cumulative sums and products. The shape stays. All throw
 * IndexError for a dim out of range, ArgumentError for a value that is not a tensor, dim or options
 * object (PyTorch's positional dtype is an option).
 */

import { reduced } from '../core/decompose.js';
import { dispatchOne } from '../core/dispatch.js';
import { int64 } from '../core/dtype.js';
import { DtypeError } from '../core/errors.js';
import { defineOp, type Op, type Sample } from '../core/op.js';
import { wrapDim } from '../core/shape.js';
import { defineFunction, type MethodOf, methodOf } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { overwrite } from './composite.js';
import { cat, flip } from './join.js';
import { addMethod } from './method.js';
import { lowerRows, type OneDim, oneDimParams } from './one-dim.js';
import { type DtypeOption, requireDtype, requireTensor } from './operand.js';
import { sampleTensor } from './samples.js';
import { alongDimRule } from './sharding/along-dim.js';
import { where } from './where.js';

const sameMeta = ([{ sizes: shape, dtype, device }]: readonly [Tensor, ...Tensor[]]) => [
  { shape, strides: null, dtype, device },
];
const lower: NonNullable<Op<OneDim>['lower']> = (command, inputs, outputs, { dim }) =>
  lowerRows(command, inputs, outputs, dim);
const samples = (): Sample<OneDim, readonly [Tensor]>[] => [
  { inputs: [sampleTensor([3, 5])], params: { dim: 1 } },
  { inputs: [sampleTensor([4, 3, 2])], params: { dim: 0 } },
];
const pairSamples = (): Sample<OneDim, readonly [Tensor, Tensor]>[] => [
  {
    inputs: [sampleTensor([3, 5]), sampleTensor([3, 5], { seed: 3 }).softmax(1)],
    params: { dim: 1 },
  },
];

const softmaxBackward: Op<OneDim> = defineOp({
  name: 'softmaxBackward',
  inputs: ['g', 'y'],
  outputs: ['gx'],
  operands: '(grad: [...s, n], y: [...s, n]) -> (gradX: [...s, n])',
  params: oneDimParams,
  sharding: alongDimRule<OneDim>({ linear: 0, decomposes: true }),
  doc: 'Gradient of softmax: y * (g - sum(g * y)).',
  meta: sameMeta,
  lower,
  vjp: 'not-differentiable',
  decompose: ([g, y], { dim }) => {
    const gy = g.mul(y);
    return [gy.sub(y.mul(gy.sum(dim, { keepdim: true })))];
  },
  samples: pairSamples,
});

const logSoftmaxBackward: Op<OneDim> = defineOp({
  name: 'logSoftmaxBackward',
  inputs: ['g', 'y'],
  outputs: ['gx'],
  operands: '(grad: [...s, n], y: [...s, n]) -> (gradX: [...s, n])',
  params: oneDimParams,
  sharding: alongDimRule<OneDim>({ linear: 0, decomposes: true }),
  doc: 'Gradient of logSoftmax: g - exp(y) * sum(g).',
  meta: sameMeta,
  lower,
  vjp: 'not-differentiable',
  decompose: ([g, y], { dim }) => [g.sub(y.exp().mul(g.sum(dim, { keepdim: true })))],
  samples: pairSamples,
});

const softmaxOp: Op<OneDim> = defineOp({
  name: 'softmax',
  inputs: ['x'],
  outputs: ['y'],
  operands: '(x: [...s, n]) -> (y: [...s, n])',
  params: oneDimParams,
  sharding: alongDimRule<OneDim>({ decomposes: true, reducedFirst: [0] }),
  autocast: 'float32 on cuda',
  doc: 'exp(x) over its sum along a dim.',
  meta: sameMeta,
  lower,
  saves: { outputs: [0] },
  vjp: (ctx, g) => [dispatchOne(softmaxBackward, [g, ctx.output(0)], ctx.params)],
  decompose: ([x], { dim }) => {
    // An empty row has no largest element.
    if (x.numel() === 0) return [x.clone()];
    const e = x.sub(x.amax(dim, { keepdim: true })).exp();
    return [e.div(e.sum(dim, { keepdim: true }))];
  },
  samples,
});

const logSoftmaxOp: Op<OneDim> = defineOp({
  name: 'logSoftmax',
  inputs: ['x'],
  outputs: ['y'],
  operands: '(x: [...s, n]) -> (y: [...s, n])',
  params: oneDimParams,
  sharding: alongDimRule<OneDim>({ decomposes: true, reducedFirst: [0] }),
  autocast: 'float32 on cuda',
  doc: 'log of softmax along a dim.',
  meta: sameMeta,
  lower,
  saves: { outputs: [0] },
  vjp: (ctx, g) => [dispatchOne(logSoftmaxBackward, [g, ctx.output(0)], ctx.params)],
  decompose: ([x], { dim }) => [x.sub(x.logsumexp(dim, { keepdim: true }))],
  samples,
});

/** The dtype of running sums and products: int64 for integers and bools. */
const runningMeta = ([{ sizes: shape, dtype, device }]: readonly [Tensor]) => [
  { shape, strides: null, dtype: dtype.isFloatingPoint ? dtype : int64, device },
];

const cumsumOp: Op<OneDim> = defineOp({
  name: 'cumsum',
  inputs: ['x'],
  outputs: ['y'],
  operands: '(x: [...s, n]) -> (y: [...s, n])',
  params: oneDimParams,
  sharding: alongDimRule<OneDim>({ linear: 0 }),
  autocast: 'float32 on cuda',
  doc: 'Running sums along a dim.',
  meta: runningMeta,
  lower,
  vjp: (ctx, g) => [reverseCumsum(g, ctx.params.dim)],
  samples,
});

const cumprodOp: Op<OneDim> = defineOp({
  name: 'cumprod',
  inputs: ['x'],
  outputs: ['y'],
  operands: '(x: [...s, n]) -> (y: [...s, n])',
  params: oneDimParams,
  sharding: alongDimRule<OneDim>(),
  autocast: 'float32 on cuda',
  doc: 'Running products along a dim.',
  meta: runningMeta,
  lower,
  saves: { inputs: [0], outputs: [0] },
  vjp: (ctx, g) => {
    const { dim } = ctx.params;
    if (ctx.inputShape(0).length === 0) return [g];
    const x = reduced(ctx.input(0));
    return [
      ctx.createsGraph()
        ? cumprodGradientOfAnyOrder(g, x, dim)
        : cumprodGradient(g, x, ctx.output(0), dim),
    ];
  },
  samples: () => [{ inputs: [sampleTensor([3, 5], { low: 0.5, high: 2 })], params: { dim: 1 } }],
});

/** Sums from each element to the end. */
function reverseCumsum(g: Tensor, dim: number): Tensor {
  if (g.sizes.length === 0) return g;
  return flip(flip(g, dim).cumsum(dim), dim);
}

/**
 * The product of the elements before k, times what follows from it: r_k = g_k + x_(k+1) r_(k+1). It
 * does not divide and does not branch on values, so that its own gradients are right at zeros, too.
 * The recurrence is solved in log2(n) steps (Kogge and Stone 1973).
 */
function cumprodGradientOfAnyOrder(g: Tensor, x: Tensor, dim: number): Tensor {
  const size = x.sizes[dim] as number;
  if (size === 0) return g;
  const fromLater = (t: Tensor, by: number): Tensor =>
    cat([t.narrow(dim, by, size - by), t.narrow(dim, 0, by).zerosLike()], dim);
  let [factor, following] = [fromLater(x, 1), g];
  for (let step = 1; step < size; step *= 2) {
    following = following.add(factor.mul(fromLater(following, step)));
    factor = factor.mul(fromLater(factor, step));
  }
  const first = x.narrow(dim, 0, 1);
  return cat([x.newOnes(first.sizes), x.narrow(dim, 0, size - 1)], dim)
    .cumprod(dim)
    .mul(following);
}

/**
 * Divides before the first zero and uses the products without the zero at it; after it, every
 * product includes the zero.
 */
function cumprodGradient(g: Tensor, x: Tensor, products: Tensor, dim: number): Tensor {
  const zero = x.eq(0);
  const zerosSoFar = zero.cumsum(dim);
  const firstZero = zero.logicalAnd(zerosSoFar.eq(1));
  const without = where(firstZero, 1, x).cumprod(dim);
  const before = reverseCumsum(g.mul(products), dim).div(where(zero, 1, x));
  return where(zerosSoFar.eq(0), before, where(firstZero, reverseCumsum(g.mul(without), dim), 0));
}

function alongDim(op: Op<OneDim>, floatOnly: boolean) {
  const fn = defineFunction(
    `${op.name}(input, /, dim, *, dtype)`,
    (input: Tensor, dim: number, options: DtypeOption = {}): Tensor => {
      requireTensor(input, op.name);
      const dtype = requireDtype(options.dtype, op.name);
      if (floatOnly && dtype !== undefined && !dtype.isFloatingPoint)
        throw new DtypeError(`${op.name}: expected a floating point dtype, got ${dtype.name}`, {
          op: op.name,
        });
      const given =
        dtype === undefined
          ? floatOnly && !input.dtype.isFloatingPoint
            ? input.float()
            : input
          : input.to(dtype);
      const result = dispatchOne(op, [given], { dim: wrapDim(dim, input.sizes.length, op.name) });
      // integers are added in int64
      return dtype === undefined || result.dtype === dtype ? result : result.to(dtype);
    },
  );
  addMethod(op.name, methodOf(fn));
  return fn;
}

function inPlaceAlongDim(op: Op<OneDim>) {
  const name = `${op.name}_`;
  const fn = defineFunction(
    `${name}(input, /, dim)`,
    (target: Tensor, dim: number): Tensor =>
      overwrite(name, target, (input) =>
        dispatchOne(op, [input], { dim: wrapDim(dim, input.sizes.length, op.name) }),
      ),
  );
  addMethod(name, methodOf(fn));
  return fn;
}

const cumsum_ = inPlaceAlongDim(cumsumOp);
const cumprod_ = inPlaceAlongDim(cumprodOp);

/**
 * exp(x) over its sum along a dim, without overflow; computed in float32 for 16-bit floats. Shapes:
 * `[...]` gives the same. Dtypes: floating stay, others give float32; or `dtype`, converted to
 * first. Gradient: yes.
 *
 * @throws IndexError for a dim out of range; ArgumentError
 * @see PyTorch `torch.softmax`
 */
export const softmax = alongDim(softmaxOp, true);
/**
 * log of {@link softmax} along a dim, with its shapes and dtypes and without its loss of precision.
 * Gradient: yes.
 *
 * @throws IndexError for a dim out of range; ArgumentError
 * @see PyTorch `torch.log_softmax`
 */
export const logSoftmax = alongDim(logSoftmaxOp, true);
/**
 * Running sums along a dim. Shapes: `[...]` gives the same. Dtypes: floating stay, integers and
 * bools give int64; `dtype` is converted to first. Gradient: yes.
 *
 * @throws IndexError for a dim out of range; ArgumentError
 * @see PyTorch `torch.cumsum`
 */
export const cumsum = alongDim(cumsumOp, false);
/**
 * Running products along a dim, with the shapes and dtypes of {@link cumsum}. Gradient: yes, right
 * at zeros too.
 *
 * @throws IndexError for a dim out of range; ArgumentError
 * @see PyTorch `torch.cumprod`
 */
export const cumprod = alongDim(cumprodOp, false);

declare module '../core/tensor.js' {
  interface Tensor {
    /**
     * exp(x) over its sum along a dim; the same as {@link softmax}.
     *
     * @example
     * tensor([[0, 0], [0, 100]]).softmax(-1); // [[0.5, 0.5], [0, 1]]
     */
    softmax: MethodOf<typeof softmax>;
    /** log of softmax along a dim; the same as {@link logSoftmax}. */
    logSoftmax: MethodOf<typeof logSoftmax>;
    /** Running sums along a dim; the same as {@link cumsum}. */
    cumsum: MethodOf<typeof cumsum>;
    /**
     * {@link cumsum} in place, without `dtype`; integers keep theirs. @throws DtypeError for bool;
     * InPlaceError as {@link Tensor.add_}
     */
    cumsum_: MethodOf<typeof cumsum_, this>;
    /** Running products along a dim; the same as {@link cumprod}. */
    cumprod: MethodOf<typeof cumprod>;
    /**
     * {@link cumprod} in place, without `dtype`; integers keep theirs. @throws DtypeError for bool;
     * InPlaceError as {@link Tensor.add_}
     */
    cumprod_: MethodOf<typeof cumprod_, this>;
  }
}
