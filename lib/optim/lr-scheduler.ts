/** Learning rate schedules. Each sets the rates of its optimizer's groups at every `step`. */
import { ArgumentError } from '../core/errors.js';
import type { Optimizer } from './optimizer.js';
import { type SchedulerState, stateOf } from './scheduler-state.js';

type RateGroup = { lr: number; initialLr?: number };

const groupsOf = (optimizer: Optimizer): RateGroup[] => optimizer.paramGroups as unknown as RateGroup[];

/** Base of schedules. @see PyTorch `torch.optim.lr_scheduler.LRScheduler` */
export abstract class LRScheduler {
  readonly optimizer: Optimizer;
  /** Steps taken; the first rates are those of step 0. */
  lastEpoch: number;
  protected readonly baseLrs: number[];
  private lastLrs: number[] = [];

  constructor(optimizer: Optimizer, lastEpoch = -1) {
    this.optimizer = optimizer;
    this.lastEpoch = lastEpoch;
    for (const group of groupsOf(optimizer)) group.initialLr ??= group.lr;
    this.baseLrs = groupsOf(optimizer).map((g) => g.initialLr as number);
  }

  /** Moves on by one step and sets the rates. */
  step(): void {
    this.lastEpoch++;
    this.apply(this.rates());
  }

  /** The rates set last, one for each group. */
  getLastLr(): number[] {
    return [...this.lastLrs];
  }

  /** Position and settings, to go on later; functions are left out. */
  stateDict(): SchedulerState {
    return stateOf(this);
  }

  /** Takes up a position and settings. */
  loadStateDict(state: SchedulerState): void {
    Object.assign(this, state);
  }

  /** The rates of the present step. */
  protected abstract rates(): number[];

  protected current(): number[] {
    return groupsOf(this.optimizer).map((g) => g.lr);
  }

  protected apply(rates: readonly number[]): void {
    groupsOf(this.optimizer).forEach((group, i) => {
      group.lr = rates[i] as number;
    });
    this.lastLrs = [...rates];
  }

  /** First rates; called by each constructor once its settings are there. */
  protected begin(): void {
    this.step();
  }
}

/** One factor for all groups, or one for each. */
export type LrLambda = ((epoch: number) => number) | readonly ((epoch: number) => number)[];

function lambdasOf(optimizer: Optimizer, lrLambda: LrLambda): ((epoch: number) => number)[] {
  const groups = groupsOf(optimizer).length;
  const list = typeof lrLambda === 'function' ? Array.from({ length: groups }, () => lrLambda) : [...lrLambda];
  if (list.length !== groups) throw new ArgumentError(`lrLambda: expected ${groups} functions, one for each group, got ${list.length}`);
  return list;
}

/** The initial rate times a function of the step. */
export class LambdaLR extends LRScheduler {
  private readonly lambdas: ((epoch: number) => number)[];

  constructor(optimizer: Optimizer, { lrLambda }: { lrLambda: LrLambda }) {
    super(optimizer);
    this.lambdas = lambdasOf(optimizer, lrLambda);
    this.begin();
  }

  protected rates(): number[] {
    return this.baseLrs.map((lr, i) => lr * (this.lambdas[i] as (epoch: number) => number)(this.lastEpoch));
  }
}

/** The present rate times a function of the step. */
export class MultiplicativeLR extends LRScheduler {
  private readonly lambdas: ((epoch: number) => number)[];

  constructor(optimizer: Optimizer, { lrLambda }: { lrLambda: LrLambda }) {
    super(optimizer);
    this.lambdas = lambdasOf(optimizer, lrLambda);
    this.begin();
  }

  protected rates(): number[] {
    return this.current().map((lr, i) => (this.lastEpoch > 0 ? lr * (this.lambdas[i] as (epoch: number) => number)(this.lastEpoch) : lr));
  }
}

/** A factor every `stepSize` steps. */
export class StepLR extends LRScheduler {
  readonly stepSize: number;
  readonly gamma: number;

  constructor(optimizer: Optimizer, { stepSize, gamma = 0.1 }: { stepSize: number; gamma?: number }) {
    super(optimizer);
    this.stepSize = stepSize;
    this.gamma = gamma;
    this.begin();
  }

  protected rates(): number[] {
    const due = this.lastEpoch > 0 && this.lastEpoch % this.stepSize === 0;
    return this.current().map((lr) => (due ? lr * this.gamma : lr));
  }
}

/** A factor at each milestone. */
export class MultiStepLR extends LRScheduler {
  readonly milestones: readonly number[];
  readonly gamma: number;

  constructor(optimizer: Optimizer, { milestones, gamma = 0.1 }: { milestones: readonly number[]; gamma?: number }) {
    super(optimizer);
    this.milestones = milestones;
    this.gamma = gamma;
    this.begin();
  }

  protected rates(): number[] {
    const times = this.milestones.filter((m) => m === this.lastEpoch).length;
    return this.current().map((lr) => lr * this.gamma ** times);
  }
}

/** A constant factor for the first `totalIters` steps. */
export class ConstantLR extends LRScheduler {
  readonly factor: number;
  readonly totalIters: number;

  constructor(optimizer: Optimizer, { factor = 1 / 3, totalIters = 5 }: { factor?: number; totalIters?: number } = {}) {
    super(optimizer);
    this.factor = factor;
    this.totalIters = totalIters;
    this.begin();
  }

  protected rates(): number[] {
    if (this.lastEpoch === 0) return this.current().map((lr) => lr * this.factor);
    return this.current().map((lr) => (this.lastEpoch === this.totalIters ? lr / this.factor : lr));
  }
}

/** A factor that goes linearly from one to another. */
export class LinearLR extends LRScheduler {
  readonly startFactor: number;
  readonly endFactor: number;
  readonly totalIters: number;

  constructor(optimizer: Optimizer, { startFactor = 1 / 3, endFactor = 1, totalIters = 5 }: { startFactor?: number; endFactor?: number; totalIters?: number } = {}) {
    super(optimizer);
    this.startFactor = startFactor;
    this.endFactor = endFactor;
    this.totalIters = totalIters;
    this.begin();
  }

  protected rates(): number[] {
    const { startFactor: from, endFactor: to, totalIters: total, lastEpoch: at } = this;
    if (at === 0) return this.current().map((lr) => lr * from);
    if (at > total) return this.current();
    return this.current().map((lr) => lr * (1 + (to - from) / (total * from + (at - 1) * (to - from))));
  }
}

/** A factor at every step. */
export class ExponentialLR extends LRScheduler {
  readonly gamma: number;

  constructor(optimizer: Optimizer, { gamma }: { gamma: number }) {
    super(optimizer);
    this.gamma = gamma;
    this.begin();
  }

  protected rates(): number[] {
    return this.current().map((lr) => (this.lastEpoch === 0 ? lr : lr * this.gamma));
  }
}

/** A polynomial down to zero over `totalIters` steps. */
export class PolynomialLR extends LRScheduler {
  readonly totalIters: number;
  readonly power: number;

  constructor(optimizer: Optimizer, { totalIters = 5, power = 1 }: { totalIters?: number; power?: number } = {}) {
    super(optimizer);
    this.totalIters = totalIters;
    this.power = power;
    this.begin();
  }

  protected rates(): number[] {
    if (this.lastEpoch === 0 || this.lastEpoch > this.totalIters) return this.current();
    const factor = ((1 - this.lastEpoch / this.totalIters) / (1 - (this.lastEpoch - 1) / this.totalIters)) ** this.power;
    return this.current().map((lr) => lr * factor);
  }
}

/** Half a cosine from the initial rate to `etaMin`. @see Loshchilov and Hutter, arXiv:1608.03983 */
export class CosineAnnealingLR extends LRScheduler {
  readonly TMax: number;
  readonly etaMin: number;

  constructor(optimizer: Optimizer, { TMax, etaMin = 0 }: { TMax: number; etaMin?: number }) {
    super(optimizer);
    this.TMax = TMax;
    this.etaMin = etaMin;
    this.begin();
  }

  protected rates(): number[] {
    const { TMax, etaMin, lastEpoch: at } = this;
    if (at === 0) return this.current();
    if ((at - 1 - TMax) % (2 * TMax) === 0) {
      return this.current().map((lr, i) => lr + (((this.baseLrs[i] as number) - etaMin) * (1 - Math.cos(Math.PI / TMax))) / 2);
    }
    const factor = (1 + Math.cos((Math.PI * at) / TMax)) / (1 + Math.cos((Math.PI * (at - 1)) / TMax));
    return this.current().map((lr) => factor * (lr - etaMin) + etaMin);
  }
}

/** Cosines that start again, each `TMult` times as long. @see Loshchilov and Hutter, arXiv:1608.03983 */
export class CosineAnnealingWarmRestarts extends LRScheduler {
  readonly T0: number;
  readonly TMult: number;
  readonly etaMin: number;

  constructor(optimizer: Optimizer, { T0, TMult = 1, etaMin = 0 }: { T0: number; TMult?: number; etaMin?: number }) {
    super(optimizer);
    if (!Number.isInteger(T0) || T0 < 1 || !Number.isInteger(TMult) || TMult < 1)
      throw new ArgumentError(`CosineAnnealingWarmRestarts: T0 and TMult must be positive integers, got ${T0} and ${TMult}`);
    this.T0 = T0;
    this.TMult = TMult;
    this.etaMin = etaMin;
    this.begin();
  }

  protected rates(): number[] {
    let length = this.T0;
    let at = this.lastEpoch;
    while (at >= length) {
      at -= length;
      length *= this.TMult;
    }
    return this.baseLrs.map((lr) => this.etaMin + ((lr - this.etaMin) * (1 + Math.cos((Math.PI * at) / length))) / 2);
  }
}
