/**
 * Steps of SGD and Adam that read the learning rate and the count of steps from tensors, so that a
 * captured step counts on when it runs again.
 *
 * @see PyTorch `capturable` of `torch.optim.Adam`, `torch._fused_adam_`
 */
import { dispatch } from '../core/dispatch.js';
import { defineOp, type Op } from '../core/op.js';
import { type ParamsOf, param } from '../core/op-params.js';
import type { ShardingRule } from '../core/sharding-rule.js';
import { type Tensor, wrapNumber } from '../core/tensor.js';
import {
  adamParams,
  countParams,
  defineStep,
  inChunks,
  sgdParams,
  writesTo,
} from './optimizer-steps.js';
import { isNumber } from './sharding/strategies.js';

type Count = ParamsOf<typeof countParams>;

/** The learning rate leads itself, and so do the steps, whose list is number `steps`. */
function stepRule<P extends Count>(steps: number): ShardingRule<P> {
  const leaders = (inputs: readonly Tensor[], { count }: P): number[] =>
    inputs.map((t, i) => {
      const list = Math.floor((i - 1) / count);
      return isNumber(t) || i === 0 || list === steps ? i : 1 + ((i - 1) % count);
    });
  return { strategies: () => [], follows: { leaders, reductions: [] } };
}

/** An op on a learning rate, and on lists behind it: those of `written` are overwritten. */
function defineCapturableStep<const S extends typeof countParams>(
  name: string,
  doc: string,
  operands: string,
  params: S,
  steps: number,
  written: readonly number[],
): Op<ParamsOf<S>> {
  const mutates = writesTo(...written);
  return defineOp({
    name,
    doc,
    operands,
    params,
    meta: () => [],
    mutates: (inputs, given) =>
      mutates(inputs.slice(1), given as unknown as Count).map((i) => i + 1),
    sharding: stepRule<Count>(steps) as unknown as ShardingRule<ParamsOf<S>>,
    vjp: 'not-differentiable',
    samples: () => [],
  });
}

const { biasCorrection1: _first, biasCorrection2: _second, ...adamNumbers } = adamParams;
/** Hyperparameters of {@link adamStepCapturable}; `lr` counts if no tensor is given. @internal */
export type CapturableAdamStep = Omit<ParamsOf<typeof adamNumbers>, 'count' | 'lr'>;

const adamStepCapturableOp = defineCapturableStep(
  'adamStepCapturable',
  'One Adam step whose learning rate and count of steps are tensors: parameters and moments are ' +
    'overwritten.',
  '(lr?: float numel(1), params[count]: [...], grads[count]: numel(params[i]), ' +
    'first[count]: numel(params[i]), second[count]: numel(params[i]), ' +
    'largest[count]?: numel(params[i]), steps[count]: float numel(1)) -> ()',
  adamNumbers,
  5,
  [0, 2, 3, 4],
);

const { firstStep: _firstStep, ...sgdNumbers } = sgdParams;
/** Hyperparameters of {@link sgdStepCapturable}. @internal */
export type CapturableSgdStep = Omit<ParamsOf<typeof sgdNumbers>, 'count' | 'lr'>;

const sgdStepCapturableOp = defineCapturableStep(
  'sgdStepCapturable',
  'One SGD step whose learning rate and count of steps are tensors: parameters and momentum ' +
    'buffers are overwritten.',
  '(lr?: float numel(1), params[count]: [...], grads[count]: numel(params[i]), ' +
    'momenta[count]?: numel(params[i]), steps[count]?: float numel(1)) -> ()',
  sgdNumbers,
  3,
  [0, 2],
);

const foreachAddScalarParams = { ...countParams, scalar: param.kernel() };
const foreachAddScalarOp = defineStep(
  'foreachAddScalar',
  'y += scalar for many tensors.',
  '(y[count]: [...]) -> ()',
  foreachAddScalarParams,
  writesTo(0),
  ['avg'],
);

/** Splits the rate into the operand and the parameter: one of them counts. */
function rateOf(lr: Tensor | number, like: Tensor): { operand: Tensor; lr: number } {
  if (typeof lr !== 'number') return { operand: lr, lr: 0 };
  return { operand: wrapNumber(0, like.dtype, like.device), lr };
}

const absent = (tensors: readonly Tensor[]): Tensor[] =>
  tensors.map((t) => wrapNumber(0, t.dtype, t.device));

/**
 * One Adam step on all parameters at once. `steps`: how many steps each parameter has taken with
 * this one. @internal
 */
export function adamStepCapturable(
  lists: {
    params: readonly Tensor[];
    grads: readonly Tensor[];
    first: readonly Tensor[];
    second: readonly Tensor[];
    largest: readonly Tensor[] | null;
    steps: readonly Tensor[];
  },
  lr: Tensor | number,
  step: CapturableAdamStep,
): void {
  const { params, grads, first, second, largest, steps } = lists;
  const rate = rateOf(lr, params[0] as Tensor);
  inChunks([params, grads, first, second, largest ?? absent(params), steps], (inputs, count) =>
    dispatch(adamStepCapturableOp, [rate.operand, ...inputs], { ...step, lr: rate.lr, count }),
  );
}

/**
 * One SGD step on all parameters at once. With momentum, `steps` counts the steps of each
 * parameter, this one included: the first one fills the buffer. @internal
 */
export function sgdStepCapturable(
  lists: {
    params: readonly Tensor[];
    grads: readonly Tensor[];
    momentum: { buffers: readonly Tensor[]; steps: readonly Tensor[] } | null;
  },
  lr: Tensor | number,
  step: CapturableSgdStep,
): void {
  const { params, grads, momentum } = lists;
  const rate = rateOf(lr, params[0] as Tensor);
  const [buffers, steps] = [momentum?.buffers ?? absent(params), momentum?.steps ?? absent(params)];
  inChunks([params, grads, buffers, steps], (inputs, count) =>
    dispatch(sgdStepCapturableOp, [rate.operand, ...inputs], { ...step, lr: rate.lr, count }),
  );
}

/**
 * y += scalar for each tensor, in place, many in one command. Shapes: any. Gradient: none.
 *
 * @throws InPlaceError for targets that require a gradient, outside noGrad
 * @see PyTorch `torch._foreach_add_`
 * @internal
 */
export function foreachAddScalar_(targets: readonly Tensor[], scalar: number): void {
  inChunks([targets], (inputs, count) => dispatch(foreachAddScalarOp, inputs, { count, scalar }));
}
