/**
 * Steps of SGD and Adam that read the learning rate, the count of steps and whether to step at all
 * from tensors, so that a captured step counts on when it runs again.
 *
 * @see PyTorch `capturable` of `torch.optim.Adam`, `found_inf` of `torch._fused_adam_`
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

/** The operands before the lists: the learning rate, and whether a gradient is not finite. */
const SINGLES = 2;
const SINGLE_OPERANDS = '(lr?: float numel(1), foundInf?: float numel(1), ';

/** The single operands lead themselves, and so do the steps, whose list is number `steps`. */
function stepRule<P extends Count>(steps: number): ShardingRule<P> {
  const leaders = (inputs: readonly Tensor[], { count }: P): number[] =>
    inputs.map((t, i) => {
      const at = i - SINGLES;
      const leadsItself = isNumber(t) || at < 0 || Math.floor(at / count) === steps;
      return leadsItself ? i : SINGLES + (at % count);
    });
  return { strategies: () => [], follows: { leaders, reductions: [] } };
}

/** An op on single operands, and on lists behind them: those of `written` are overwritten. */
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
      mutates(inputs.slice(SINGLES), given as unknown as Count).map((i) => i + SINGLES),
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
    'overwritten, unless `foundInf` is not 0.',
  SINGLE_OPERANDS +
    'params[count]: [...], grads[count]: numel(params[i]), ' +
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
    'buffers are overwritten, unless `foundInf` is not 0.',
  SINGLE_OPERANDS +
    'params[count]: [...], grads[count]: numel(params[i]), ' +
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

/** Stands for an operand that is not there. */
const nothing = ({ dtype, device }: Tensor): Tensor => wrapNumber(0, dtype, device);
const absent = (tensors: readonly Tensor[]): Tensor[] => tensors.map(nothing);

/** What a step on many parameters reads once. @internal */
export interface StepControl {
  readonly lr: Tensor | number;
  /** Not 0 if a gradient is not finite, so that nothing changes; null: the step is taken. */
  readonly foundInf: Tensor | null;
}

/** The single operands, and the rate if it is a number. */
function splitControl(
  { lr, foundInf }: StepControl,
  like: Tensor,
): { singles: readonly Tensor[]; lr: number } {
  const found = foundInf ?? nothing(like);
  return typeof lr === 'number'
    ? { singles: [nothing(like), found], lr }
    : { singles: [lr, found], lr: 0 };
}

/**
 * One Adam step on all parameters at once. `steps`: how many steps each parameter has taken with
 * this one, if it is taken. @internal
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
  control: StepControl,
  step: CapturableAdamStep,
): void {
  const { params, grads, first, second, largest, steps } = lists;
  const { singles, lr } = splitControl(control, params[0] as Tensor);
  inChunks([params, grads, first, second, largest ?? absent(params), steps], (inputs, count) =>
    dispatch(adamStepCapturableOp, [...singles, ...inputs], { ...step, lr, count }),
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
  control: StepControl,
  step: CapturableSgdStep,
): void {
  const { params, grads, momentum } = lists;
  const { singles, lr } = splitControl(control, params[0] as Tensor);
  const [buffers, steps] = [momentum?.buffers ?? absent(params), momentum?.steps ?? absent(params)];
  inChunks([params, grads, buffers, steps], (inputs, count) =>
    dispatch(sgdStepCapturableOp, [...singles, ...inputs], { ...step, lr, count }),
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
