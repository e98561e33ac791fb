/** Gradients of views of a part of a tensor: 0 outside of the parts. */
import { dispatchOne } from '../core/dispatch.js';
import { int64 } from '../core/dtype.js';
import type { Op, ViewGradient } from '../core/op.js';
import { isNonOverlappingAndDense, type Shape } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';

/**
 * Zeros with `g` in place of the view's elements. The write is an op, so that it has a gradient.
 */
export function zerosAround<P extends object>(
  op: Op<P>,
  shape: Shape,
  g: Tensor,
  params: P,
): Tensor {
  if (isDistributedVariable(g)) return addedAt(op, shape, g, params);
  const zeros = g.newZeros(shape);
  dispatchOne(op, [zeros], params).copy_(g);
  return zeros;
}

/**
 * A gradient of a distributed tensor under `createGraph`, since autograd does not record writes
 * into views of a distributed tensor.
 */
export const isDistributedVariable = (g: Tensor): boolean => g.sharding !== null && g.requiresGrad;

/**
 * The same without a write: adds each element of `g` at the index of the element that the view has.
 */
export function addedAt<P extends object>(op: Op<P>, shape: Shape, g: Tensor, params: P): Tensor {
  const numel = shape.reduce((a, b) => a * b, 1);
  const places = g.newOnes([numel], { dtype: int64 }).cumsum(0).sub(1).reshape(shape);
  const taken = dispatchOne(op, [places], params).reshape([-1]);
  return g
    .newZeros([numel])
    .indexAdd(0, taken, g.reshape([-1]))
    .reshape(shape);
}

/** The indices of a part along its dim; every one of them if `step` is 1. */
export interface Span {
  readonly start: number;
  readonly length: number;
  readonly step: number;
}

/**
 * Gradients of parts along a dim in one tensor, which has the memory layout that the input had.
 * `spanOf`: where a part is.
 */
export function joinedParts<P extends { dim: number }>(
  op: Op<P>,
  views: readonly ViewGradient<P>[],
  shape: Shape,
  strides: Shape,
  spanOf: (params: P) => Span,
): Tensor {
  const [first] = views as readonly [ViewGradient<P>];
  const { dim } = first.params;
  const spans = views.map(({ params }) => spanOf(params));
  const areDisjoint =
    views.length === 1 || (views.every(({ params }) => params.dim === dim) && disjoint(spans));
  const isWhole =
    areDisjoint &&
    spans.every(({ step }) => step === 1) &&
    spans.reduce((sum, { length }) => sum + length, 0) === shape[dim];
  const whole = laidOutAs(strides, shape, (sizes) =>
    isWhole ? first.g.newEmpty(sizes) : first.g.newZeros(sizes),
  );
  for (const { params, g } of views) {
    const part = dispatchOne(op, [whole], params);
    if (areDisjoint) part.copy_(g);
    else part.add_(g);
  }
  return whole;
}

function disjoint(spans: readonly Span[]): boolean {
  const sorted = [...spans].sort((a, b) => a.start - b.start);
  return sorted.every(({ start, length, step }, i) => {
    const next = sorted[i + 1];
    return step === 1 && (next === undefined || start + length <= next.start);
  });
}

/** A new tensor whose dims are in memory in the order of the strides. */
function laidOutAs(strides: Shape, shape: Shape, make: (sizes: number[]) => Tensor): Tensor {
  if (!isNonOverlappingAndDense(shape, strides)) return make([...shape]);
  const order = shape.map((_, i) => i);
  order.sort((a, b) => (strides[b] as number) - (strides[a] as number) || a - b);
  const made = make(order.map((i) => shape[i] as number));
  return order.every((dim, i) => dim === i)
    ? made
    : made.permute(shape.map((_, i) => order.indexOf(i)));
}
