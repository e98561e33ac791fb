/** Learning rate schedules. Each sets the rates of its optimizer's groups at every `step`. */
import { ArgumentError } from '../core/errors.js';
import { checkNumber, optionsOf, unexpected } from '../core/options.js';
import { Optimizer } from './optimizer.js';
import { type SchedulerState, stateOf, takeUp } from './scheduler-state.js';

type RateGroup = { lr: number; initialLr?: number };

const groupsOf = (optimizer: Optimizer): RateGroup[] => optimizer.paramGroups as unknown as RateGroup[];

/** What every schedule takes. */
export interface ScheduleOptions {
  /**
   * The last step of a run that is gone on from; -1, the default, starts anew. The optimizer must have been given its state before, which holds
   * the initial rates.
   */
  lastEpoch?: number;
}

/** Base of schedules. @see PyTorch `torch.optim.lr_scheduler.LRScheduler` */
export abstract class LRScheduler {
  readonly optimizer: Optimizer;
  /** Steps taken; the first rates are those of step 0. */
  lastEpoch: number;
  protected readonly baseLrs: number[];
  private lastLrs: number[] = [];

  /** @throws ArgumentError if `lastEpoch` says that a run goes on, but the optimizer does not know its initial rates */
  constructor(optimizer: Optimizer, lastEpoch = -1) {
    if (!(optimizer instanceof Optimizer)) throw unexpected(this.constructor.name, 'optimizer', 'an optimizer', optimizer);
    checkNumber(this.constructor.name, 'lastEpoch', lastEpoch, { from: -1, whole: true });
    this.optimizer = optimizer;
    this.lastEpoch = lastEpoch;
    groupsOf(optimizer).forEach((group, i) => {
      if (lastEpoch === -1) group.initialLr ??= group.lr;
      else if (group.initialLr === undefined)
        throw new ArgumentError(`${this.constructor.name}: group ${i} has no initialLr to go on from step ${lastEpoch}; load the optimizer's state first`, { group: i, lastEpoch });
    });
    this.baseLrs = groupsOf(optimizer).map(({ initialLr }, i) => {
      checkNumber(this.constructor.name, `initialLr of group ${i}`, initialLr);
      return initialLr;
    });
  }

  /** Moves on by one step and sets the rates. */
  step(): void {
    this.advance(false);
  }

  /** The rates set last, one for each group. */
  getLastLr(): number[] {
    return [...this.lastLrs];
  }

  /** Position and settings, to go on later; functions are left out. */
  stateDict(): SchedulerState {
    return stateOf(this);
  }

  /** Takes up a position and settings. @throws ArgumentError for what is not the state of such a schedule */
  loadStateDict(state: SchedulerState): void {
    takeUp(this, state);
  }

  /** The rates of the present step; `initial` for the first of a run that starts or goes on. */
  protected abstract rates(initial: boolean): number[];

  protected current(): number[] {
    return groupsOf(this.optimizer).map((g) => g.lr);
  }

  /** Sets the initial rates, for a schedule that begins elsewhere than the optimizer. */
  protected startFrom(rates: readonly number[]): void {
    groupsOf(this.optimizer).forEach((group, i) => {
      group.initialLr = rates[i] as number;
    });
    this.baseLrs.splice(0, this.baseLrs.length, ...rates);
  }

  /** First rates; called by each constructor once its settings are there. @internal */
  begin(): void {
    this.advance(true);
  }

  /** Takes back the step that the constructor took, so that another schedule can decide when it begins. @internal */
  undo(): void {
    this.lastEpoch--;
  }

  /** Goes back to before step 0. @internal */
  restart(): void {
    this.lastEpoch = -1;
  }

  private advance(initial: boolean): void {
    this.lastEpoch++;
    const rates = this.rates(initial);
    rates.forEach((rate, i) => {
      if (!Number.isFinite(rate))
        throw new ArgumentError(`${this.constructor.name}: the rate of group ${i} at step ${this.lastEpoch} is ${rate}`, { group: i, step: this.lastEpoch, rate });
    });
    const groups = groupsOf(this.optimizer);
    // Groups that the optimizer got after the schedule was made may have no rate; they keep theirs.
    rates.slice(0, groups.length).forEach((rate, i) => {
      (groups[i] as RateGroup).lr = rate;
    });
    this.lastLrs = this.current();
  }
}

/** One factor for all groups, or one for each. */
export type LrLambda = ((epoch: number) => number) | readonly ((epoch: number) => number)[];

function lambdasOf(optimizer: Optimizer, lrLambda: LrLambda): ((epoch: number) => number)[] {
  const groups = groupsOf(optimizer).length;
  if (typeof lrLambda !== 'function' && !Array.isArray(lrLambda)) throw unexpected('lrLambda', 'it', 'a function, or one for each group', lrLambda);
  const list = typeof lrLambda === 'function' ? Array.from({ length: groups }, () => lrLambda) : [...lrLambda];
  if (list.length !== groups) throw new ArgumentError(`lrLambda: expected ${groups} functions, one for each group, got ${list.length}`);
  for (const each of list) if (typeof each !== 'function') throw unexpected('lrLambda', 'each', 'a function', each);
  return list;
}

/** The initial rate times a function of the step. */
export class LambdaLR extends LRScheduler {
  private readonly lambdas: ((epoch: number) => number)[];

  constructor(optimizer: Optimizer, options: { lrLambda: LrLambda } & ScheduleOptions) {
    const { lrLambda, lastEpoch } = optionsOf('LambdaLR', options, 'lrLambda lastEpoch');
    super(optimizer, lastEpoch);
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

  constructor(optimizer: Optimizer, options: { lrLambda: LrLambda } & ScheduleOptions) {
    const { lrLambda, lastEpoch } = optionsOf('MultiplicativeLR', options, 'lrLambda lastEpoch');
    super(optimizer, lastEpoch);
    this.lambdas = lambdasOf(optimizer, lrLambda);
    this.begin();
  }

  protected rates(initial: boolean): number[] {
    return this.current().map((lr, i) => (!initial && this.lastEpoch > 0 ? lr * (this.lambdas[i] as (epoch: number) => number)(this.lastEpoch) : lr));
  }
}

/** A factor every `stepSize` steps. */
export class StepLR extends LRScheduler {
  readonly stepSize: number;
  readonly gamma: number;

  constructor(optimizer: Optimizer, options: { stepSize: number; gamma?: number } & ScheduleOptions) {
    const { stepSize, gamma = 0.1, lastEpoch } = optionsOf('StepLR', options, 'stepSize gamma lastEpoch');
    super(optimizer, lastEpoch);
    checkNumber('StepLR', 'stepSize', stepSize, { from: 1, whole: true });
    checkNumber('StepLR', 'gamma', gamma);
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

  constructor(optimizer: Optimizer, options: { milestones: readonly number[]; gamma?: number } & ScheduleOptions) {
    const { milestones, gamma = 0.1, lastEpoch } = optionsOf('MultiStepLR', options, 'milestones gamma lastEpoch');
    super(optimizer, lastEpoch);
    if (!Array.isArray(milestones)) throw unexpected('MultiStepLR', 'milestones', 'a list of steps', milestones);
    for (const each of milestones) checkNumber('MultiStepLR', 'each milestone', each, { from: 0, whole: true });
    checkNumber('MultiStepLR', 'gamma', gamma);
    this.milestones = [...milestones];
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

  constructor(optimizer: Optimizer, options: { factor?: number; totalIters?: number } & ScheduleOptions = {}) {
    const { factor = 1 / 3, totalIters = 5, lastEpoch } = optionsOf('ConstantLR', options, 'factor totalIters lastEpoch');
    super(optimizer, lastEpoch);
    checkNumber('ConstantLR', 'factor', factor, { from: 0, to: 1 });
    checkNumber('ConstantLR', 'totalIters', totalIters, { from: 0, whole: true });
    this.factor = factor;
    this.totalIters = totalIters;
    this.begin();
  }

  protected rates(): number[] {
    if (this.lastEpoch === 0) return this.current().map((lr) => lr * this.factor);
    if (this.lastEpoch !== this.totalIters) return this.current();
    // A rate of 0 says nothing about the one before.
    return this.factor === 0 ? [...this.baseLrs] : this.current().map((lr) => lr / this.factor);
  }
}

/** Options of {@link LinearLR}. */
export interface LinearOptions extends ScheduleOptions {
  startFactor?: number;
  endFactor?: number;
  totalIters?: number;
}

/** A factor that goes linearly from one to another. */
export class LinearLR extends LRScheduler {
  readonly startFactor: number;
  readonly endFactor: number;
  readonly totalIters: number;

  constructor(optimizer: Optimizer, options: LinearOptions = {}) {
    const { startFactor = 1 / 3, endFactor = 1, totalIters = 5, lastEpoch } = optionsOf('LinearLR', options, 'startFactor endFactor totalIters lastEpoch');
    super(optimizer, lastEpoch);
    checkNumber('LinearLR', 'startFactor', startFactor, { above: 0, to: 1 });
    checkNumber('LinearLR', 'endFactor', endFactor, { from: 0, to: 1 });
    checkNumber('LinearLR', 'totalIters', totalIters, { from: 0, whole: true });
    this.startFactor = startFactor;
    this.endFactor = endFactor;
    this.totalIters = totalIters;
    this.begin();
  }

  protected rates(initial: boolean): number[] {
    const { startFactor: from, endFactor: to, totalIters: total, lastEpoch: at } = this;
    if (at === 0) return this.current().map((lr) => lr * from);
    if (initial || at > total) return this.current();
    return this.current().map((lr) => lr * (1 + (to - from) / (total * from + (at - 1) * (to - from))));
  }
}

/** A factor at every step. */
export class ExponentialLR extends LRScheduler {
  readonly gamma: number;

  constructor(optimizer: Optimizer, options: { gamma: number } & ScheduleOptions) {
    const { gamma, lastEpoch } = optionsOf('ExponentialLR', options, 'gamma lastEpoch');
    super(optimizer, lastEpoch);
    checkNumber('ExponentialLR', 'gamma', gamma);
    this.gamma = gamma;
    this.begin();
  }

  protected rates(initial: boolean): number[] {
    return this.current().map((lr) => (initial || this.lastEpoch === 0 ? lr : lr * this.gamma));
  }
}

/** A polynomial down to zero over `totalIters` steps. */
export class PolynomialLR extends LRScheduler {
  readonly totalIters: number;
  readonly power: number;

  constructor(optimizer: Optimizer, options: { totalIters?: number; power?: number } & ScheduleOptions = {}) {
    const { totalIters = 5, power = 1, lastEpoch } = optionsOf('PolynomialLR', options, 'totalIters power lastEpoch');
    super(optimizer, lastEpoch);
    checkNumber('PolynomialLR', 'totalIters', totalIters, { from: 0, whole: true });
    checkNumber('PolynomialLR', 'power', power, { from: 0 });
    this.totalIters = totalIters;
    this.power = power;
    this.begin();
  }

  protected rates(initial: boolean): number[] {
    if (initial || this.lastEpoch === 0 || this.lastEpoch > this.totalIters) return this.current();
    const factor = ((1 - this.lastEpoch / this.totalIters) / (1 - (this.lastEpoch - 1) / this.totalIters)) ** this.power;
    return this.current().map((lr) => lr * factor);
  }
}

/** Half a cosine from the initial rate to `etaMin`. @see Loshchilov and Hutter, arXiv:1608.03983 */
export class CosineAnnealingLR extends LRScheduler {
  readonly TMax: number;
  readonly etaMin: number;

  constructor(optimizer: Optimizer, options: { TMax: number; etaMin?: number } & ScheduleOptions) {
    const { TMax, etaMin = 0, lastEpoch } = optionsOf('CosineAnnealingLR', options, 'TMax etaMin lastEpoch');
    super(optimizer, lastEpoch);
    checkNumber('CosineAnnealingLR', 'TMax', TMax, { from: 1, whole: true });
    checkNumber('CosineAnnealingLR', 'etaMin', etaMin);
    this.TMax = TMax;
    this.etaMin = etaMin;
    this.begin();
  }

  protected rates(initial: boolean): number[] {
    const { TMax, etaMin, lastEpoch: at } = this;
    if (initial || at === 0) return this.current();
    if ((at - 1 - TMax) % (2 * TMax) === 0) {
      const lrs = this.current();
      return this.baseLrs.map((base, i) => (lrs[i] as number) + ((base - etaMin) * (1 - Math.cos(Math.PI / TMax))) / 2);
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

  constructor(optimizer: Optimizer, options: { T0: number; TMult?: number; etaMin?: number } & ScheduleOptions) {
    const { T0, TMult = 1, etaMin = 0, lastEpoch } = optionsOf('CosineAnnealingWarmRestarts', options, 'T0 TMult etaMin lastEpoch');
    super(optimizer, lastEpoch);
    checkNumber('CosineAnnealingWarmRestarts', 'T0', T0, { from: 1, whole: true });
    checkNumber('CosineAnnealingWarmRestarts', 'TMult', TMult, { from: 1, whole: true });
    checkNumber('CosineAnnealingWarmRestarts', 'etaMin', etaMin);
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
