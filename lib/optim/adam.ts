/** Adam and AdamW. */
import { ArgumentError } from '../core/errors.js';
import { checkFlag, checkNumber, unexpected, withDefaults } from '../core/options.js';
import { gradOf } from '../core/set-grad.js';
import { type ArgumentsOf, defineArguments } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { adamStep } from '../ops/optimizer-steps.js';
import {
  checkRate,
  checkStepMode,
  type Hyperparameters,
  isPlainLoop,
  Optimizer,
  type ParamGroup,
  type ParamState,
  type Params,
  type StepMode,
  withGradients,
} from './optimizer.js';
import type { StateNames } from './optimizer-state.js';

/** Options of {@link Adam} and {@link AdamW}. */
export interface AdamOptions extends StepMode {
  /** The learning rate. */
  lr?: number;
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
  /** Accepted for PyTorch's states, and ignored: every step can be captured. */
  capturable?: boolean;
}

type Group = Required<AdamOptions> & { decoupledWeightDecay: boolean } & Hyperparameters;

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

  protected stepGroup(group: ParamGroup<Group>): void {
    for (const params of withGradients(group.params)) {
      const byStep = new Map<number, Tensor[]>();
      for (const p of params) {
        const state = this.stateOf(p, group.amsgrad);
        const step = (state['step'] as number) + 1;
        state['step'] = step;
        byStep.set(step, [...(byStep.get(step) ?? []), p]);
      }
      for (const [step, list] of byStep) this.run(group, list, step);
    }
  }

  private stateOf(p: Tensor, amsgrad: boolean): ParamState {
    let state = this.state.get(p);
    if (state === undefined) {
      state = { step: 0, exp_avg: this.zerosFor(p), exp_avg_sq: this.zerosFor(p) };
      this.state.set(p, state);
    }
    for (const name of ['step', 'exp_avg', 'exp_avg_sq']) {
      if (state[name] === undefined)
        throw new ArgumentError(
          `${this.constructor.name}: the state of a parameter has no ${name}`,
          { name },
        );
    }
    // If amsgrad is turned on later, the maximum starts at 0.
    if (amsgrad) state['max_exp_avg_sq'] ??= this.zerosFor(p);
    return state;
  }

  private run(group: ParamGroup<Group>, params: readonly Tensor[], step: number): void {
    const [beta1, beta2] = group.betas;
    const biasCorrection1 = 1 - beta1 ** step;
    const biasCorrection2 = 1 - beta2 ** step;
    const of = (name: string): Tensor[] =>
      params.map((p) => (this.state.get(p) as ParamState)[name] as Tensor);
    const grads = params.map((p) => gradOf(p) as Tensor);
    const largest = group.amsgrad ? of('max_exp_avg_sq') : null;
    const { lr, eps, weightDecay } = group;
    if (isPlainLoop(group)) {
      const [first, second] = [of('exp_avg'), of('exp_avg_sq')];
      params.forEach((p, i) => {
        plainStep(
          group,
          p,
          grads[i] as Tensor,
          first[i] as Tensor,
          second[i] as Tensor,
          largest?.[i] ?? null,
          biasCorrection1,
          biasCorrection2,
        );
      });
      return;
    }
    const flags = {
      decoupled: Number(group.decoupledWeightDecay),
      amsgrad: Number(group.amsgrad),
      maximize: Number(group.maximize),
    };
    adamStep(params, grads, of('exp_avg'), of('exp_avg_sq'), largest, {
      lr,
      beta1,
      beta2,
      eps,
      weightDecay,
      ...flags,
      biasCorrection1,
      biasCorrection2,
      gradScale: 1,
    });
  }
}

/** Steps one parameter in plain ops. */
function plainStep(
  group: ParamGroup<Group>,
  p: Tensor,
  gradient: Tensor,
  first: Tensor,
  second: Tensor,
  largest: Tensor | null,
  correction1: number,
  correction2: number,
): void {
  const [beta1, beta2] = group.betas;
  let g = group.maximize ? gradient.neg() : gradient;
  if (group.weightDecay !== 0) {
    if (group.decoupledWeightDecay) p.mul_(1 - group.lr * group.weightDecay);
    else g = g.add(p, { alpha: group.weightDecay });
  }
  first.lerp_(g, 1 - beta1);
  second.mul_(beta2).addcmul_(g, g, { value: 1 - beta2 });
  if (largest !== null) largest.copy_(largest.maximum(second));
  const denominator = (largest ?? second).sqrt().div(Math.sqrt(correction2)).add(group.eps);
  p.addcdiv_(first, denominator, { value: -group.lr / correction1 });
}

interface AdamKeywords extends StepMode {
  maximize?: boolean;
  capturable?: boolean;
}

const adamArguments = (name: string, defaultDecay: number, decoupledWeightDecay: boolean) =>
  defineArguments(
    `${name}(params, /, lr, betas, eps, weightDecay, amsgrad, *, foreach, maximize, capturable, differentiable, fused)`,
    (
      params: Params<Group>,
      lr = 1e-3,
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
        params,
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
 */
export class AdamW extends AdamBase {
  constructor(...args: ArgumentsOf<typeof decoupledArguments>) {
    const { params, defaults } = decoupledArguments(...args);
    super(params, defaults);
  }
}
