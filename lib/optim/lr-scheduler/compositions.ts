/** Schedules that are composed of other schedules. */
import { ArgumentError } from '../../core/errors.js';
import { checkNumber, optionsOf, unexpected } from '../../core/options.js';
import { PREPARE_LOAD } from '../../core/prepare-load.js';
import { type ArgumentsOf, defineArguments } from '../../core/signature.js';
import { reportCall } from '../../core/unrepeatable.js';
import type { Optimizer } from '../optimizer.js';
import { groupsOf, LRScheduler, rateOf, setRate } from './scheduler.js';
import { prepareState, type SchedulerState } from './state.js';

/** @throws ArgumentError unless all are schedules of one optimizer */
function checkSchedules(
  op: string,
  schedulers: readonly LRScheduler[],
  optimizer?: Optimizer,
): void {
  if (!Array.isArray(schedulers) || schedulers.length === 0)
    throw unexpected(op, 'schedulers', 'a list of at least one schedule', schedulers);
  schedulers.forEach((each, i) => {
    if (!(each instanceof LRScheduler))
      throw unexpected(op, `schedule ${i}`, 'an LRScheduler', each);
    if (each.optimizer !== (optimizer ?? schedulers[0]?.optimizer))
      throw new ArgumentError(`${op}: schedule ${i} belongs to another optimizer`, {
        op,
        index: i,
      });
  });
}

const sequentialArguments = defineArguments(
  'SequentialLR(optimizer, /, schedulers, milestones, lastEpoch)',
  (
    optimizer: Optimizer,
    schedulers: readonly LRScheduler[],
    milestones: readonly number[],
    lastEpoch = -1,
  ) => ({ optimizer, schedulers, milestones, lastEpoch }),
);

/** Runs schedules one after another; a milestone starts the next one. */
export class SequentialLR extends LRScheduler {
  private readonly schedulers: readonly LRScheduler[];
  private readonly switches: readonly number[];

  /**
   * @throws ArgumentError unless all are schedules of this optimizer, and the milestones ascend and
   * are one less than the schedules
   */
  constructor(...args: ArgumentsOf<typeof sequentialArguments>) {
    const { optimizer, schedulers, milestones, lastEpoch } = sequentialArguments(...args);
    super(optimizer, lastEpoch);
    checkSchedules('SequentialLR', schedulers, optimizer);
    if (!Array.isArray(milestones) || schedulers.length !== milestones.length + 1) {
      throw unexpected(
        'SequentialLR',
        'milestones',
        `a list of ${schedulers.length - 1}, one less than schedules`,
        milestones,
      );
    }
    milestones.forEach((each, i) => {
      checkNumber('SequentialLR', `milestone ${i}`, each, {
        from: (milestones as number[])[i - 1] ?? 0,
        whole: true,
      });
    });
    this.schedulers = [...schedulers];
    this.switches = [...milestones];
    if (this.lastEpoch === -1)
      for (const group of groupsOf(optimizer)) setRate(group, group.initialLr as number);
    for (const each of schedulers) each.undo();
    this.begin();
  }

  protected rates(initial: boolean): number[] {
    const i = this.switches.filter((m) => m <= this.lastEpoch).length;
    const active = this.schedulers[i] as LRScheduler;
    if (i > 0 && this.switches[i - 1] === this.lastEpoch) {
      active.restart();
      for (const group of groupsOf(this.optimizer)) setRate(group, group.initialLr as number);
    }
    if (initial) active.begin();
    else active.step();
    return active.getLastLr();
  }

  override undo(): void {
    super.undo();
    for (const each of this.schedulers) each.undo();
  }

  override restart(): void {
    super.restart();
    for (const each of this.schedulers) each.restart();
  }

  /** Step count, and the states of the schedules. */
  override stateDict(): SchedulerState {
    return { ...super.stateDict(), _schedulers: this.schedulers.map((each) => each.stateDict()) };
  }

  override prepareLoad(state: SchedulerState): () => void {
    const { own, states } = split('SequentialLR', state);
    const load = prepareState(this, own);
    const loadAll = prepareAll('SequentialLR', this.schedulers, states);
    return () => {
      loadAll();
      load();
    };
  }

  override canPrepareLoad(): boolean {
    return super.canPrepareLoad() && this.schedulers.every((each) => each.canPrepareLoad());
  }
}

/**
 * Splits a state into its own entries and those of its schedules. Earlier versions wrote no `_`.
 */
function split(op: string, state: SchedulerState): { own: SchedulerState; states: unknown } {
  const { _schedulers, schedulers, ...own } = optionsOf(`${op}.loadStateDict`, state);
  return { own, states: _schedulers ?? schedulers };
}

/**
 * What takes the states of all schedules over. @throws ArgumentError if there are not as many
 * states as schedules
 */
function prepareAll(op: string, schedulers: readonly LRScheduler[], states: unknown): () => void {
  if (!Array.isArray(states) || states.length !== schedulers.length) {
    throw unexpected(
      `${op}.loadStateDict`,
      '_schedulers',
      `a list of the states of ${schedulers.length} schedules`,
      states,
    );
  }
  const loads = schedulers.map((each, i) => {
    const state = states[i] as SchedulerState;
    return each[PREPARE_LOAD](state) ?? (() => each.loadStateDict(state));
  });
  return () => {
    for (const load of loads) load();
  };
}

const chainedArguments = defineArguments(
  'ChainedScheduler(schedulers, *, optimizer)',
  (schedulers: readonly LRScheduler[], { optimizer }: { optimizer?: Optimizer } = {}) => ({
    schedulers,
    optimizer,
  }),
);

/** Applies several schedules at every step; each changes the rate that the one before set. */
export class ChainedScheduler {
  private readonly schedulers: readonly LRScheduler[];

  /**
   * @throws ArgumentError unless there is at least one schedule, and all are of one optimizer: the
   * one given, if any
   */
  constructor(...args: ArgumentsOf<typeof chainedArguments>) {
    const { schedulers, optimizer } = chainedArguments(...args);
    checkSchedules('ChainedScheduler', schedulers, optimizer);
    this.schedulers = [...schedulers];
  }

  /** Advances all schedules by one step. */
  step(): void {
    for (const each of this.schedulers) each.step();
  }

  /** The rates of the last step, one for each group. */
  getLastLr(): number[] {
    reportCall(this, 'getLastLr');
    return groupsOf((this.schedulers[0] as LRScheduler).optimizer).map(rateOf);
  }

  /** The states of the schedules. */
  stateDict(): SchedulerState {
    return {
      _schedulers: this.schedulers.map((each) => each.stateDict()),
      _last_lr: this.getLastLr(),
    };
  }

  /**
   * Restores the state of all schedules.
   *
   * @throws ArgumentError if there are not as many states as schedules
   */
  loadStateDict(state: SchedulerState): void {
    this.prepareLoad(state)();
  }

  /** @internal */
  [PREPARE_LOAD](state: SchedulerState): (() => void) | null {
    const isOwn = this.loadStateDict === ChainedScheduler.prototype.loadStateDict;
    const canPrepare = isOwn && this.schedulers.every((each) => each.canPrepareLoad());
    return canPrepare ? this.prepareLoad(state) : null;
  }

  private prepareLoad(state: SchedulerState): () => void {
    const { states } = split('ChainedScheduler', state);
    return prepareAll('ChainedScheduler', this.schedulers, states);
  }
}
