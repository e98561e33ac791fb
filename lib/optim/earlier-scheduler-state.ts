/** States of schedules as earlier versions saved them: JavaScript's names, some of them nested. */
import { snakeCase } from '../core/name-case.js';

type State = Record<string, unknown>;

const renamed: Readonly<Record<string, string>> = {
  lastLrs: '_last_lr',
  schedulers: '_schedulers',
  badEpochs: 'num_bad_epochs',
  coolingFor: 'cooldown_counter',
  high: 'max_lrs',
  low: 'base_lrs',
};

/** Such a state under PyTorch's names; any other as it is. */
export function sincePyTorchNames(schedule: string, state: State, known: State): State {
  if (!Object.hasOwn(state, 'lastEpoch')) return state;
  const { options, phases, levels: _levels, momenta: _momenta, ...rest } = state;
  const flat = {
    ...rest,
    ...settingsOf(options as State | undefined, known),
    ...(phases === undefined
      ? {}
      : { _schedule_phases: (phases as EarlierPhase[]).map(presentPhase) }),
  };
  const named = Object.fromEntries(
    Object.entries(flat).map(([name, value]) => [renamed[name] ?? snakeCase(name), value]),
  );
  if (schedule !== 'SequentialLR') return named;
  const { milestones, ...sequence } = named;
  return { ...sequence, _milestones: milestones };
}

/**
 * Settings that were kept as they were given: of CyclicLR and ReduceLROnPlateau, which have values
 * for each group.
 */
function settingsOf(options: State | undefined, known: State): State {
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

function presentPhase({ end, lr, momentum }: EarlierPhase): State {
  return {
    end_step: end,
    start_lr: `${lr[0]}_lr`,
    end_lr: `${lr[1]}_lr`,
    start_momentum: `${momentum[0]}_momentum`,
    end_momentum: `${momentum[1]}_momentum`,
  };
}
