/**
 * States of schedules, saved and loaded under PyTorch's names. States of earlier versions of this
 * library load as well: they have JavaScript's names, and nest some of the settings.
 */
import { ArgumentError } from '../../core/errors.js';
import { camelCase, snakeCase } from '../../core/name-case.js';
import { checkNumber, unexpected } from '../../core/options.js';
import { reportCall } from '../../core/unrepeatable.js';

/** Step count and settings of a schedule: numbers, strings and lists of them. */
export type SchedulerState = Record<string, unknown>;

/** PyTorch's names of properties, where they are not the property in snake_case. */
const names: Readonly<Record<string, string>> = {
  lastLr: '_last_lr',
  schedulers: '_schedulers',
  switches: '_milestones',
  schedulePhases: '_schedule_phases',
  annealStrategy: '_anneal_func_type',
};
const properties = new Map(Object.entries(names).map(([property, name]) => [name, property]));

/** Entries of PyTorch's states that schedules here derive, and so ignore. */
const derived = new Set(
  (
    'verbose _last_lr _step_count _get_lr_called_within_step _is_initial T_cur T_i lr_lambdas ' +
    'anneal_func use_beta1 mode_worse scale_mode _scale_fn_custom _scale_fn_ref'
  ).split(' '),
);

/** The properties of a schedule that are values: no optimizer, schedules or functions. @internal */
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

/**
 * Checks a state and returns what copies it into a schedule. @throws ArgumentError if it is not
 * that of such a schedule
 * @internal
 */
export function prepareState(schedule: object, state: SchedulerState): () => void {
  reportCall(schedule, 'loadStateDict');
  const given = checkState(schedule.constructor.name, stateOf(schedule), state);
  return () => {
    for (const [name, value] of Object.entries(structuredClone(given)))
      (schedule as Record<string, unknown>)[properties.get(name) ?? camelCase(name)] = value;
  };
}

/**
 * The entries of a state that a schedule loads. @throws ArgumentError if an entry is unknown or of
 * another kind than the schedule's, or `last_epoch` is missing
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
  for (const [name, value] of Object.entries(withPyTorchNames(schedule, state, known))) {
    if (!Object.hasOwn(known, name)) {
      if (derived.has(name)) continue;
      throw new ArgumentError(
        `${op}: the state has "${name}"; expected only ${Object.keys(known).join(', ')}`,
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

/** PyTorch's names of what earlier versions saved under names of their own. */
const renamed: Readonly<Record<string, string>> = {
  lastLrs: '_last_lr',
  schedulers: '_schedulers',
  badEpochs: 'num_bad_epochs',
  coolingFor: 'cooldown_counter',
  high: 'max_lrs',
  low: 'base_lrs',
};

/** Renames the entries of an earlier version's state; returns any other state unchanged. */
function withPyTorchNames(
  schedule: string,
  state: SchedulerState,
  known: SchedulerState,
): SchedulerState {
  if (!Object.hasOwn(state, 'lastEpoch')) return state;
  const { options, phases, levels: _levels, momenta: _momenta, ...rest } = state;
  const flat = {
    ...rest,
    ...settingsOf(options as SchedulerState | undefined, known),
    ...(phases === undefined
      ? {}
      : { _schedule_phases: (phases as EarlierPhase[]).map(currentPhase) }),
  };
  const named = Object.fromEntries(
    Object.entries(flat).map(([name, value]) => [renamed[name] ?? snakeCase(name), value]),
  );
  if (schedule !== 'SequentialLR') return named;
  const { milestones, ...sequence } = named;
  return { ...sequence, _milestones: milestones };
}

/**
 * Settings of CyclicLR and ReduceLROnPlateau, which earlier versions saved as they were given; now
 * each has one value for each group.
 */
function settingsOf(options: SchedulerState | undefined, known: SchedulerState): SchedulerState {
  if (options === undefined) return {};
  const { stepSizeUp, stepSizeDown, baseMomentum, maxMomentum, minLr, ...rest } = options;
  const each = (name: string, value: unknown): unknown =>
    Array.isArray(value) ? value : (known[name] as unknown[]).map(() => value);
  if (stepSizeUp === undefined) return { ...rest, minLrs: each('min_lrs', minLr) };
  const total = (stepSizeUp as number) + ((stepSizeDown ?? stepSizeUp) as number);
  const momenta = {
    baseMomentums: each('base_momentums', baseMomentum),
    maxMomentums: each('max_momentums', maxMomentum),
  };
  return { ...rest, ...momenta, totalSize: total, stepRatio: (stepSizeUp as number) / total };
}

interface EarlierPhase {
  end: number;
  lr: [from: string, to: string];
  momentum: [from: string, to: string];
}

function currentPhase({ end, lr, momentum }: EarlierPhase): SchedulerState {
  return {
    end_step: end,
    start_lr: `${lr[0]}_lr`,
    end_lr: `${lr[1]}_lr`,
    start_momentum: `${momentum[0]}_momentum`,
    end_momentum: `${momentum[1]}_momentum`,
  };
}
