/** The state of schedules: what a program writes down to go on later. */
import { ArgumentError } from '../core/errors.js';
import { checkNumber, unexpected } from '../core/options.js';

/** Position and settings of a schedule: numbers, strings and lists of them. */
export type SchedulerState = Record<string, unknown>;

/** The own properties of a schedule that are values: no optimizer, no functions. @internal */
export function stateOf(schedule: object): SchedulerState {
  const isFunction = (value: unknown): boolean => typeof value === 'function' || (Array.isArray(value) && value.some(isFunction));
  return structuredClone(Object.fromEntries(Object.entries(schedule).filter(([key, value]) => key !== 'optimizer' && !isFunction(value))));
}

/** Copies a state into a schedule. @throws ArgumentError if it is not that of such a schedule @internal */
export function takeUp(schedule: object, state: SchedulerState): void {
  checkState(schedule.constructor.name, stateOf(schedule), state);
  Object.assign(schedule, structuredClone(state));
}

/** @throws ArgumentError unless a state has the names and kinds of values of another, and says where it is @internal */
export function checkState(schedule: string, known: SchedulerState, state: SchedulerState): void {
  const op = `${schedule}.loadStateDict`;
  if (typeof state !== 'object' || state === null) throw unexpected(op, 'the state', 'an object', state);
  const kind = (value: unknown): string => (Array.isArray(value) ? 'list' : value === null ? 'null' : typeof value);
  for (const [name, value] of Object.entries(state)) {
    if (!Object.hasOwn(known, name)) throw new ArgumentError(`${op}: the state has "${name}", which is none of ${Object.keys(known).join(', ')}`, { op, name });
    // JSON turns infinities into null.
    if (value !== null && known[name] !== null && kind(value) !== kind(known[name])) throw unexpected(op, name, `a ${kind(known[name])}`, value);
  }
  checkNumber(op, 'lastEpoch', state['lastEpoch'], { from: -1, whole: true });
}
