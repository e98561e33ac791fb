/**
 * The base class of learning rate schedules, and what schedules read and write in the parameter
 * groups of an optimizer. A schedule sets the rate of each group at every `step`.
 */
import { noGrad } from '../../autograd/grad-mode.js';
import { ArgumentError } from '../../core/errors.js';
import { checkNumber, type NumberRule, unexpected } from '../../core/options.js';
import { PREPARE_LOAD } from '../../core/prepare-load.js';
import type { Tensor } from '../../core/tensor.js';
import { reportCall } from '../../core/unrepeatable.js';
import { numberOf } from '../capturable.js';
import { Optimizer } from '../optimizer.js';
import { prepareState, type SchedulerState, stateOf } from './state.js';

/** What a schedule reads and writes in a parameter group. */
export interface ScheduledGroup {
  lr: number | Tensor;
  /** The rate before the first schedule changed it. */
  initialLr?: number;
  momentum?: number;
  betas?: readonly [number, number];
  /** Rates and momenta of OneCycleLR; PyTorch keeps them in the group, too. */
  maxLr?: number;
  minLr?: number;
  baseMomentum?: number;
  maxMomentum?: number;
}

/** The groups of an optimizer. */
export function groupsOf(optimizer: Optimizer): ScheduledGroup[] {
  return optimizer.paramGroups as unknown as ScheduledGroup[];
}

/** The rate of a group as a number; reads a tensor. */
export const rateOf = ({ lr }: ScheduledGroup): number => numberOf(lr);

/** Sets the rate of a group. A tensor keeps its identity, since captured steps read it. */
export function setRate(group: ScheduledGroup, rate: number): void {
  const { lr } = group;
  if (typeof lr === 'number') group.lr = rate;
  else noGrad(() => lr.fill_(rate));
}

/** Sets `momentum`, or the first of `betas` where a group has them. */
export function setMomentum(group: ScheduledGroup, value: number): void {
  if (group.betas !== undefined) group.betas = [value, group.betas[1]];
  else group.momentum = value;
}

/**
 * Expands a number to one for each group. @throws ArgumentError if a list has another length or
 * holds anything but numbers
 */
export function perGroup(
  op: string,
  name: string,
  value: number | readonly number[],
  optimizer: Optimizer,
): number[] {
  const groups = optimizer.paramGroups.length;
  const list = Array.isArray(value)
    ? [...(value as readonly number[])]
    : Array<number>(groups).fill(value as number);
  if (list.length !== groups)
    throw unexpected(op, name, `one number, or ${groups}, one for each group`, value);
  for (const each of list) checkNumber(op, name, each);
  return list;
}

/**
 * Expands a momentum to one for each group. @throws ArgumentError if a value lies outside 0 to 1,
 * or the optimizer has neither momentum nor betas
 */
export function momentaOf(
  op: string,
  name: string,
  value: number | readonly number[],
  optimizer: Optimizer,
): number[] {
  const list = perGroup(op, name, value, optimizer);
  for (const each of list) checkNumber(op, name, each, { from: 0, to: 1 });
  if (
    groupsOf(optimizer).some((group) => group.momentum === undefined && group.betas === undefined)
  )
    throw new ArgumentError(
      `${op}: cycleMomentum needs an optimizer with momentum or betas, ` +
        `${optimizer.constructor.name} has neither`,
      { op },
    );
  return list;
}

/**
 * Base class of schedules. Every constructor takes `lastEpoch` as its last argument: -1, the
 * default, starts a schedule; a larger number resumes after that step. To resume, load the
 * optimizer's state first: it holds the initial rates.
 *
 * @see PyTorch `torch.optim.lr_scheduler.LRScheduler`
 */
export abstract class LRScheduler {
  /** The optimizer whose learning rates change. */
  readonly optimizer: Optimizer;
  /** Steps taken; the first rates are those of step 0. */
  lastEpoch: number;
  protected readonly baseLrs: number[];
  private lastLr: number[] = [];

  /**
   * @throws ArgumentError if `lastEpoch` resumes a run, but the optimizer has no initial rates
   */
  constructor(optimizer: Optimizer, lastEpoch = -1) {
    if (!(optimizer instanceof Optimizer))
      throw unexpected(this.constructor.name, 'optimizer', 'an optimizer', optimizer);
    checkNumber(this.constructor.name, 'lastEpoch', lastEpoch, { from: -1, whole: true });
    this.optimizer = optimizer;
    this.lastEpoch = lastEpoch;
    groupsOf(optimizer).forEach((group, i) => {
      if (lastEpoch === -1) group.initialLr ??= rateOf(group);
      else if (group.initialLr === undefined)
        throw new ArgumentError(
          `${this.constructor.name}: group ${i} has no initialLr to go on from step ` +
            `${lastEpoch}; load the optimizer's state first`,
          { group: i, lastEpoch },
        );
    });
    this.baseLrs = groupsOf(optimizer).map(({ initialLr }, i) => {
      checkNumber(this.constructor.name, `initialLr of group ${i}`, initialLr);
      return initialLr;
    });
  }

  /** Advances by one step and sets the rates. */
  step(): void {
    reportCall(this, 'step');
    this.advance(false);
  }

  /** The rates of the last step, one for each group. */
  getLastLr(): number[] {
    reportCall(this, 'getLastLr');
    return [...this.lastLr];
  }

  /** Step count and settings under PyTorch's names; functions are left out. */
  stateDict(): SchedulerState {
    return { ...stateOf(this), _step_count: this.lastEpoch + 1 };
  }

  /**
   * Restores a state; PyTorch's states load, too. @throws ArgumentError if the state is not that of
   * such a schedule
   */
  loadStateDict(state: SchedulerState): void {
    this.prepareLoad(state)();
  }

  /** Checks a state and returns what takes it over. @internal */
  prepareLoad(state: SchedulerState): () => void {
    return prepareState(this, state);
  }

  /** Whether a checked state can be taken over: no program overrides the load. @internal */
  canPrepareLoad(): boolean {
    return this.loadStateDict === LRScheduler.prototype.loadStateDict;
  }

  /** @internal */
  [PREPARE_LOAD](state: SchedulerState): (() => void) | null {
    return this.canPrepareLoad() ? this.prepareLoad(state) : null;
  }

  /** Computes the rates of step `lastEpoch`; `initial` is true for the step of the constructor. */
  protected abstract rates(initial: boolean): number[];

  /** The rates that the groups have now. */
  protected current(): number[] {
    return groupsOf(this.optimizer).map(rateOf);
  }

  /** Replaces the initial rates of the optimizer, for a schedule that starts at other rates. */
  protected startFrom(rates: readonly number[]): void {
    groupsOf(this.optimizer).forEach((group, i) => {
      group.initialLr = rates[i] as number;
    });
    this.baseLrs.splice(0, this.baseLrs.length, ...rates);
  }

  /**
   * Checks the settings of a schedule by `rules`, assigns them to properties of the same names, and
   * sets the first rates. Called by constructors, whose settings are `declare`d.
   */
  protected start<Settings extends object>(
    settings: Settings,
    rules: Readonly<Record<keyof Settings, NumberRule>>,
  ): void {
    for (const name in settings)
      checkNumber(this.constructor.name, name, settings[name], rules[name]);
    Object.assign(this, settings);
    this.begin();
  }

  /** Sets the first rates. Each constructor calls it after its settings are assigned. @internal */
  begin(): void {
    this.advance(true);
  }

  /**
   * Undoes the step of the constructor, so that a composed schedule decides when this one starts.
   * @internal
   */
  undo(): void {
    this.lastEpoch--;
  }

  /** Returns to the state before step 0. @internal */
  restart(): void {
    this.lastEpoch = -1;
  }

  private advance(initial: boolean): void {
    this.lastEpoch++;
    const rates = this.rates(initial);
    rates.forEach((rate, i) => {
      if (!Number.isFinite(rate))
        throw new ArgumentError(
          `${this.constructor.name}: the rate of group ${i} at step ${this.lastEpoch} is ${rate}`,
          { group: i, step: this.lastEpoch, rate },
        );
    });
    const groups = groupsOf(this.optimizer);
    // The schedule computes no rate for a group that was added after it; such a group keeps its
    // own.
    rates.slice(0, groups.length).forEach((rate, i) => {
      setRate(groups[i] as ScheduledGroup, rate);
    });
    this.lastLr = this.current();
  }
}
