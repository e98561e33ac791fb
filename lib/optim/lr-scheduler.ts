/**
 * The base of learning rate schedules. Each sets the rates of its optimizer's groups at every
 * `step`.
 */
import { ArgumentError } from '../core/errors.js';
import { checkNumber, unexpected } from '../core/options.js';
import { Optimizer } from './optimizer.js';
import { groupsOf, type ScheduledGroup } from './scheduler-groups.js';
import { type SchedulerState, stateOf, takeUp } from './scheduler-state.js';

/**
 * Base of schedules. `lastEpoch`, which every one takes last, is the last step of a run that is
 * gone on from; -1, the default, starts anew. The optimizer must have been given its state before,
 * which holds the initial rates.
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
   * @throws ArgumentError if `lastEpoch` says that a run goes on, but the optimizer does not know
   * its initial rates
   */
  constructor(optimizer: Optimizer, lastEpoch = -1) {
    if (!(optimizer instanceof Optimizer))
      throw unexpected(this.constructor.name, 'optimizer', 'an optimizer', optimizer);
    checkNumber(this.constructor.name, 'lastEpoch', lastEpoch, { from: -1, whole: true });
    this.optimizer = optimizer;
    this.lastEpoch = lastEpoch;
    groupsOf(optimizer).forEach((group, i) => {
      if (lastEpoch === -1) group.initialLr ??= group.lr;
      else if (group.initialLr === undefined)
        throw new ArgumentError(
          `${this.constructor.name}: group ${i} has no initialLr to go on from step ${lastEpoch}; load the optimizer's state first`,
          { group: i, lastEpoch },
        );
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
    return [...this.lastLr];
  }

  /** Position and settings under PyTorch's names, to go on later; functions are left out. */
  stateDict(): SchedulerState {
    return { ...stateOf(this), _step_count: this.lastEpoch + 1 };
  }

  /**
   * Takes up a position and settings, of PyTorch's schedule as well. @throws ArgumentError for what
   * is not the state of such a schedule
   */
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

  /**
   * Takes back the step that the constructor took, so that another schedule can decide when it
   * begins. @internal
   */
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
        throw new ArgumentError(
          `${this.constructor.name}: the rate of group ${i} at step ${this.lastEpoch} is ${rate}`,
          { group: i, step: this.lastEpoch, rate },
        );
    });
    const groups = groupsOf(this.optimizer);
    // Groups that the optimizer got after the schedule was made may have no rate; they keep theirs.
    rates.slice(0, groups.length).forEach((rate, i) => {
      (groups[i] as ScheduledGroup).lr = rate;
    });
    this.lastLr = this.current();
  }
}
