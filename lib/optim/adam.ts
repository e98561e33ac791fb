/** Adam and AdamW. */
import { ArgumentError } from '../core/errors.js';
import { checkFlag, checkNumber, unexpected, withDefaults } from '../core/options.js';
import { gradOf } from '../core/set-grad.js';
import { type ArgumentsOf, defineArguments } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { valueOn } from '../ops/beside.js';
import { adamStepCapturable, type CapturableAdamStep } from '../ops/capturable-steps.js';
import { adamStep } from '../ops/optimizer-steps.js';
import {
  checkRate,
  convertStep,
  countStep,
  countsByTensors,
  hasStep,
  rateBeside,
  rateOn,
  scalarFor,
  stepUnless,
} from './capturable.js';
import {
  type Hyperparameters,
  Optimizer,
  type ParamGroup,
  type ParamState,
  type Params,
} from './optimizer.js';
import type { StateNames } from './optimizer-state.js';
import { checkStepMode, isPlainLoop, type StepMode, withGradients } from './step-mode.js';

/** Options of {@link Adam} and {@link AdamW}. */
export interface AdamOptions extends StepMode {
  /** The learning rate. A tensor of one element needs `capturable` or `fused`. */
  lr?: number | Tensor;
  /** The decay of the running means of gradients and of their squares. */
  betas?: readonly [number, number];
  /** The number that keeps the division from 0. */
  eps?: number;
  /** The factor of weight decay. */
  weightDecay?: number;
  /** Divides by the largest running mean of squares so far. */
  amsgrad?: boolean;
  /** Goes up the gradient. */
  maximize?: boolean;
  /**
   * Counts steps in tensors, so that a compiled function can contain the step. What follows from
   * them is computed where the parameters are.
   */
  capturable?: boolean;
}

type Settings = Required<AdamOptions> & { decoupledWeightDecay: boolean } & Hyperparameters;
/** Rates are typed as numbers, as programs change them; one that is given as a tensor stays one. */
type Group = Settings & { lr: number };

const stateNames: StateNames = {
  step: true,
  required: ['exp_avg', 'exp_avg_sq'],
  optional: ['max_exp_avg_sq'],
};

/** Base of Adam and AdamW, which differ in how they apply weight decay. */
abstract class AdamBase extends Optimizer<Group> {
  protected override checkGroup(group: ParamGroup<Group>): void {
    const name = this.constructor.name;
    checkStepMode(name, group);
    checkRate(name, group);
    checkNumber(name, 'eps', group.eps, { from: 0 });
    if (!Array.isArray(group.betas) || group.betas.length !== 2)
      throw unexpected(name, 'betas', 'two numbers', group.betas);
    checkNumber(name, 'betas[0]', group.betas[0], { from: 0, below: 1 });
    checkNumber(name, 'betas[1]', group.betas[1], { from: 0, below: 1 });
    checkNumber(name, 'weightDecay', group.weightDecay, { from: 0 });
    for (const flag of ['amsgrad', 'maximize', 'capturable', 'decoupledWeightDecay'] as const)
      checkFlag(name, flag, group[flag]);
  }

  protected override get stateNames(): StateNames {
    return stateNames;
  }

  protected override get readsFoundInf(): boolean {
    return this.stepGroup === AdamBase.prototype.stepGroup;
  }

  protected stepGroup(group: ParamGroup<Group>): void {
    for (const params of withGradients(group.params)) {
      const states = params.map((p) => this.stateOf(p, group));
      if (countsByTensors(group, this.isScaled))
        this.runByTensors(group, this.listsOf(group, params, states));
      else this.runByNumbers(group, params, states);
    }
  }

  protected override prepareState(p: Tensor, group: ParamGroup<Group>): void {
    this.stateOf(p, group);
  }

  private stateOf(p: Tensor, group: ParamGroup<Group>): ParamState {
    const state = this.state.get(p);
    const isComplete =
      state !== undefined &&
      hasStep(p, state['step'], countsByTensors(group, this.isScaled)) &&
      (!group.amsgrad || state['max_exp_avg_sq'] !== undefined);
    if (!isComplete) return this.creating(() => this.completeState(p, group));
    this.checkState(state);
    return state;
  }

  private completeState(p: Tensor, group: ParamGroup<Group>): ParamState {
    const zeros = (): Tensor => this.zerosFor(p);
    const state = this.state.get(p) ?? { step: 0, exp_avg: zeros(), exp_avg_sq: zeros() };
    this.checkState(state);
    // If amsgrad is turned on later, the maximum starts at 0.
    if (group.amsgrad) state['max_exp_avg_sq'] ??= zeros();
    convertStep(p, state, countsByTensors(group, this.isScaled));
    this.state.set(p, state);
    return state;
  }

  private checkState(state: ParamState): void {
    for (const name of ['step', 'exp_avg', 'exp_avg_sq']) {
      if (state[name] === undefined)
        throw new ArgumentError(
          `${this.constructor.name}: the state of a parameter has no ${name}`,
          { name },
        );
    }
  }

  private listsOf(
    group: ParamGroup<Group>,
    params: readonly Tensor[],
    states: readonly ParamState[],
  ): Lists {
    const of = (name: string): Tensor[] => states.map((state) => state[name] as Tensor);
    return {
      params,
      grads: params.map((p) => gradOf(p) as Tensor),
      first: of('exp_avg'),
      second: of('exp_avg_sq'),
      largest: group.amsgrad ? of('max_exp_avg_sq') : null,
      steps: of('step'),
    };
  }

  private runByNumbers(
    group: ParamGroup<Group>,
    params: readonly Tensor[],
    states: readonly ParamState[],
  ): void {
    const byStep = new Map<number, [Tensor[], ParamState[]]>();
    params.forEach((p, i) => {
      const state = states[i] as ParamState;
      const step = (state['step'] as number) + 1;
      state['step'] = step;
      const same = byStep.get(step);
      if (same === undefined) byStep.set(step, [[p], [state]]);
      else {
        same[0].push(p);
        same[1].push(state);
      }
    });
    const [beta1, beta2] = group.betas;
    for (const [step, [list, own]] of byStep) {
      const lists = this.listsOf(group, list, own);
      const biasCorrection1 = 1 - beta1 ** step;
      const biasCorrection2 = 1 - beta2 ** step;
      const { lr } = group;
      if (isPlainLoop(group))
        eachOf(lists, (one) => {
          plainStep(group, one, lr, {
            negativeStepSize: -lr / biasCorrection1,
            correction2Root: Math.sqrt(biasCorrection2),
          });
        });
      else {
        const { params, grads, first, second, largest } = lists;
        const numbers = { ...numbersOf(group), lr, biasCorrection1, biasCorrection2 };
        adamStep(params, grads, first, second, largest, numbers);
      }
    }
  }

  private runByTensors(group: ParamGroup<Group>, lists: Lists): void {
    const [first] = lists.params as [Tensor];
    const foundInf = this.foundInf && valueOn(this.foundInf, first);
    countStep(lists.steps, foundInf);
    if (!isPlainLoop(group)) {
      const lr = rateOn(group.lr, first);
      adamStepCapturable(lists, { lr, foundInf }, numbersOf(group));
      return;
    }
    const [beta1, beta2] = group.betas;
    eachOf(lists, (one) => {
      const lr = rateBeside(group.lr, one.p);
      const correction = (beta: number, step: Tensor): Tensor =>
        step.mul(Math.log(beta)).exp().neg().add(1);
      const corrections = {
        negativeStepSize: scalarFor(one.p, one.step, (step) =>
          correction(beta1, step).reciprocal().mul(lr).neg(),
        ),
        correction2Root: scalarFor(one.p, one.step, (step) => correction(beta2, step).sqrt()),
      };
      stepUnless(foundInf, [one.p, one.first, one.second, one.largest], () => {
        plainStep(group, one, lr, corrections);
      });
    });
  }
}

/** Parameters with their gradients and states. */
interface Lists {
  params: readonly Tensor[];
  grads: readonly Tensor[];
  first: readonly Tensor[];
  second: readonly Tensor[];
  largest: readonly Tensor[] | null;
  /** Tensors if the group counts by tensors. */
  steps: readonly Tensor[];
}

/** One parameter with its gradient and state. */
interface One {
  p: Tensor;
  grad: Tensor;
  first: Tensor;
  second: Tensor;
  largest: Tensor | null;
  step: Tensor;
}

function eachOf(lists: Lists, run: (one: One) => void): void {
  lists.params.forEach((p, i) => {
    const [grad, first, second, step] = [lists.grads, lists.first, lists.second, lists.steps].map(
      (list) => list[i],
    ) as [Tensor, Tensor, Tensor, Tensor];
    run({ p, grad, first, second, largest: lists.largest?.[i] ?? null, step });
  });
}

/** The numbers of a step that no count changes. */
function numbersOf(group: Group): CapturableAdamStep {
  const [beta1, beta2] = group.betas;
  return {
    beta1,
    beta2,
    eps: group.eps,
    weightDecay: group.weightDecay,
    decoupled: Number(group.decoupledWeightDecay),
    amsgrad: Number(group.amsgrad),
    maximize: Number(group.maximize),
    gradScale: 1,
  };
}

/** What follows from the count of steps: numbers, or tensors. */
interface Corrections<T extends Tensor | number> {
  negativeStepSize: T;
  correction2Root: T;
}

/** Steps one parameter in plain ops. */
function plainStep<T extends Tensor | number>(
  group: ParamGroup<Group>,
  { p, grad, first, second, largest }: One,
  lr: Tensor | number,
  { negativeStepSize, correction2Root }: Corrections<T>,
): void {
  const [beta1, beta2] = group.betas;
  const { weightDecay, eps } = group;
  let g = group.maximize ? grad.neg() : grad;
  if (weightDecay !== 0) {
    if (!group.decoupledWeightDecay) g = g.add(p, { alpha: weightDecay });
    else p.mul_(typeof lr === 'number' ? 1 - lr * weightDecay : lr.mul(-weightDecay).add(1));
  }
  first.lerp_(g, 1 - beta1);
  second.mul_(beta2).addcmul_(g, g, { value: 1 - beta2 });
  if (largest !== null) largest.copy_(largest.maximum(second));
  const denominator = (largest ?? second).sqrt().div(correction2Root).add(eps);
  if (typeof negativeStepSize === 'number')
    p.addcdiv_(first, denominator, { value: negativeStepSize });
  else p.addcdiv_(first.mul(negativeStepSize), denominator);
}

interface AdamKeywords extends StepMode {
  maximize?: boolean;
  capturable?: boolean;
}

const adamArguments = (name: string, defaultDecay: number, decoupledWeightDecay: boolean) =>
  defineArguments(
    `${name}(params, /, lr, betas, eps, weightDecay, amsgrad, *, foreach, maximize, capturable, differentiable, fused)`,
    (
      params: Params<Settings>,
      lr: number | Tensor = 1e-3,
      betas: readonly [number, number] = [0.9, 0.999],
      eps = 1e-8,
      weightDecay = defaultDecay,
      amsgrad = false,
      keywords: AdamKeywords = {},
    ) => {
      const given: Required<AdamOptions> = {
        lr,
        betas,
        eps,
        weightDecay,
        amsgrad,
        maximize: false,
        foreach: null,
        fused: null,
        capturable: false,
        differentiable: false,
      };
      return {
        params: params as Params<Group>,
        defaults: { ...withDefaults(name, given, keywords), decoupledWeightDecay } as Group,
      };
    },
  );

const plainArguments = adamArguments('Adam', 0, false);
const decoupledArguments = adamArguments('AdamW', 1e-2, true);

/**
 * Adam: steps along the running mean of the gradients, divided by that of their squares.
 *
 * @see Kingma and Ba, arXiv:1412.6980; PyTorch `torch.optim.Adam`
 * @example
 * const optimizer = new optim.Adam(model.parameters(), { lr: 1e-3 });
 * model(x).mean().backward();
 * optimizer.step();
 */
export class Adam extends AdamBase {
  constructor(...args: ArgumentsOf<typeof plainArguments>) {
    const { params, defaults } = plainArguments(...args);
    super(params, defaults);
  }
}

/**
 * Adam with decoupled weight decay: it shrinks the parameters and does not enter the running means.
 *
 * @see Loshchilov and Hutter, arXiv:1711.05101; PyTorch `torch.optim.AdamW`
 * @example
 * const optimizer = new optim.AdamW(model.parameters(), { lr: 1e-3, weightDecay: 0.1 });
 * model(x).mean().backward();
 * optimizer.step();
 */
export class AdamW extends AdamBase {
  constructor(...args: ArgumentsOf<typeof decoupledArguments>) {
    const { params, defaults } = decoupledArguments(...args);
    super(params, defaults);
  }
}
