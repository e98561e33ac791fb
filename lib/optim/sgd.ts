/** Stochastic gradient descent with momentum. */

import { ArgumentError } from '../core/errors.js';
import { checkFlag, checkNumber, withDefaults } from '../core/options.js';
import { gradOf } from '../core/set-grad.js';
import { type ArgumentsOf, defineArguments } from '../core/signature.js';
import { Tensor } from '../core/tensor.js';
import { valueOn } from '../ops/beside.js';
import { type CapturableSgdStep, sgdStepCapturable } from '../ops/capturable-steps.js';
import { sgdStep } from '../ops/optimizer-steps.js';
import { where } from '../ops/where.js';
import {
  checkRate,
  convertStep,
  countStep,
  countsByTensors,
  hasStep,
  numberOf,
  rateBeside,
  rateOn,
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

/** Options of {@link SGD}. */
export interface SGDOptions extends StepMode {
  /** The learning rate. A tensor of one element needs `capturable` or `fused`. */
  lr?: number | Tensor;
  /** The factor of the previous update. */
  momentum?: number;
  /** The share of the gradient that momentum leaves out. */
  dampening?: number;
  /** The factor of weight decay. */
  weightDecay?: number;
  /** Uses Nesterov momentum. */
  nesterov?: boolean;
  /** Maximise the objective instead of minimising it. */
  maximize?: boolean;
  /**
   * Counts steps in tensors where there is momentum, so that a compiled function can contain the
   * step. PyTorch's SGD has no such option: its first step makes the momentum.
   */
  capturable?: boolean;
}

type Settings = Required<SGDOptions> & Hyperparameters;
/** Rates are typed as numbers, as programs change them; one that is given as a tensor stays one. */
type Group = Settings & { lr: number };

interface SGDKeywords extends StepMode {
  maximize?: boolean;
  capturable?: boolean;
}

const sgdArguments = defineArguments(
  'SGD(params, /, lr, momentum, dampening, weightDecay, nesterov, *, maximize, foreach, differentiable, fused, capturable)',
  (
    params: Params<Settings>,
    lr: number | Tensor = 1e-3,
    momentum = 0,
    dampening = 0,
    weightDecay = 0,
    nesterov = false,
    keywords: SGDKeywords = {},
  ) => ({
    params: params as Params<Group>,
    defaults: withDefaults<Required<SGDOptions>>(
      'SGD',
      {
        lr,
        momentum,
        dampening,
        weightDecay,
        nesterov,
        maximize: false,
        foreach: null,
        fused: null,
        differentiable: false,
        capturable: false,
      },
      keywords,
    ),
  }),
);

const stateNames: StateNames = { step: 'optional', required: [], optional: ['momentum_buffer'] };

/**
 * p -= lr * g, with momentum, Nesterov momentum and weight decay.
 *
 * @see PyTorch `torch.optim.SGD`
 * @example
 * const w = tensor([1, 2], { requiresGrad: true });
 * const optimizer = new optim.SGD([w], { lr: 0.5 });
 * w.sum().backward();
 * optimizer.step();
 * w; // [0.5, 1.5]
 */
export class SGD extends Optimizer<Group> {
  constructor(...args: ArgumentsOf<typeof sgdArguments>) {
    const { params, defaults } = sgdArguments(...args);
    super(params, defaults as Group);
  }

  protected override checkGroup(group: ParamGroup<Group>): void {
    checkStepMode('SGD', group);
    checkRate('SGD', group);
    checkNumber('SGD', 'momentum', group.momentum, { from: 0 });
    checkNumber('SGD', 'dampening', group.dampening);
    checkNumber('SGD', 'weightDecay', group.weightDecay, { from: 0 });
    for (const flag of ['nesterov', 'maximize', 'capturable'] as const)
      checkFlag('SGD', flag, group[flag]);
    if (group.nesterov && (group.momentum <= 0 || group.dampening !== 0))
      throw new ArgumentError('SGD: nesterov needs a momentum above 0 and a dampening of 0');
  }

  protected override get stateNames(): StateNames {
    return stateNames;
  }

  protected override get readsFoundInf(): boolean {
    return this.stepGroup === SGD.prototype.stepGroup;
  }

  protected stepGroup(group: ParamGroup<Group>): void {
    for (const params of withGradients(group.params)) {
      if (countsByTensors(group, this.isScaled)) this.runByTensors(group, params);
      else if (group.momentum === 0) this.run(group, params, null, false);
      else {
        const started = params.filter((p) => this.isStarted(p));
        const fresh = params.filter((p) => !this.isStarted(p));
        if (started.length) this.run(group, started, this.buffers(started), false);
        if (fresh.length) this.run(group, fresh, this.buffers(fresh), true);
      }
    }
  }

  /** Whether the parameter has momentum. A count of 0 was made by a step that never ran. */
  private isStarted(p: Tensor): boolean {
    const state = this.state.get(p);
    if (state?.['momentum_buffer'] === undefined) return false;
    const { step } = state;
    return step === undefined || numberOf(step) !== 0;
  }

  private buffers(params: readonly Tensor[]): Tensor[] {
    return params.map((p) => {
      let state = this.state.get(p);
      if (state === undefined) {
        state = {};
        this.state.set(p, state);
      }
      state['momentum_buffer'] ??= this.zerosFor(p);
      delete state['step'];
      return state['momentum_buffer'] as Tensor;
    });
  }

  protected override prepareState(p: Tensor, group: ParamGroup<Group>): void {
    if (group.momentum !== 0) this.countedState(p, group);
  }

  private countedState(p: Tensor, group: ParamGroup<Group>): ParamState {
    const state = this.state.get(p);
    const byTensors = countsByTensors(group, this.isScaled);
    if (state?.['momentum_buffer'] !== undefined && hasStep(p, state['step'], byTensors))
      return state;
    return this.creating(() => {
      const made: ParamState = {
        ...state,
        momentum_buffer: state?.['momentum_buffer'] ?? this.zerosFor(p),
        step: state?.['step'] ?? Number(this.isStarted(p)),
      };
      convertStep(p, made, byTensors);
      this.state.set(p, made);
      return made;
    });
  }

  private run(
    group: ParamGroup<Group>,
    params: readonly Tensor[],
    buffers: readonly Tensor[] | null,
    first: boolean,
  ): void {
    const grads = params.map((p) => gradOf(p) as Tensor);
    const { lr } = group;
    if (isPlainLoop(group)) {
      params.forEach((p, i) => {
        plainStep(group, p, grads[i] as Tensor, buffers?.[i] ?? null, first, lr);
      });
      return;
    }
    sgdStep(params, grads, buffers, { ...numbersOf(group), lr, firstStep: Number(first) });
  }

  private runByTensors(group: ParamGroup<Group>, params: readonly Tensor[]): void {
    const grads = params.map((p) => gradOf(p) as Tensor);
    const states = group.momentum === 0 ? null : params.map((p) => this.countedState(p, group));
    const buffers = states?.map((state) => state['momentum_buffer'] as Tensor) ?? null;
    const steps = states?.map((state) => state['step'] as Tensor) ?? null;
    const foundInf = this.foundInf && valueOn(this.foundInf, params[0] as Tensor);
    if (steps !== null) countStep(steps, foundInf);
    if (!isPlainLoop(group)) {
      const momentum = buffers === null || steps === null ? null : { buffers, steps };
      const lr = rateOn(group.lr, params[0] as Tensor);
      sgdStepCapturable({ params, grads, momentum }, { lr, foundInf }, numbersOf(group));
      return;
    }
    params.forEach((p, i) => {
      const first = steps === null ? false : (steps[i] as Tensor).eq(1);
      const lr = rateBeside(group.lr, p);
      const buffer = buffers?.[i] ?? null;
      stepUnless(foundInf, [p, buffer], () => {
        plainStep(group, p, grads[i] as Tensor, buffer, first, lr);
      });
    });
  }
}

/** The numbers of a step that no count changes. */
function numbersOf(group: Group): CapturableSgdStep {
  const { momentum, dampening, weightDecay } = group;
  return {
    momentum,
    dampening,
    weightDecay,
    nesterov: Number(group.nesterov),
    maximize: Number(group.maximize),
  };
}

/** Steps one parameter in plain ops. `first`: whether its momentum begins, perhaps as a tensor. */
function plainStep(
  group: ParamGroup<Group>,
  p: Tensor,
  gradient: Tensor,
  buffer: Tensor | null,
  first: boolean | Tensor,
  lr: Tensor | number,
): void {
  let g = group.maximize ? gradient.neg() : gradient;
  if (group.weightDecay !== 0) g = g.add(p, { alpha: group.weightDecay });
  if (buffer !== null) {
    const alpha = 1 - group.dampening;
    if (first instanceof Tensor)
      buffer.copy_(where(first, g, buffer.mul(group.momentum).add(g, { alpha })));
    else if (first) buffer.copy_(g);
    else buffer.mul_(group.momentum).add_(g, { alpha });
    g = group.nesterov ? g.add(buffer, { alpha: group.momentum }) : buffer;
  }
  if (typeof lr === 'number') p.add_(g, { alpha: -lr });
  else p.addcmul_(g, lr, { value: -1 });
}
