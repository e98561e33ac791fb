/** Cyclic schedules, which change momentum together with the rate. */
import { ArgumentError } from '../../core/errors.js';
import { checkNumber, checkOneOf } from '../../core/options.js';
import { type ArgumentsOf, defineArguments } from '../../core/signature.js';
import type { Optimizer } from '../optimizer.js';
import {
  groupsOf,
  LRScheduler,
  momentaOf,
  perGroup,
  type ScheduledGroup,
  setMomentum,
} from './scheduler.js';
import type { SchedulerState } from './state.js';

type OfGroups = number | readonly number[];

const oneCycleArguments = defineArguments(
  'OneCycleLR(optimizer, /, maxLr, totalSteps, epochs, stepsPerEpoch, pctStart, annealStrategy, cycleMomentum, baseMomentum, maxMomentum, divFactor, finalDivFactor, threePhase, lastEpoch)',
  (
    optimizer: Optimizer,
    maxLr: OfGroups,
    totalSteps: number | null = null,
    epochs: number | null = null,
    stepsPerEpoch: number | null = null,
    pctStart = 0.3,
    annealStrategy: 'cos' | 'linear' = 'cos',
    cycleMomentum = true,
    baseMomentum: OfGroups = 0.85,
    maxMomentum: OfGroups = 0.95,
    divFactor = 25,
    finalDivFactor = 1e4,
    threePhase = false,
    lastEpoch = -1,
  ) => ({
    optimizer,
    steps: { totalSteps, epochs, stepsPerEpoch },
    lr: { maxLr, divFactor, finalDivFactor },
    momenta: cycleMomentum ? { baseMomentum, maxMomentum } : null,
    shape: { pctStart, annealStrategy, threePhase },
    lastEpoch,
  }),
);

/**
 * A phase of the cycle in PyTorch's form: its last step, and the names of the group's values that
 * rate and momentum go between.
 */
interface Phase {
  end_step: number;
  start_lr: Level;
  end_lr: Level;
  start_momentum: MomentumLevel;
  end_momentum: MomentumLevel;
}

type Level = 'initial_lr' | 'max_lr' | 'min_lr';
type MomentumLevel = 'base_momentum' | 'max_momentum';

const levels = {
  initial_lr: 'initialLr',
  max_lr: 'maxLr',
  min_lr: 'minLr',
  base_momentum: 'baseMomentum',
  max_momentum: 'maxMomentum',
} as const;

const phase = (
  end_step: number,
  start_lr: Level,
  end_lr: Level,
  start_momentum: MomentumLevel,
  end_momentum: MomentumLevel,
): Phase => ({
  end_step,
  start_lr,
  end_lr,
  start_momentum,
  end_momentum,
});

const annealing: Record<'cos' | 'linear', (from: number, to: number, at: number) => number> = {
  cos: (from, to, at) => to + ((from - to) / 2) * (Math.cos(Math.PI * at) + 1),
  linear: (from, to, at) => (to - from) * at + from,
};

/**
 * Raises the rate to `maxLr`, then lowers it far below the initial rate. @see Smith and Topin,
 * arXiv:1708.07120
 */
export class OneCycleLR extends LRScheduler {
  /** The number of steps of the cycle. */
  readonly totalSteps: number;
  private readonly schedulePhases: Phase[];
  private readonly annealStrategy: 'cos' | 'linear';
  private readonly cycleMomentum: boolean;

  constructor(...args: ArgumentsOf<typeof oneCycleArguments>) {
    const { optimizer, steps, lr, momenta, shape, lastEpoch } = oneCycleArguments(...args);
    super(optimizer, lastEpoch);
    const { pctStart, annealStrategy, threePhase } = shape;
    checkNumber('OneCycleLR', 'pctStart', pctStart, { from: 0, to: 1 });
    checkOneOf('OneCycleLR', 'annealStrategy', annealStrategy, ['cos', 'linear']);
    checkNumber('OneCycleLR', 'divFactor', lr.divFactor, { above: 0 });
    checkNumber('OneCycleLR', 'finalDivFactor', lr.finalDivFactor, { above: 0 });
    this.totalSteps = totalStepsOf(steps);
    this.annealStrategy = annealStrategy;
    this.cycleMomentum = momenta !== null;
    this.setLevels(
      perGroup('OneCycleLR', 'maxLr', lr.maxLr, optimizer),
      lr.divFactor,
      lr.finalDivFactor,
    );
    if (momenta !== null)
      this.setMomenta(
        momentaOf('OneCycleLR', 'baseMomentum', momenta.baseMomentum, optimizer),
        momentaOf('OneCycleLR', 'maxMomentum', momenta.maxMomentum, optimizer),
      );
    const top = pctStart * this.totalSteps - 1;
    const up = phase(top, 'initial_lr', 'max_lr', 'max_momentum', 'base_momentum');
    this.schedulePhases = threePhase
      ? [
          up,
          phase(2 * top, 'max_lr', 'initial_lr', 'base_momentum', 'max_momentum'),
          phase(this.totalSteps - 1, 'initial_lr', 'min_lr', 'max_momentum', 'max_momentum'),
        ]
      : [up, phase(this.totalSteps - 1, 'max_lr', 'min_lr', 'base_momentum', 'max_momentum')];
    this.begin();
  }

  /** Sets the rates between which the phases anneal. A resumed run keeps those of its groups. */
  private setLevels(tops: readonly number[], divFactor: number, finalDivFactor: number): void {
    const starts = this.lastEpoch === -1;
    groupsOf(this.optimizer).forEach((group, i) => {
      const maxLr = tops[i] as number;
      if (starts || group.maxLr === undefined) group.maxLr = maxLr;
      if (starts || group.minLr === undefined) group.minLr = maxLr / divFactor / finalDivFactor;
    });
    if (starts) this.startFrom(tops.map((maxLr) => maxLr / divFactor));
  }

  private setMomenta(base: readonly number[], max: readonly number[]): void {
    const starts = this.lastEpoch === -1;
    groupsOf(this.optimizer).forEach((group, i) => {
      if (starts || group.baseMomentum === undefined) group.baseMomentum = base[i] as number;
      if (starts || group.maxMomentum === undefined) group.maxMomentum = max[i] as number;
    });
  }

  protected rates(): number[] {
    const at = this.lastEpoch;
    if (at > this.totalSteps)
      throw new ArgumentError(
        `OneCycleLR: stepped ${at} times, the cycle has ${this.totalSteps} steps`,
      );
    const phases = this.schedulePhases;
    const i = phases.findIndex(({ end_step }, k) => at <= end_step || k === phases.length - 1);
    const { end_step: end, start_lr, end_lr, start_momentum, end_momentum } = phases[i] as Phase;
    const start = i === 0 ? 0 : (phases[i - 1] as Phase).end_step;
    const part = end === start ? 1 : (at - start) / (end - start);
    const anneal = annealing[this.annealStrategy];
    const between = (
      group: ScheduledGroup,
      from: Level | MomentumLevel,
      to: Level | MomentumLevel,
    ): number => anneal(group[levels[from]] as number, group[levels[to]] as number, part);
    // A group that was added after the schedule has no levels, and keeps its rate.
    const groups = groupsOf(this.optimizer).slice(0, this.baseLrs.length);
    if (this.cycleMomentum)
      for (const group of groups) setMomentum(group, between(group, start_momentum, end_momentum));
    return groups.map((group) => between(group, start_lr, end_lr));
  }
}

function totalStepsOf({
  totalSteps,
  epochs,
  stepsPerEpoch,
}: {
  totalSteps: number | null;
  epochs: number | null;
  stepsPerEpoch: number | null;
}): number {
  if (totalSteps === null && (epochs === null || stepsPerEpoch === null))
    throw new ArgumentError('OneCycleLR: give totalSteps, or epochs and stepsPerEpoch');
  for (const [name, value] of Object.entries(
    totalSteps === null ? { epochs, stepsPerEpoch } : { totalSteps },
  )) {
    checkNumber('OneCycleLR', name, value, { from: 1, whole: true });
  }
  return totalSteps ?? (epochs as number) * (stepsPerEpoch as number);
}

type CyclicMode = 'triangular' | 'triangular2' | 'exp_range';

interface CyclicKeywords {
  cycleMomentum?: boolean;
  baseMomentum?: OfGroups;
  maxMomentum?: OfGroups;
  lastEpoch?: number;
}

/**
 * After `gamma` PyTorch takes `scale_fn` and `scale_mode`, which are missing here; so the arguments
 * after them are given by name only.
 */
const cyclicArguments = defineArguments(
  'CyclicLR(optimizer, /, baseLr, maxLr, stepSizeUp, stepSizeDown, mode, gamma, *, cycleMomentum, baseMomentum, maxMomentum, lastEpoch)',
  (
    optimizer: Optimizer,
    baseLr: OfGroups,
    maxLr: OfGroups,
    stepSizeUp = 2000,
    stepSizeDown: number | null = null,
    mode: CyclicMode = 'triangular',
    gamma = 1,
    {
      cycleMomentum = true,
      baseMomentum = 0.8,
      maxMomentum = 0.9,
      lastEpoch = -1,
    }: CyclicKeywords = {},
  ) => ({
    optimizer,
    baseLr,
    maxLr,
    stepSizeUp,
    stepSizeDown,
    mode,
    gamma,
    cycleMomentum,
    baseMomentum,
    maxMomentum,
    lastEpoch,
  }),
);

/** Cycles the rate between `baseLr` and `maxLr`. @see Smith, arXiv:1506.01186 */
export class CyclicLR extends LRScheduler {
  private readonly maxLrs: number[];
  private readonly totalSize: number;
  private readonly stepRatio: number;
  private readonly mode: CyclicMode;
  private readonly gamma: number;
  private readonly cycleMomentum: boolean;
  private readonly baseMomentums: number[];
  private readonly maxMomentums: number[];

  constructor(...args: ArgumentsOf<typeof cyclicArguments>) {
    const op = 'CyclicLR';
    const {
      optimizer,
      baseLr,
      maxLr,
      stepSizeUp,
      stepSizeDown,
      mode,
      gamma,
      cycleMomentum,
      baseMomentum,
      maxMomentum,
      lastEpoch,
    } = cyclicArguments(...args);
    super(optimizer, lastEpoch);
    const low = perGroup(op, 'baseLr', baseLr, optimizer);
    this.maxLrs = perGroup(op, 'maxLr', maxLr, optimizer);
    checkNumber(op, 'stepSizeUp', stepSizeUp, { above: 0 });
    if (stepSizeDown !== null) checkNumber(op, 'stepSizeDown', stepSizeDown, { from: 0 });
    checkOneOf(op, 'mode', mode, ['triangular', 'triangular2', 'exp_range']);
    checkNumber(op, 'gamma', gamma);
    this.totalSize = stepSizeUp + (stepSizeDown ?? stepSizeUp);
    this.stepRatio = stepSizeUp / this.totalSize;
    this.mode = mode;
    this.gamma = gamma;
    this.cycleMomentum = cycleMomentum;
    this.baseMomentums = cycleMomentum
      ? momentaOf(op, 'baseMomentum', baseMomentum, optimizer)
      : [];
    this.maxMomentums = cycleMomentum ? momentaOf(op, 'maxMomentum', maxMomentum, optimizer) : [];
    this.baseLrs.splice(0, this.baseLrs.length, ...low);
    this.begin();
  }

  /** Adds the two entries that PyTorch's `load_state_dict` reads beside the mode. */
  override stateDict(): SchedulerState {
    return {
      ...super.stateDict(),
      scale_mode: this.mode === 'exp_range' ? 'iterations' : 'cycle',
      _scale_fn_custom: null,
    };
  }

  protected rates(): number[] {
    const { totalSize, stepRatio, mode, gamma, lastEpoch } = this;
    const cycle = Math.floor(1 + lastEpoch / totalSize);
    const x = 1 + lastEpoch / totalSize - cycle;
    const height = x <= stepRatio ? x / stepRatio : (x - 1) / (stepRatio - 1);
    const scale =
      height *
      (mode === 'triangular2'
        ? 1 / 2 ** (cycle - 1)
        : mode === 'exp_range'
          ? gamma ** lastEpoch
          : 1);
    if (this.cycleMomentum) {
      const [low, high] = [this.baseMomentums, this.maxMomentums];
      groupsOf(this.optimizer).forEach((group, i) => {
        if (i < low.length)
          setMomentum(
            group,
            (high[i] as number) - ((high[i] as number) - (low[i] as number)) * scale,
          );
      });
    }
    return this.baseLrs.map((low, i) => low + ((this.maxLrs[i] as number) - low) * scale);
  }
}
