/** Schedules: which steps of a loop a profile records. */
import { checkNumber, optionsOf } from '../core/options.js';

/**
 * What a profile does in a step: nothing, record and drop what it records, record, or record and
 * then give the trace.
 */
export type ProfilerAction = 'none' | 'warmup' | 'record' | 'recordAndSave';

/** The action of a step, by its number from 0. */
export type ProfilerSchedule = (step: number) => ProfilerAction;

/** Options of {@link schedule}: numbers of steps. */
export interface ScheduleOptions {
  /** Steps of a cycle that are not recorded. */
  readonly wait: number;
  /** Steps after them that are recorded and dropped: first steps take longer. */
  readonly warmup: number;
  /** Steps after them that are recorded; the trace is ready after the last. */
  readonly active: number;
  /** Cycles; 0, the default, for as many as there are. */
  readonly repeat?: number;
  /** Steps before the first cycle. Default 0. */
  readonly skipFirst?: number;
}

/**
 * A schedule of cycles: `wait` steps that are not recorded, `warmup` steps, `active` steps.
 *
 * @throws ArgumentError for numbers that are not whole, and for no active step
 * @see PyTorch `torch.profiler.schedule`
 * @example profiler.schedule({ wait: 1, warmup: 1, active: 3, repeat: 1 });
 */
export function schedule(options: ScheduleOptions): ProfilerSchedule {
  const op = 'profiler.schedule';
  const {
    wait,
    warmup,
    active,
    repeat = 0,
    skipFirst = 0,
  } = optionsOf(op, options, 'wait warmup active repeat skipFirst');
  for (const [name, value] of Object.entries({ wait, warmup, repeat, skipFirst }))
    checkNumber(op, name, value, { from: 0, whole: true });
  checkNumber(op, 'active', active, { from: 1, whole: true });
  const cycle = wait + warmup + active;
  return (step) => {
    const at = step - skipFirst;
    if (at < 0 || (repeat > 0 && at >= repeat * cycle)) return 'none';
    const inCycle = at % cycle;
    if (inCycle < wait) return 'none';
    if (inCycle < wait + warmup) return 'warmup';
    return inCycle === cycle - 1 ? 'recordAndSave' : 'record';
  };
}
