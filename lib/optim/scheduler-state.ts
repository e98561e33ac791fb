/** The state of schedules: what a program writes down to go on later, with PyTorch's names. */
import { ArgumentError } from '../core/errors.js';
import { camelCase, snakeCase } from '../core/name-case.js';
import { checkNumber, unexpected } from '../core/options.js';
import { sincePyTorchNames } from './earlier-scheduler-state.js';

/** Position and settings of a schedule: numbers, strings and lists of them. */
export type SchedulerState = Record<string, unknown>;

/** PyTorch's names of properties where they are not the properties' own in snake_case. */
const names: Readonly<Record<string, string>> = {
  lastLr: '_last_lr',
  schedulers: '_schedulers',
  switches: '_milestones',
  schedulePhases: '_schedule_phases',
  annealStrategy: '_anneal_func_type',
};
const properties = new Map(Object.entries(names).map(([property, name]) => [name, property]));

/**
 * What PyTorch writes down and schedules here work out: flags of its calls, where a cosine is,
 * functions.
 */
const derived = new Set(
  'verbose _last_lr _step_count _get_lr_called_within_step _is_initial T_cur T_i lr_lambdas anneal_func use_beta1 mode_worse scale_mode _scale_fn_custom _scale_fn_ref'.split(
    ' ',
  ),
);

/**
 * The own properties of a schedule that are values: no optimizer, no schedules, no functions.
 * @internal
 */
export function stateOf(schedule: object): SchedulerState {
  const isValue = (value: unknown): boolean =>
    Array.isArray(value)
      ? value.every(isValue)
      : typeof value !== 'function' && !(value instanceof Object && 'stateDict' in value);
  const values = Object.entries(schedule).filter(
    ([key, value]) => key !== 'optimizer' && isValue(value),
  );
  return structuredClone(
    Object.fromEntries(values.map(([key, value]) => [names[key] ?? snakeCase(key), value])),
  );
}

/** @throws ArgumentError if a state is not that of such a schedule @internal */
export function checkTakeUp(schedule: object, state: SchedulerState): void {
  checkState(schedule.constructor.name, stateOf(schedule), state);
}

/**
 * Copies a state into a schedule. @throws ArgumentError if it is not that of such a schedule
 * @internal
 */
export function takeUp(schedule: object, state: SchedulerState): void {
  const given = checkState(schedule.constructor.name, stateOf(schedule), state);
  for (const [name, value] of Object.entries(structuredClone(given)))
    (schedule as Record<string, unknown>)[properties.get(name) ?? camelCase(name)] = value;
}

/**
 * The values that a schedule takes up. @throws ArgumentError unless a state has names and kinds of
 * values that are known, and says where it is
 */
function checkState(
  schedule: string,
  known: SchedulerState,
  state: SchedulerState,
): SchedulerState {
  const op = `${schedule}.loadStateDict`;
  if (typeof state !== 'object' || state === null)
    throw unexpected(op, 'the state', 'an object', state);
  const kind = (value: unknown): string =>
    Array.isArray(value) ? 'list' : value === null ? 'null' : typeof value;
  const given: SchedulerState = {};
  for (const [name, value] of Object.entries(sincePyTorchNames(schedule, state, known))) {
    if (!Object.hasOwn(known, name)) {
      if (derived.has(name)) continue;
      throw new ArgumentError(
        `${op}: the state has "${name}", which is none of ${Object.keys(known).join(', ')}`,
        { op, name },
      );
    }
    // JSON turns infinities into null.
    if (value !== null && known[name] !== null && kind(value) !== kind(known[name]))
      throw unexpected(op, name, `a ${kind(known[name])}`, value);
    given[name] = value;
  }
  checkNumber(op, 'last_epoch', given['last_epoch'], { from: -1, whole: true });
  return given;
}
