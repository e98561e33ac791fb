/** Schedules that move momentum along. */
import { ArgumentError } from '../core/errors.js';
import { checkNumber, checkOneOf, optionsOf } from '../core/options.js';
import { LRScheduler, type ScheduleOptions } from './lr-scheduler.js';
import type { Optimizer } from './optimizer.js';
import { groupsOf, momentaOf, perGroup, type ScheduledGroup, setMomentum } from './scheduler-groups.js';
import type { SchedulerState } from './scheduler-state.js';

/** Options of {@link OneCycleLR}. */
export interface OneCycleOptions extends ScheduleOptions {
  maxLr: number | readonly number[];
  totalSteps?: number;
  epochs?: number;
  stepsPerEpoch?: number;
  pctStart?: number;
  annealStrategy?: 'cos' | 'linear';
  cycleMomentum?: boolean;
  baseMomentum?: number | readonly number[];
  maxMomentum?: number | readonly number[];
  divFactor?: number;
  finalDivFactor?: number;
  threePhase?: boolean;
}

/** A stretch of the cycle in PyTorch's form: up to which step, and between which values of a group, by their names. */
interface Phase {
  end_step: number;
  start_lr: Level;
  end_lr: Level;
  start_momentum: MomentumLevel;
  end_momentum: MomentumLevel;
}

type Level = 'initial_lr' | 'max_lr' | 'min_lr';
type MomentumLevel = 'base_momentum' | 'max_momentum';

const levels = { initial_lr: 'initialLr', max_lr: 'maxLr', min_lr: 'minLr', base_momentum: 'baseMomentum', max_momentum: 'maxMomentum' } as const;

const phase = (end_step: number, start_lr: Level, end_lr: Level, start_momentum: MomentumLevel, end_momentum: MomentumLevel): Phase => ({
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

/** Up to a maximum and down to far below the start. @see Smith and Topin, arXiv:1708.07120 */
export class OneCycleLR extends LRScheduler {
  readonly totalSteps: number;
  private readonly schedulePhases: Phase[];
  private readonly annealStrategy: 'cos' | 'linear';
  private readonly cycleMomentum: boolean;

  constructor(optimizer: Optimizer, options: OneCycleOptions) {
    super(optimizer, optionsOf('OneCycleLR', options).lastEpoch);
    const {
      pctStart = 0.3,
      annealStrategy = 'cos',
      cycleMomentum = true,
      baseMomentum = 0.85,
      maxMomentum = 0.95,
      divFactor = 25,
      finalDivFactor = 1e4,
      threePhase = false,
    } = options;
    checkNumber('OneCycleLR', 'pctStart', pctStart, { from: 0, to: 1 });
    checkOneOf('OneCycleLR', 'annealStrategy', annealStrategy, ['cos', 'linear']);
    checkNumber('OneCycleLR', 'divFactor', divFactor, { above: 0 });
    checkNumber('OneCycleLR', 'finalDivFactor', finalDivFactor, { above: 0 });
    this.totalSteps = totalStepsOf(options);
    this.annealStrategy = annealStrategy;
    this.cycleMomentum = cycleMomentum;
    this.setLevels(perGroup('OneCycleLR', 'maxLr', options.maxLr, optimizer), divFactor, finalDivFactor);
    if (cycleMomentum) this.setMomenta(momentaOf('OneCycleLR', 'baseMomentum', baseMomentum, optimizer), momentaOf('OneCycleLR', 'maxMomentum', maxMomentum, optimizer));
    const top = pctStart * this.totalSteps - 1;
    const up = phase(top, 'initial_lr', 'max_lr', 'max_momentum', 'base_momentum');
    this.schedulePhases = threePhase
      ? [up, phase(2 * top, 'max_lr', 'initial_lr', 'base_momentum', 'max_momentum'), phase(this.totalSteps - 1, 'initial_lr', 'min_lr', 'max_momentum', 'max_momentum')]
      : [up, phase(this.totalSteps - 1, 'max_lr', 'min_lr', 'base_momentum', 'max_momentum')];
    this.begin();
  }

  /** A run that goes on has them in the groups of its optimizer. */
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
    if (at > this.totalSteps) throw new ArgumentError(`OneCycleLR: stepped ${at} times, the cycle has ${this.totalSteps} steps`);
    const phases = this.schedulePhases;
    const i = phases.findIndex(({ end_step }, k) => at <= end_step || k === phases.length - 1);
    const { end_step: end, start_lr, end_lr, start_momentum, end_momentum } = phases[i] as Phase;
    const start = i === 0 ? 0 : (phases[i - 1] as Phase).end_step;
    const part = end === start ? 1 : (at - start) / (end - start);
    const anneal = annealing[this.annealStrategy];
    const between = (group: ScheduledGroup, from: Level | MomentumLevel, to: Level | MomentumLevel): number =>
      anneal(group[levels[from]] as number, group[levels[to]] as number, part);
    // Groups that came later have no levels, and keep their rates.
    const groups = groupsOf(this.optimizer).slice(0, this.baseLrs.length);
    if (this.cycleMomentum) for (const group of groups) setMomentum(group, between(group, start_momentum, end_momentum));
    return groups.map((group) => between(group, start_lr, end_lr));
  }
}

function totalStepsOf({ totalSteps, epochs, stepsPerEpoch }: OneCycleOptions): number {
  if (totalSteps === undefined && (epochs === undefined || stepsPerEpoch === undefined)) throw new ArgumentError('OneCycleLR: give totalSteps, or epochs and stepsPerEpoch');
  for (const [name, value] of Object.entries(totalSteps === undefined ? { epochs, stepsPerEpoch } : { totalSteps })) {
    checkNumber('OneCycleLR', name, value, { from: 1, whole: true });
  }
  return totalSteps ?? (epochs as number) * (stepsPerEpoch as number);
}

/** Options of {@link CyclicLR}. */
export interface CyclicOptions extends ScheduleOptions {
  baseLr: number | readonly number[];
  maxLr: number | readonly number[];
  stepSizeUp?: number;
  stepSizeDown?: number | null;
  mode?: 'triangular' | 'triangular2' | 'exp_range';
  gamma?: number;
  cycleMomentum?: boolean;
  baseMomentum?: number | readonly number[];
  maxMomentum?: number | readonly number[];
}

/** Back and forth between two rates. @see Smith, arXiv:1506.01186 */
export class CyclicLR extends LRScheduler {
  private readonly maxLrs: number[];
  private readonly totalSize: number;
  private readonly stepRatio: number;
  private readonly mode: 'triangular' | 'triangular2' | 'exp_range';
  private readonly gamma: number;
  private readonly cycleMomentum: boolean;
  private readonly baseMomentums: number[];
  private readonly maxMomentums: number[];

  constructor(optimizer: Optimizer, options: CyclicOptions) {
    const op = 'CyclicLR';
    const { baseLr, maxLr, lastEpoch, ...rest } = optionsOf(op, options);
    super(optimizer, lastEpoch);
    const low = perGroup(op, 'baseLr', baseLr, optimizer);
    this.maxLrs = perGroup(op, 'maxLr', maxLr, optimizer);
    const settings = { stepSizeUp: 2000, stepSizeDown: null, mode: 'triangular' as const, gamma: 1, cycleMomentum: true, baseMomentum: 0.8, maxMomentum: 0.9, ...rest };
    const { stepSizeUp, stepSizeDown, mode, gamma, cycleMomentum, baseMomentum, maxMomentum } = settings;
    checkNumber(op, 'stepSizeUp', stepSizeUp, { above: 0 });
    if (stepSizeDown !== null) checkNumber(op, 'stepSizeDown', stepSizeDown, { from: 0 });
    checkOneOf(op, 'mode', mode, ['triangular', 'triangular2', 'exp_range']);
    checkNumber(op, 'gamma', gamma);
    this.totalSize = stepSizeUp + (stepSizeDown ?? stepSizeUp);
    this.stepRatio = stepSizeUp / this.totalSize;
    this.mode = mode;
    this.gamma = gamma;
    this.cycleMomentum = cycleMomentum;
    this.baseMomentums = cycleMomentum ? momentaOf(op, 'baseMomentum', baseMomentum, optimizer) : [];
    this.maxMomentums = cycleMomentum ? momentaOf(op, 'maxMomentum', maxMomentum, optimizer) : [];
    this.baseLrs.splice(0, this.baseLrs.length, ...low);
    this.begin();
  }

  /** With what PyTorch's looks for when it loads: there may be a function in the place of a mode. */
  override stateDict(): SchedulerState {
    return { ...super.stateDict(), scale_mode: this.mode === 'exp_range' ? 'iterations' : 'cycle', _scale_fn_custom: null };
  }

  protected rates(): number[] {
    const { totalSize, stepRatio, mode, gamma, lastEpoch } = this;
    const cycle = Math.floor(1 + lastEpoch / totalSize);
    const x = 1 + lastEpoch / totalSize - cycle;
    const height = x <= stepRatio ? x / stepRatio : (x - 1) / (stepRatio - 1);
    const scale = height * (mode === 'triangular2' ? 1 / 2 ** (cycle - 1) : mode === 'exp_range' ? gamma ** lastEpoch : 1);
    if (this.cycleMomentum) {
      const [low, high] = [this.baseMomentums, this.maxMomentums];
      groupsOf(this.optimizer).forEach((group, i) => {
        if (i < low.length) setMomentum(group, (high[i] as number) - ((high[i] as number) - (low[i] as number)) * scale);
      });
    }
    return this.baseLrs.map((low, i) => low + ((this.maxLrs[i] as number) - low) * scale);
  }
}
