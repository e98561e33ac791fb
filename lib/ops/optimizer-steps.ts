/**
 * One step of SGD or Adam over many tensors in one command, and the foreach arithmetic of clipping
 * and accumulation.
 */

import { dispatch, dispatchOne } from '../core/dispatch.js';
import { float32, float64 } from '../core/dtype.js';
import { ArgumentError } from '../core/errors.js';
import { defineOp, type Op } from '../core/op.js';
import { type ParamsOf, param } from '../core/op-params.js';
import type { ReduceOpName } from '../core/placement.js';
import type { ShardingRule } from '../core/sharding-rule.js';
import { type Tensor, wrapNumber } from '../core/tensor.js';
import { stack } from './join.js';
import { sampleTensor } from './samples.js';
import { decomposedForeachRule, foreachRule } from './sharding/concat-and-foreach.js';

/** The most tensors in one command; longer lists are split over several. @internal */
export const MAX_TENSORS = 256;

/** @internal */
export const countParams = { count: param.kernel() };
type Count = ParamsOf<typeof countParams>;

/** The inputs of some of the lists. @internal */
export const writesTo =
  (...groups: number[]) =>
  (inputs: readonly Tensor[], { count }: Count): number[] =>
    groups
      .flatMap((group) => Array.from({ length: count }, (_, i) => group * count + i))
      .filter((i) => inputs[i]?.storage !== null && i < inputs.length);

/** An op that overwrites tensors of lists. @internal */
export function defineStep<const S extends typeof countParams>(
  name: string,
  doc: string,
  operands: string,
  params: S,
  mutates: (inputs: readonly Tensor[], params: Count) => number[],
  reductions: readonly ReduceOpName[] = [],
): Op<ParamsOf<S>> {
  return defineOp({
    name,
    doc,
    operands,
    params,
    meta: () => [],
    mutates: (inputs, given) => mutates(inputs, given as unknown as Count),
    sharding: foreachRule(reductions) as unknown as ShardingRule<ParamsOf<S>>,
    vjp: 'not-differentiable',
    samples: () => [],
  });
}

/** Hyperparameters of one SGD step. @internal */
export const sgdParams = {
  ...countParams,
  lr: param.kernel(),
  momentum: param.kernel(),
  dampening: param.kernel(),
  weightDecay: param.kernel(),
  nesterov: param.kernel(),
  maximize: param.kernel(),
  /** 1 if the momentum buffers are not initialized yet. */
  firstStep: param.kernel(),
};
export type SgdStep = ParamsOf<typeof sgdParams>;

const sgdStepOp = defineStep(
  'sgdStep',
  'One SGD step: parameters and momentum buffers are overwritten.',
  '(params[count]: [...], grads[count]: numel(params[i]), momenta[count]?: numel(params[i]))' +
    ' -> ()',
  sgdParams,
  writesTo(0, 2),
);

/** Hyperparameters of one Adam or AdamW step. @internal */
export const adamParams = {
  ...countParams,
  lr: param.kernel(),
  beta1: param.kernel(),
  beta2: param.kernel(),
  eps: param.kernel(),
  weightDecay: param.kernel(),
  /** 1 for AdamW, whose decay does not pass through the moments. */
  decoupled: param.kernel(),
  amsgrad: param.kernel(),
  maximize: param.kernel(),
  /** 1 - beta^step. */
  biasCorrection1: param.kernel(),
  biasCorrection2: param.kernel(),
  /** A factor of the gradients. */
  gradScale: param.kernel(),
};
export type AdamStep = ParamsOf<typeof adamParams>;

const adamStepOp = defineStep(
  'adamStep',
  'One Adam step: parameters and moments are overwritten.',
  '(params[count]: [...], grads[count]: numel(params[i]), first[count]: numel(params[i]), ' +
    'second[count]: numel(params[i]), largest[count]?: numel(params[i])) -> ()',
  adamParams,
  writesTo(0, 2, 3, 4),
);

const foreachAddParams = {
  ...countParams,
  alpha: param.kernel(),
};
const foreachAddOp = defineStep(
  'foreachAdd',
  'y += alpha * x for many tensors.',
  '(y[count]: [...], x[count]: numel(y[i])) -> ()',
  foreachAddParams,
  writesTo(0),
  ['sum', 'avg'],
);

const foreachMulParams = {
  ...countParams,
  scalar: param.kernel(),
};
const foreachMulOp = defineStep(
  'foreachMul',
  'y *= scalar for many tensors.',
  '(y[count]: [...]) -> ()',
  foreachMulParams,
  writesTo(0),
  ['sum', 'avg'],
);

const foreachNormOp: Op<Count> = defineOp({
  name: 'foreachNorm',
  doc: 'The 2-norm of each of many tensors.',
  sharding: decomposedForeachRule<Count>(),
  outputs: ['norms'],
  operands: '(tensors[count]: [...]) -> (norms: numel(count))',
  params: countParams,
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

/** Calls `run` with at most {@link MAX_TENSORS} tensors of each list at a time. @internal */
export function inChunks(
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
