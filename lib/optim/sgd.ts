/** Stochastic gradient descent with momentum. */

import { ArgumentError } from '../core/errors.js';
import { checkFlag, checkNumber, withDefaults } from '../core/options.js';
import { gradOf } from '../core/set-grad.js';
import { type ArgumentsOf, defineArguments } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { sgdStep } from '../ops/optimizer-steps.js';
import {
  checkRate,
  checkStepMode,
  type Hyperparameters,
  isPlainLoop,
  Optimizer,
  type ParamGroup,
  type Params,
  type StepMode,
  withGradients,
} from './optimizer.js';
import type { StateNames } from './optimizer-state.js';

/** Options of {@link SGD}. */
export interface SGDOptions extends StepMode {
  /** The learning rate. */
  lr?: number;
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
}

type Group = Required<SGDOptions> & Hyperparameters;

interface SGDKeywords extends StepMode {
  maximize?: boolean;
}

const sgdArguments = defineArguments(
  'SGD(params, /, lr, momentum, dampening, weightDecay, nesterov, *, maximize, foreach, differentiable, fused)',
  (
    params: Params<Group>,
    lr = 1e-3,
    momentum = 0,
    dampening = 0,
    weightDecay = 0,
    nesterov = false,
    keywords: SGDKeywords = {},
  ) => ({
    params,
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
      },
      keywords,
    ),
  }),
);

const stateNames: StateNames = { step: false, required: [], optional: ['momentum_buffer'] };

/**
 * p -= lr * g, with momentum, Nesterov momentum and weight decay.
 *
 * @see PyTorch `torch.optim.SGD`
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
    for (const flag of ['nesterov', 'maximize'] as const) checkFlag('SGD', flag, group[flag]);
    if (group.nesterov && (group.momentum <= 0 || group.dampening !== 0))
      throw new ArgumentError('SGD: nesterov needs a momentum above 0 and a dampening of 0');
  }

  protected override get stateNames(): StateNames {
    return stateNames;
  }

  protected stepGroup(group: ParamGroup<Group>): void {
    for (const params of withGradients(group.params)) {
      const isStarted = (p: Tensor): boolean =>
        this.state.get(p)?.['momentum_buffer'] !== undefined;
      const started = params.filter(isStarted);
      const fresh = params.filter((p) => !isStarted(p));
      if (group.momentum === 0) this.run(group, params, null, false);
      else {
        if (started.length) this.run(group, started, this.buffers(started), false);
        if (fresh.length) this.run(group, fresh, this.buffers(fresh), true);
      }
    }
  }

  private buffers(params: readonly Tensor[]): Tensor[] {
    return params.map((p) => {
      let state = this.state.get(p);
      if (state === undefined) {
        state = {};
        this.state.set(p, state);
      }
      state['momentum_buffer'] ??= this.zerosFor(p);
      return state['momentum_buffer'] as Tensor;
    });
  }

  private run(
    group: ParamGroup<Group>,
    params: readonly Tensor[],
    buffers: readonly Tensor[] | null,
    first: boolean,
  ): void {
    const grads = params.map((p) => gradOf(p) as Tensor);
    if (isPlainLoop(group)) {
      params.forEach((p, i) => {
        plainStep(group, p, grads[i] as Tensor, buffers?.[i] ?? null, first);
      });
      return;
    }
    const { lr, momentum, dampening, weightDecay } = group;
    sgdStep(params, grads, buffers, {
      lr,
      momentum,
      dampening,
      weightDecay,
      nesterov: Number(group.nesterov),
      maximize: Number(group.maximize),
      firstStep: Number(first),
    });
  }
}

/** Steps one parameter in plain ops. */
function plainStep(
  group: ParamGroup<Group>,
  p: Tensor,
  gradient: Tensor,
  buffer: Tensor | null,
  first: boolean,
): void {
  let g = group.maximize ? gradient.neg() : gradient;
  if (group.weightDecay !== 0) g = g.add(p, { alpha: group.weightDecay });
  if (buffer !== null) {
    if (first) buffer.copy_(g);
    else buffer.mul_(group.momentum).add_(g, { alpha: 1 - group.dampening });
    g = group.nesterov ? g.add(buffer, { alpha: group.momentum }) : buffer;
  }
  p.add_(g, { alpha: -group.lr });
}
