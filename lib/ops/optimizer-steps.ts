/**
 * Optimizer steps over many tensors in one command: SGD and Adam; and foreach arithmetic for
 * clipping and accumulation.
 */
import { dispatch, dispatchOne } from '../core/dispatch.js';
import { float32, float64 } from '../core/dtype.js';
import { ArgumentError } from '../core/errors.js';
import { defineOp, type Op } from '../core/op.js';
import type { ReduceOpName } from '../core/placement.js';
import { type Tensor, wrapNumber } from '../core/tensor.js';
import { stack } from './join.js';
import { sampleTensor } from './samples.js';
import { decomposedForeachRule, foreachRule } from './sharding/concat-and-foreach.js';

/** Tensors of one command; more are split over several. */
const MAX_TENSORS = 256;

interface Count {
  count: number;
}

const writesTo =
  (...groups: number[]) =>
  (inputs: readonly Tensor[], { count }: Count): number[] =>
    groups
      .flatMap((group) => Array.from({ length: count }, (_, i) => group * count + i))
      .filter((i) => inputs[i]?.storage !== null && i < inputs.length);

function defineStep<P extends Count>(
  name: string,
  doc: string,
  kernelParams: readonly (keyof P & string)[],
  mutates: (inputs: readonly Tensor[], params: P) => number[],
  terms: readonly ReduceOpName[] = [],
): Op<P> {
  return defineOp<P>({
    name,
    doc,
    traits: ['mutates'],
    kernelParams,
    meta: () => [],
    mutates,
    sharding: foreachRule(terms),
    vjp: 'not-differentiable',
    samples: () => [],
  });
}

/** Hyperparameters of one SGD step. */
export interface SgdStep extends Count {
  lr: number;
  momentum: number;
  dampening: number;
  weightDecay: number;
  nesterov: number;
  maximize: number;
  /** 1 when the momentum buffers hold nothing yet. */
  firstStep: number;
}

const sgdStepOp = defineStep<SgdStep>(
  'sgdStep',
  'One SGD step: parameters and momentum buffers are overwritten.',
  ['count', 'lr', 'momentum', 'dampening', 'weightDecay', 'nesterov', 'maximize', 'firstStep'],
  writesTo(0, 2),
);

/** Hyperparameters of one Adam or AdamW step. */
export interface AdamStep extends Count {
  lr: number;
  beta1: number;
  beta2: number;
  eps: number;
  weightDecay: number;
  /** 1 for AdamW: the decay does not pass through the moments. */
  decoupled: number;
  amsgrad: number;
  maximize: number;
  /** 1 - beta^step. */
  biasCorrection1: number;
  biasCorrection2: number;
  /** Gradients are multiplied by this first. */
  gradScale: number;
}

const adamStepOp = defineStep<AdamStep>(
  'adamStep',
  'One Adam step: parameters and moments are overwritten.',
  [
    'count',
    'lr',
    'beta1',
    'beta2',
    'eps',
    'weightDecay',
    'decoupled',
    'amsgrad',
    'maximize',
    'biasCorrection1',
    'biasCorrection2',
    'gradScale',
  ],
  writesTo(0, 2, 3, 4),
);

interface ForeachAdd extends Count {
  alpha: number;
}
const foreachAddOp = defineStep<ForeachAdd>(
  'foreachAdd',
  'y += alpha * x for many tensors.',
  ['count', 'alpha'],
  writesTo(0),
  ['sum', 'avg'],
);

interface ForeachMul extends Count {
  scalar: number;
}
const foreachMulOp = defineStep<ForeachMul>(
  'foreachMul',
  'y *= scalar for many tensors.',
  ['count', 'scalar'],
  writesTo(0),
  ['sum', 'avg'],
);

const foreachNormOp: Op<Count> = defineOp<Count>({
  name: 'foreachNorm',
  doc: 'The 2-norm of each of many tensors.',
  sharding: decomposedForeachRule(),
  kernelParams: ['count'],
  meta: (inputs, { count }) => {
    const { dtype, device } = inputs[0] as Tensor;
    return [
      { shape: [count], strides: null, dtype: dtype === float64 ? float64 : float32, device },
    ];
  },
  vjp: 'not-differentiable',
  decompose: (inputs) => [stack(inputs.map((t) => (t.dtype === float64 ? t : t.float()).norm()))],
  samples: () => [
    { inputs: [sampleTensor([3, 4]), sampleTensor([5], { seed: 2 })], params: { count: 2 } },
  ],
});

/** Calls `run` with at most {@link MAX_TENSORS} tensors of each list at a time. */
function inChunks(
  lists: readonly (readonly Tensor[])[],
  run: (inputs: Tensor[], count: number) => void,
): void {
  const total = lists[0]?.length ?? 0;
  for (const list of lists)
    if (list.length !== total)
      throw new ArgumentError(
        `foreach: lists have different lengths: ${lists.map((l) => l.length).join(', ')}`,
      );
  for (let start = 0; start < total; start += MAX_TENSORS) {
    const end = Math.min(total, start + MAX_TENSORS);
    run(
      lists.flatMap((list) => list.slice(start, end)),
      end - start,
    );
  }
}

const absentLike = (tensors: readonly Tensor[]): Tensor[] =>
  tensors.map((t) => wrapNumber(0, t.dtype, t.device));

/** One SGD step on all parameters at once. @internal */
export function sgdStep(
  params: readonly Tensor[],
  grads: readonly Tensor[],
  buffers: readonly Tensor[] | null,
  step: Omit<SgdStep, 'count'>,
): void {
  inChunks([params, grads, buffers ?? absentLike(params)], (inputs, count) =>
    dispatch(sgdStepOp, inputs, { ...step, count }),
  );
}

/** One Adam step on all parameters at once. @internal */
export function adamStep(
  params: readonly Tensor[],
  grads: readonly Tensor[],
  first: readonly Tensor[],
  second: readonly Tensor[],
  largest: readonly Tensor[] | null,
  step: Omit<AdamStep, 'count'>,
): void {
  inChunks([params, grads, first, second, largest ?? absentLike(params)], (inputs, count) =>
    dispatch(adamStepOp, inputs, { ...step, count }),
  );
}

/**
 * y += alpha * x for each pair, in place, many in one command; `alpha` is 1. Shapes: equal in each
 * pair. Gradient: none.
 *
 * @throws ArgumentError for lists of two lengths; InPlaceError for targets that require a gradient,
 * outside noGrad; KernelError for sizes that differ
 */
export function foreachAdd_(
  targets: readonly Tensor[],
  sources: readonly Tensor[],
  { alpha = 1 } = {},
): void {
  inChunks([targets, sources], (inputs, count) => dispatch(foreachAddOp, inputs, { count, alpha }));
}

/**
 * y *= scalar for each tensor, in place, many in one command. Gradient: none. @throws InPlaceError
 * as {@link foreachAdd_}
 */
export function foreachMul_(targets: readonly Tensor[], scalar: number): void {
  inChunks([targets], (inputs, count) => dispatch(foreachMulOp, inputs, { count, scalar }));
}

/**
 * The 2-norm of each tensor, in vectors of at most 256 norms to be joined with `cat`: float64 if
 * the first of each 256 tensors is, else float32. Gradient: yes, as of the norms one by one.
 * @throws ArgumentError
 */
export function foreachNorm(tensors: readonly Tensor[]): Tensor[] {
  const norms: Tensor[] = [];
  inChunks([tensors], (inputs, count) => {
    norms.push(dispatchOne(foreachNormOp, inputs, { count }));
  });
  return norms;
}
