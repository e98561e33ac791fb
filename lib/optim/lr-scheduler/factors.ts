/** Schedules that multiply the rates by a factor of the step. */
import { ArgumentError } from '../../core/errors.js';
import { checkNumber, unexpected } from '../../core/options.js';
import { type ArgumentsOf, defineArguments } from '../../core/signature.js';
import type { Optimizer } from '../optimizer.js';
import { groupsOf, LRScheduler } from './scheduler.js';
import type { SchedulerState } from './state.js';

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

/** Base of the schedules whose factor is a function of the user. */
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

  /** PyTorch saves null for each function. */
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

/** The rate of the step before times a function of the step. */
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

/**
 * Multiplies the rates by `gamma` every `stepSize` steps.
 *
 * @example
 * const halved = new optim.lrScheduler.StepLR(optimizer, 1, 0.5);
 * optimizer.step();
 * halved.step();
 * halved.getLastLr(); // [0.0005]
 */
export class StepLR extends LRScheduler {
  /** The number of steps between changes. */
  declare readonly stepSize: number;
  /** The factor after each step size. */
  declare readonly gamma: number;

  constructor(...args: ArgumentsOf<typeof stepArguments>) {
    const { optimizer, lastEpoch, ...settings } = stepArguments(...args);
    super(optimizer, lastEpoch);
    this.start(settings, { stepSize: { from: 1, whole: true }, gamma: {} });
  }

  protected rates(): number[] {
    const due = this.lastEpoch > 0 && this.lastEpoch % this.stepSize === 0;
    return this.current().map((lr) => (due ? lr * this.gamma : lr));
  }
}

/** Expands PyTorch's `{ 30: 1, 80: 2 }` to 30, 80, 80. */
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

/** Multiplies the rates by `gamma` at each milestone. */
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

  override prepareLoad(state: SchedulerState): () => void {
    const milestones = state?.['milestones'];
    const isCounted =
      typeof milestones === 'object' && milestones !== null && !Array.isArray(milestones);
    return super.prepareLoad(isCounted ? { ...state, milestones: eachCounted(milestones) } : state);
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

/** Multiplies the rates by `factor` for the first `totalIters` steps. */
export class ConstantLR extends LRScheduler {
  /** The factor until `totalIters`. */
  declare readonly factor: number;
  /** The number of steps until the last change. */
  declare readonly totalIters: number;

  constructor(...args: ArgumentsOf<typeof constantArguments>) {
    const { optimizer, lastEpoch, ...settings } = constantArguments(...args);
    super(optimizer, lastEpoch);
    this.start(settings, { factor: { from: 0, to: 1 }, totalIters: { from: 0, whole: true } });
  }

  protected rates(): number[] {
    if (this.lastEpoch === 0) return this.current().map((lr) => lr * this.factor);
    if (this.lastEpoch !== this.totalIters) return this.current();
    // A factor of 0 cannot be divided out.
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

/** Multiplies the rates by a factor that changes linearly over `totalIters` steps. */
export class LinearLR extends LRScheduler {
  /** The factor of the first step. */
  declare readonly startFactor: number;
  /** The factor after the last change. */
  declare readonly endFactor: number;
  /** The number of steps until the last change. */
  declare readonly totalIters: number;

  constructor(...args: ArgumentsOf<typeof linearArguments>) {
    const { optimizer, lastEpoch, ...settings } = linearArguments(...args);
    super(optimizer, lastEpoch);
    this.start(settings, {
      startFactor: { above: 0, to: 1 },
      endFactor: { from: 0, to: 1 },
      totalIters: { from: 0, whole: true },
    });
  }

  protected rates(initial: boolean): number[] {
    const { startFactor: from, endFactor: to, totalIters: total, lastEpoch: at } = this;
    if (at === 0) return this.current().map((lr) => lr * from);
    if (initial || at > total) return this.current();
    // By a rounding error the last factor may be below 0, which a rate must not be.
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

/** Multiplies the rates by `gamma` at every step. */
export class ExponentialLR extends LRScheduler {
  /** The factor of each step. */
  declare readonly gamma: number;

  constructor(...args: ArgumentsOf<typeof exponentialArguments>) {
    const { optimizer, lastEpoch, ...settings } = exponentialArguments(...args);
    super(optimizer, lastEpoch);
    this.start(settings, { gamma: {} });
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

/** Lowers the rates to 0 along a polynomial over `totalIters` steps. */
export class PolynomialLR extends LRScheduler {
  /** The number of steps until the last change. */
  declare readonly totalIters: number;
  /** The power of the polynomial. */
  declare readonly power: number;

  constructor(...args: ArgumentsOf<typeof polynomialArguments>) {
    const { optimizer, lastEpoch, ...settings } = polynomialArguments(...args);
    super(optimizer, lastEpoch);
    this.start(settings, { totalIters: { from: 0, whole: true }, power: { from: 0 } });
  }

  protected rates(initial: boolean): number[] {
    if (initial || this.lastEpoch === 0 || this.lastEpoch > this.totalIters) return this.current();
    const factor =
      ((1 - this.lastEpoch / this.totalIters) / (1 - (this.lastEpoch - 1) / this.totalIters)) **
      this.power;
    return this.current().map((lr) => lr * factor);
  }
}
