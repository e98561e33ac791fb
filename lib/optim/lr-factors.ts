/** Schedules that multiply the rates by factors. */
import { ArgumentError } from '../core/errors.js';
import { checkNumber, unexpected } from '../core/options.js';
import { type ArgumentsOf, defineArguments } from '../core/signature.js';
import { LRScheduler } from './lr-scheduler.js';
import type { Optimizer } from './optimizer.js';
import { groupsOf } from './scheduler-groups.js';
import type { SchedulerState } from './scheduler-state.js';

/** One factor for all groups, or one for each. */
export type LrLambda = ((epoch: number) => number) | readonly ((epoch: number) => number)[];

function lambdasOf(optimizer: Optimizer, lrLambda: LrLambda): ((epoch: number) => number)[] {
  const groups = groupsOf(optimizer).length;
  if (typeof lrLambda !== 'function' && !Array.isArray(lrLambda))
    throw unexpected('lrLambda', 'it', 'a function, or one for each group', lrLambda);
  const list =
    typeof lrLambda === 'function' ? Array.from({ length: groups }, () => lrLambda) : [...lrLambda];
  if (list.length !== groups)
    throw new ArgumentError(
      `lrLambda: expected ${groups} functions, one for each group, got ${list.length}`,
    );
  for (const each of list)
    if (typeof each !== 'function') throw unexpected('lrLambda', 'each', 'a function', each);
  return list;
}

const lambdaArguments = (name: string) =>
  defineArguments(
    `${name}(optimizer, /, lrLambda, lastEpoch)`,
    (optimizer: Optimizer, lrLambda: LrLambda, lastEpoch = -1) => ({
      optimizer,
      lrLambda,
      lastEpoch,
    }),
  );

abstract class FunctionLR extends LRScheduler {
  protected readonly lambdas: ((epoch: number) => number)[];

  constructor({
    optimizer,
    lrLambda,
    lastEpoch,
  }: { optimizer: Optimizer; lrLambda: LrLambda; lastEpoch: number }) {
    super(optimizer, lastEpoch);
    this.lambdas = lambdasOf(optimizer, lrLambda);
    this.begin();
  }

  /** As PyTorch's, which has null for each function. */
  override stateDict(): SchedulerState {
    return { ...super.stateDict(), lr_lambdas: this.lambdas.map(() => null) };
  }
}

const initialArguments = lambdaArguments('LambdaLR');

/** The initial rate times a function of the step. */
export class LambdaLR extends FunctionLR {
  constructor(...args: ArgumentsOf<typeof initialArguments>) {
    super(initialArguments(...args));
  }

  protected rates(): number[] {
    return this.baseLrs.map(
      (lr, i) => lr * (this.lambdas[i] as (epoch: number) => number)(this.lastEpoch),
    );
  }
}

const multiplicativeArguments = lambdaArguments('MultiplicativeLR');

/** The present rate times a function of the step. */
export class MultiplicativeLR extends FunctionLR {
  constructor(...args: ArgumentsOf<typeof multiplicativeArguments>) {
    super(multiplicativeArguments(...args));
  }

  protected rates(initial: boolean): number[] {
    return this.current().map((lr, i) =>
      !initial && this.lastEpoch > 0
        ? lr * (this.lambdas[i] as (epoch: number) => number)(this.lastEpoch)
        : lr,
    );
  }
}

const stepArguments = defineArguments(
  'StepLR(optimizer, /, stepSize, gamma, lastEpoch)',
  (optimizer: Optimizer, stepSize: number, gamma = 0.1, lastEpoch = -1) => ({
    optimizer,
    stepSize,
    gamma,
    lastEpoch,
  }),
);

/** A factor every `stepSize` steps. */
export class StepLR extends LRScheduler {
  /** The number of steps between changes. */
  readonly stepSize: number;
  /** The factor after each step size. */
  readonly gamma: number;

  constructor(...args: ArgumentsOf<typeof stepArguments>) {
    const { optimizer, stepSize, gamma, lastEpoch } = stepArguments(...args);
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

function eachCounted(counts: object): number[] {
  return Object.entries(counts).flatMap(([value, count]) =>
    Array<number>(Number(count)).fill(Number(value)),
  );
}

const multiStepArguments = defineArguments(
  'MultiStepLR(optimizer, /, milestones, gamma, lastEpoch)',
  (optimizer: Optimizer, milestones: readonly number[], gamma = 0.1, lastEpoch = -1) => ({
    optimizer,
    milestones,
    gamma,
    lastEpoch,
  }),
);

/** A factor at each milestone. */
export class MultiStepLR extends LRScheduler {
  /** The steps at which the learning rate changes. */
  readonly milestones: readonly number[];
  /** The factor at each milestone. */
  readonly gamma: number;

  constructor(...args: ArgumentsOf<typeof multiStepArguments>) {
    const { optimizer, milestones, gamma, lastEpoch } = multiStepArguments(...args);
    super(optimizer, lastEpoch);
    if (!Array.isArray(milestones))
      throw unexpected('MultiStepLR', 'milestones', 'a list of steps', milestones);
    for (const each of milestones)
      checkNumber('MultiStepLR', 'each milestone', each, { from: 0, whole: true });
    checkNumber('MultiStepLR', 'gamma', gamma);
    this.milestones = [...milestones];
    this.gamma = gamma;
    this.begin();
  }

  protected rates(): number[] {
    const times = this.milestones.filter((m) => m === this.lastEpoch).length;
    return this.current().map((lr) => lr * this.gamma ** times);
  }

  /** PyTorch counts the milestones: `{ 30: 1, 80: 2 }`. */
  override stateDict(): SchedulerState {
    const counts: Record<number, number> = {};
    for (const each of this.milestones) counts[each] = (counts[each] ?? 0) + 1;
    return { ...super.stateDict(), milestones: counts };
  }

  override loadStateDict(state: SchedulerState): void {
    const milestones = state?.['milestones'];
    const isCounted =
      typeof milestones === 'object' && milestones !== null && !Array.isArray(milestones);
    super.loadStateDict(isCounted ? { ...state, milestones: eachCounted(milestones) } : state);
  }
}

const constantArguments = defineArguments(
  'ConstantLR(optimizer, /, factor, totalIters, lastEpoch)',
  (optimizer: Optimizer, factor = 1 / 3, totalIters = 5, lastEpoch = -1) => ({
    optimizer,
    factor,
    totalIters,
    lastEpoch,
  }),
);

/** A constant factor for the first `totalIters` steps. */
export class ConstantLR extends LRScheduler {
  /** The factor until `totalIters`. */
  readonly factor: number;
  /** The number of steps until the last change. */
  readonly totalIters: number;

  constructor(...args: ArgumentsOf<typeof constantArguments>) {
    const { optimizer, factor, totalIters, lastEpoch } = constantArguments(...args);
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

const linearArguments = defineArguments(
  'LinearLR(optimizer, /, startFactor, endFactor, totalIters, lastEpoch)',
  (optimizer: Optimizer, startFactor = 1 / 3, endFactor = 1, totalIters = 5, lastEpoch = -1) => ({
    optimizer,
    startFactor,
    endFactor,
    totalIters,
    lastEpoch,
  }),
);

/** A factor that goes linearly from one to another. */
export class LinearLR extends LRScheduler {
  /** The factor of the first step. */
  readonly startFactor: number;
  /** The factor after the last change. */
  readonly endFactor: number;
  /** The number of steps until the last change. */
  readonly totalIters: number;

  constructor(...args: ArgumentsOf<typeof linearArguments>) {
    const { optimizer, startFactor, endFactor, totalIters, lastEpoch } = linearArguments(...args);
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
    // The last factor to 0 may come out below it by a rounding error, and a rate must not.
    const factor = Math.max(0, 1 + (to - from) / (total * from + (at - 1) * (to - from)));
    return this.current().map((lr) => lr * factor);
  }
}

const exponentialArguments = defineArguments(
  'ExponentialLR(optimizer, /, gamma, lastEpoch)',
  (optimizer: Optimizer, gamma: number, lastEpoch = -1) => ({
    optimizer,
    gamma,
    lastEpoch,
  }),
);

/** A factor at every step. */
export class ExponentialLR extends LRScheduler {
  /** The factor of each step. */
  readonly gamma: number;

  constructor(...args: ArgumentsOf<typeof exponentialArguments>) {
    const { optimizer, gamma, lastEpoch } = exponentialArguments(...args);
    super(optimizer, lastEpoch);
    checkNumber('ExponentialLR', 'gamma', gamma);
    this.gamma = gamma;
    this.begin();
  }

  protected rates(initial: boolean): number[] {
    return this.current().map((lr) => (initial || this.lastEpoch === 0 ? lr : lr * this.gamma));
  }
}

const polynomialArguments = defineArguments(
  'PolynomialLR(optimizer, /, totalIters, power, lastEpoch)',
  (optimizer: Optimizer, totalIters = 5, power = 1, lastEpoch = -1) => ({
    optimizer,
    totalIters,
    power,
    lastEpoch,
  }),
);

/** A polynomial down to zero over `totalIters` steps. */
export class PolynomialLR extends LRScheduler {
  /** The number of steps until the last change. */
  readonly totalIters: number;
  /** The power of the polynomial. */
  readonly power: number;

  constructor(...args: ArgumentsOf<typeof polynomialArguments>) {
    const { optimizer, totalIters, power, lastEpoch } = polynomialArguments(...args);
    super(optimizer, lastEpoch);
    checkNumber('PolynomialLR', 'totalIters', totalIters, { from: 0, whole: true });
    checkNumber('PolynomialLR', 'power', power, { from: 0 });
    this.totalIters = totalIters;
    this.power = power;
    this.begin();
  }

  protected rates(initial: boolean): number[] {
    if (initial || this.lastEpoch === 0 || this.lastEpoch > this.totalIters) return this.current();
    const factor =
      ((1 - this.lastEpoch / this.totalIters) / (1 - (this.lastEpoch - 1) / this.totalIters)) **
      this.power;
    return this.current().map((lr) => lr * factor);
  }
}
