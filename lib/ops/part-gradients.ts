/**
 * Gradients of views of a part of a tensor: 0 outside of the parts. That of a distributed tensor is
 * as sharded as the gradient of the part, so that no rank communicates.
 */
import { dispatchOne } from '../core/dispatch.js';
import { int64 } from '../core/dtype.js';
import type { ViewGradient } from '../core/gradient-rules.js';
import type { Op } from '../core/op.js';
import { isNonOverlappingAndDense, type Shape } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';
import { asStrided } from './as-strided.js';
import { cat } from './join.js';
import { type DimMap, sameDims } from './sharding/views.js';

/** A view op that takes a part of a tensor. */
export interface PartOp<P> {
  readonly op: Op<P>;
  /** For each dim of the tensor, the dim of the part that has all of its indices, or null. */
  readonly dims: (shape: Shape, params: P) => DimMap;
  /** The indices of the part; null if they are not those of one dim. */
  readonly span: (params: P) => Span | null;
}

/** A view op that takes indices of one dim. */
export interface SpanOp<P> extends PartOp<P> {
  readonly span: (params: P) => Span;
}

/** The indices of a part along its dim; every one of them if `step` is 1. */
export interface Span {
  readonly dim: number;
  readonly start: number;
  readonly length: number;
  readonly step: number;
}

/**
 * Zeros with `g` in place of the view's elements. The write is an op, so that it has a gradient.
 */
export function zerosAround<P extends object>(
  part: PartOp<P>,
  shape: Shape,
  g: Tensor,
  params: P,
): Tensor {
  if (isDistributedVariable(g)) {
    const span = part.span(params);
    return span?.step === 1 ? betweenZeros(span, shape, g) : addedAt(part.op, shape, g, params);
  }
  const zeros = zerosFor(part, shape, g, params);
  dispatchOne(part.op, [zeros], params).copy_(g);
  return zeros;
}

/** Zeros for the whole of which `g` is the gradient of a part; partial values are to be reduced. */
export function zerosFor<P extends object>(
  part: PartOp<P>,
  shape: Shape,
  g: Tensor,
  params: P,
): Tensor {
  return g.sharding === null
    ? g.newZeros(shape)
    : g.sharding.emptyAround(shape, part.dims(shape, params), false).zero_();
}

/**
 * A gradient of a distributed tensor under `createGraph`, since autograd does not record writes
 * into views of a distributed tensor.
 */
export const isDistributedVariable = (g: Tensor): boolean => g.sharding !== null && g.requiresGrad;

/** The same without a write: joins zeros before and after the part. */
function betweenZeros({ dim, start, length }: Span, shape: Shape, g: Tensor): Tensor {
  const own = g.sizes.length < shape.length ? g.unsqueeze(dim) : g;
  const sharding = own.sharding as NonNullable<Tensor['sharding']>;
  const dims = sameDims(shape.length, [dim]);
  const zeros = (count: number): Tensor[] =>
    count === 0 ? [] : [sharding.emptyAround(shape.with(dim, count), dims, false).zero_()];
  return cat([...zeros(start), own, ...zeros((shape[dim] as number) - start - length)], dim);
}

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

/**
 * Gradients of parts along a dim in one tensor, which has the memory layout that the input had. If
 * they are the parts of such a tensor, it is the result, provided that nobody else owns its memory.
 * Distributed ones in different placements are added, because one tensor cannot hold them.
 */
export function joinedParts<P extends object>(
  part: SpanOp<P>,
  views: readonly ViewGradient<P>[],
  shape: Shape,
  strides: Shape,
  areOwned = false,
): Tensor {
  const [first] = views as readonly [ViewGradient<P>];
  if (views.every(({ g }) => g.sharding === null)) {
    const whole = areOwned ? wholeAround(part, views, shape, strides) : null;
    return whole ?? writtenParts(part, views, shape, strides);
  }
  const isAlike = ({ params, g }: ViewGradient<P>): boolean =>
    part.span(params).dim === part.span(first.params).dim && arePlacedAlike(g, first.g);
  const alike = writtenParts(part, views.filter(isAlike), shape, strides);
  const rest = views.filter((view) => !isAlike(view));
  return rest.length === 0 ? alike : alike.add(joinedParts(part, rest, shape, strides));
}

function arePlacedAlike(a: Tensor, b: Tensor): boolean {
  const [own, other] = [a.sharding?.spec.placements, b.sharding?.spec.placements];
  return own?.length === other?.length && own?.every((each, i) => each === other?.[i]) !== false;
}

/** The tensor of those strides of which the gradients are all parts; null if they are not. */
function wholeAround<P>(
  part: SpanOp<P>,
  views: readonly ViewGradient<P>[],
  shape: Shape,
  strides: Shape,
): Tensor | null {
  const spans = views.map(({ params }) => part.span(params));
  if (!areWhole(spans, shape) || !isNonOverlappingAndDense(shape, strides)) return null;
  const [{ dim, start }] = spans as [Span];
  const [{ g: first }] = views as [ViewGradient<P>];
  const step = strides[dim] as number;
  const begin = first.storageOffset - start * step;
  const isInPlace = views.every(({ g }, i) => {
    const own = g.sizes.length < shape.length ? strides.toSpliced(dim, 1) : strides;
    return (
      g.storageOffset === begin + (spans[i] as Span).start * step &&
      g.strides.every((stride, d) => stride === own[d] || g.sizes[d] === 1)
    );
  });
  return isInPlace ? asStrided(first, shape, strides, begin) : null;
}

/** Whether spans are disjoint and have all indices of their dim. */
const areWhole = (spans: readonly Span[], shape: Shape): boolean =>
  disjoint(spans) &&
  spans.reduce((sum, { length }) => sum + length, 0) === shape[(spans[0] as Span).dim];

/** Gradients of parts, written into one tensor. */
function writtenParts<P extends object>(
  part: SpanOp<P>,
  views: readonly ViewGradient<P>[],
  shape: Shape,
  strides: Shape,
): Tensor {
  const [first] = views as readonly [ViewGradient<P>];
  const spans = views.map(({ params }) => part.span(params));
  const areDisjoint = views.length === 1 || disjoint(spans);
  const isWhole = areWhole(spans, shape);
  const whole = laidOutAs(strides, shape, (order) => {
    const sizes = order.map((dim) => shape[dim] as number);
    const { sharding } = first.g;
    if (sharding === null) return isWhole ? first.g.newEmpty(sizes) : first.g.newZeros(sizes);
    const dims = commonDims(part, views, shape);
    const ordered = order.map((dim) => dims[dim] as number | null);
    const empty = sharding.emptyAround(sizes, ordered, isWhole);
    return isWhole ? empty : empty.zero_();
  });
  for (const { params, g } of views) {
    const window = dispatchOne(part.op, [whole], params);
    if (areDisjoint) window.copy_(g);
    else window.add_(g);
  }
  return whole;
}

/** The dims that every part has all of. */
function commonDims<P>(part: PartOp<P>, views: readonly ViewGradient<P>[], shape: Shape): DimMap {
  return views
    .map(({ params }) => part.dims(shape, params))
    .reduce((a, b) => a.map((dim, i) => (dim === b[i] ? dim : null)));
}

function disjoint(spans: readonly Span[]): boolean {
  const sorted = [...spans].sort((a, b) => a.start - b.start);
  return sorted.every(({ dim, start, length, step }, i) => {
    const next = sorted[i + 1];
    return step === 1 && (next === undefined || (dim === next.dim && start + length <= next.start));
  });
}

/** A new tensor, which `make` makes with the dims in the order that the strides have in memory. */
function laidOutAs(
  strides: Shape,
  shape: Shape,
  make: (order: readonly number[]) => Tensor,
): Tensor {
  const order = shape.map((_, i) => i);
  if (!isNonOverlappingAndDense(shape, strides)) return make(order);
  order.sort((a, b) => (strides[b] as number) - (strides[a] as number) || a - b);
  const made = make(order);
  return order.every((dim, i) => dim === i)
    ? made
    : made.permute(shape.map((_, i) => order.indexOf(i)));
}
