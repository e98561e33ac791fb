/** Adam and AdamW. */
import type { Tensor } from '../core/tensor.js';
import { adamStep } from '../ops/optimizer-steps.js';
import { checkRange, checkStepMode, type Hyperparameters, Optimizer, type ParamGroup, type ParamState, type Params, type StepMode, withGradients } from './optimizer.js';

/** Options of {@link Adam} and {@link AdamW}. */
export interface AdamOptions extends StepMode {
  lr?: number;
  betas?: readonly [number, number];
  eps?: number;
  weightDecay?: number;
  amsgrad?: boolean;
  maximize?: boolean;
  /** Accepted for PyTorch's sake: steps are replayable as they are. */
  capturable?: boolean;
}

type Group = Required<AdamOptions> & { decoupled: boolean } & Hyperparameters;

abstract class AdamBase extends Optimizer<Group> {
  protected override checkGroup(group: ParamGroup<Group>): void {
    const name = this.constructor.name;
    checkStepMode(name, group);
    checkRange(name, 'lr', group.lr, 0);
    checkRange(name, 'eps', group.eps, 0);
    checkRange(name, 'betas[0]', group.betas[0], 0, 1);
    checkRange(name, 'betas[1]', group.betas[1], 0, 1);
    checkRange(name, 'weightDecay', group.weightDecay, 0);
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
      state = { step: 0, expAvg: this.zerosFor(p), expAvgSq: this.zerosFor(p) };
      if (amsgrad) state['maxExpAvgSq'] = this.zerosFor(p);
      this.state.set(p, state);
    }
    return state;
  }

  private run(group: ParamGroup<Group>, params: readonly Tensor[], step: number): void {
    const [beta1, beta2] = group.betas;
    const biasCorrection1 = 1 - beta1 ** step;
    const biasCorrection2 = 1 - beta2 ** step;
    const of = (name: string): Tensor[] => params.map((p) => (this.state.get(p) as ParamState)[name] as Tensor);
    const grads = params.map((p) => p.gradTensor as Tensor);
    const largest = group.amsgrad ? of('maxExpAvgSq') : null;
    const { lr, eps, weightDecay } = group;
    if (group.foreach === false && !group.fused) {
      const [first, second] = [of('expAvg'), of('expAvgSq')];
      params.forEach((p, i) => {
        plainStep(group, p, grads[i] as Tensor, first[i] as Tensor, second[i] as Tensor, largest?.[i] ?? null, biasCorrection1, biasCorrection2);
      });
      return;
    }
    const flags = { decoupled: Number(group.decoupled), amsgrad: Number(group.amsgrad), maximize: Number(group.maximize) };
    adamStep(params, grads, of('expAvg'), of('expAvgSq'), largest, { lr, beta1, beta2, eps, weightDecay, ...flags, biasCorrection1, biasCorrection2, gradScale: 1 });
  }
}

function plainStep(group: ParamGroup<Group>, p: Tensor, gradient: Tensor, first: Tensor, second: Tensor, largest: Tensor | null, correction1: number, correction2: number): void {
  const [beta1, beta2] = group.betas;
  let g = group.maximize ? gradient.neg() : gradient;
  if (group.weightDecay !== 0) {
    if (group.decoupled) p.mul_(1 - group.lr * group.weightDecay);
    else g = g.add(p, { alpha: group.weightDecay });
  }
  first.lerp_(g, 1 - beta1);
  second.mul_(beta2).addcmul_(g, g, { value: 1 - beta2 });
  if (largest !== null) largest.copy_(largest.maximum(second));
  const denominator = (largest ?? second).sqrt().div(Math.sqrt(correction2)).add(group.eps);
  p.addcdiv_(first, denominator, { value: -group.lr / correction1 });
}

function defaults(options: AdamOptions, decoupled: boolean): Group {
  return {
    lr: 1e-3,
    betas: [0.9, 0.999],
    eps: 1e-8,
    weightDecay: decoupled ? 1e-2 : 0,
    amsgrad: false,
    maximize: false,
    foreach: null,
    fused: null,
    capturable: false,
    differentiable: false,
    ...options,
    decoupled,
  } as Group;
}

/**
 * Adam: steps by running means of gradients and their squares.
 *
 * @see Kingma and Ba, arXiv:1412.6980; PyTorch `torch.optim.Adam`
 */
export class Adam extends AdamBase {
  constructor(params: Params<Group>, options: AdamOptions = {}) {
    super(params, defaults(options, false));
  }
}

/**
 * Adam with weight decay that does not pass through the running means.
 *
 * @see Loshchilov and Hutter, arXiv:1711.05101; PyTorch `torch.optim.AdamW`
 */
export class AdamW extends AdamBase {
  constructor(params: Params<Group>, options: AdamOptions = {}) {
    super(params, defaults(options, true));
  }
}
