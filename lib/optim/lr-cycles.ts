/** Schedules that move momentum along, combine others, or react to a metric. */
import { ArgumentError } from '../core/errors.js';
import { LRScheduler } from './lr-scheduler.js';
import type { Optimizer } from './optimizer.js';
import { type SchedulerState, stateOf } from './scheduler-state.js';

type MomentumGroup = { lr: number; initialLr?: number; momentum?: number; betas?: readonly [number, number] };

const groupsOf = (optimizer: Optimizer): MomentumGroup[] => optimizer.paramGroups as unknown as MomentumGroup[];

function setMomentum(group: MomentumGroup, value: number): void {
  if (group.betas !== undefined) group.betas = [value, group.betas[1]];
  else group.momentum = value;
}

const perGroup = (value: number | readonly number[], optimizer: Optimizer): number[] => (typeof value === 'number' ? groupsOf(optimizer).map(() => value) : [...value]);

/** Options of {@link OneCycleLR}. */
export interface OneCycleOptions {
  maxLr: number | readonly number[];
  totalSteps?: number;
  epochs?: number;
  stepsPerEpoch?: number;
  pctStart?: number;
  annealStrategy?: 'cos' | 'linear';
  cycleMomentum?: boolean;
  baseMomentum?: number;
  maxMomentum?: number;
  divFactor?: number;
  finalDivFactor?: number;
  threePhase?: boolean;
}

interface Phase {
  end: number;
  lr: [from: 'initial' | 'max' | 'min', to: 'initial' | 'max' | 'min'];
  momentum: [from: 'base' | 'max', to: 'base' | 'max'];
}

/** Up to a maximum and down to far below the start. @see Smith and Topin, arXiv:1708.07120 */
export class OneCycleLR extends LRScheduler {
  private readonly phases: Phase[];
  private readonly levels: { initial: number; max: number; min: number }[];
  private readonly momenta: { base: number; max: number } | null;
  private readonly anneal: (from: number, to: number, at: number) => number;
  readonly totalSteps: number;

  constructor(optimizer: Optimizer, options: OneCycleOptions) {
    super(optimizer);
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
    const total = options.totalSteps ?? (options.epochs ?? 0) * (options.stepsPerEpoch ?? 0);
    if (!Number.isInteger(total) || total < 1) throw new ArgumentError('OneCycleLR: give totalSteps, or epochs and stepsPerEpoch');
    this.totalSteps = total;
    this.levels = perGroup(options.maxLr, optimizer).map((max) => ({ initial: max / divFactor, max, min: max / divFactor / finalDivFactor }));
    this.momenta = cycleMomentum ? { base: baseMomentum, max: maxMomentum } : null;
    this.anneal = annealStrategy === 'cos' ? (from, to, at) => to + ((from - to) / 2) * (Math.cos(Math.PI * at) + 1) : (from, to, at) => (to - from) * at + from;
    const top = pctStart * total - 1;
    const up: Phase = { end: top, lr: ['initial', 'max'], momentum: ['max', 'base'] };
    this.phases = threePhase
      ? [up, { end: 2 * pctStart * total - 2, lr: ['max', 'initial'], momentum: ['base', 'max'] }, { end: total - 1, lr: ['initial', 'min'], momentum: ['max', 'max'] }]
      : [up, { end: total - 1, lr: ['max', 'min'], momentum: ['base', 'max'] }];
    this.begin();
  }

  protected rates(): number[] {
    const at = this.lastEpoch;
    if (at > this.totalSteps) throw new ArgumentError(`OneCycleLR: stepped ${at} times, the cycle has ${this.totalSteps} steps`);
    const i = this.phases.findIndex((phase, k) => at <= phase.end || k === this.phases.length - 1);
    const phase = this.phases[i] as Phase;
    const start = i === 0 ? 0 : (this.phases[i - 1] as Phase).end;
    const part = (at - start) / (phase.end - start);
    const momenta = this.momenta;
    if (momenta !== null) {
      for (const group of groupsOf(this.optimizer)) setMomentum(group, this.anneal(momenta[phase.momentum[0]], momenta[phase.momentum[1]], part));
    }
    return this.levels.map((level) => this.anneal(level[phase.lr[0]], level[phase.lr[1]], part));
  }
}

/** Options of {@link CyclicLR}. */
export interface CyclicOptions {
  baseLr: number | readonly number[];
  maxLr: number | readonly number[];
  stepSizeUp?: number;
  stepSizeDown?: number | null;
  mode?: 'triangular' | 'triangular2' | 'exp_range';
  gamma?: number;
  cycleMomentum?: boolean;
  baseMomentum?: number;
  maxMomentum?: number;
}

/** Back and forth between two rates. @see Smith, arXiv:1506.01186 */
export class CyclicLR extends LRScheduler {
  private readonly low: number[];
  private readonly high: number[];
  private readonly options: Required<Omit<CyclicOptions, 'baseLr' | 'maxLr'>>;

  constructor(optimizer: Optimizer, { baseLr, maxLr, ...options }: CyclicOptions) {
    super(optimizer);
    this.low = perGroup(baseLr, optimizer);
    this.high = perGroup(maxLr, optimizer);
    this.options = { stepSizeUp: 2000, stepSizeDown: null, mode: 'triangular', gamma: 1, cycleMomentum: true, baseMomentum: 0.8, maxMomentum: 0.9, ...options };
    this.begin();
  }

  protected rates(): number[] {
    const { stepSizeUp, stepSizeDown, mode, gamma, cycleMomentum, baseMomentum, maxMomentum } = this.options;
    const total = stepSizeUp + (stepSizeDown ?? stepSizeUp);
    const ratio = stepSizeUp / total;
    const cycle = Math.floor(1 + this.lastEpoch / total);
    const x = 1 + this.lastEpoch / total - cycle;
    const height = x <= ratio ? x / ratio : (x - 1) / (ratio - 1);
    const scale = mode === 'triangular2' ? 1 / 2 ** (cycle - 1) : mode === 'exp_range' ? gamma ** this.lastEpoch : 1;
    if (cycleMomentum) for (const group of groupsOf(this.optimizer)) setMomentum(group, maxMomentum - (maxMomentum - baseMomentum) * height * scale);
    return this.low.map((low, i) => low + ((this.high[i] as number) - low) * height * scale);
  }
}

/** Schedules one after another, changing at milestones. */
export class SequentialLR extends LRScheduler {
  private readonly schedulers: readonly LRScheduler[];
  private readonly milestones: readonly number[];

  constructor(optimizer: Optimizer, schedulers: readonly LRScheduler[], { milestones }: { milestones: readonly number[] }) {
    super(optimizer);
    if (schedulers.length !== milestones.length + 1)
      throw new ArgumentError(`SequentialLR: ${schedulers.length} schedules need ${schedulers.length - 1} milestones, got ${milestones.length}`);
    this.schedulers = schedulers;
    this.milestones = milestones;
    for (const group of groupsOf(optimizer)) group.lr = group.initialLr as number;
    for (const each of schedulers) each.lastEpoch = -1;
    this.begin();
  }

  protected rates(): number[] {
    const i = this.milestones.filter((m) => m <= this.lastEpoch).length;
    const active = this.schedulers[i] as LRScheduler;
    if (i > 0 && this.milestones[i - 1] === this.lastEpoch) {
      active.lastEpoch = -1;
      for (const group of groupsOf(this.optimizer)) group.lr = group.initialLr as number;
    }
    active.step();
    return active.getLastLr();
  }

  /** Position, and the states of the schedules. */
  override stateDict(): SchedulerState {
    const { schedulers, ...own } = { ...this };
    return { ...stateOf(own), schedulers: schedulers.map((each) => each.stateDict()) };
  }

  override loadStateDict({ schedulers, ...own }: SchedulerState): void {
    Object.assign(this, own);
    loadAll(this.schedulers, schedulers);
  }
}

/** @throws ArgumentError if there are not as many states as schedules */
function loadAll(schedulers: readonly LRScheduler[], states: unknown): void {
  if (!Array.isArray(states) || states.length !== schedulers.length) throw new ArgumentError(`loadStateDict: expected the states of ${schedulers.length} schedules`);
  schedulers.forEach((each, i) => each.loadStateDict(states[i] as SchedulerState));
}

/** Several schedules at once, each changing what the one before left. */
export class ChainedScheduler {
  private readonly schedulers: readonly LRScheduler[];

  constructor(schedulers: readonly LRScheduler[]) {
    if (schedulers.length === 0) throw new ArgumentError('ChainedScheduler: expected at least one schedule');
    this.schedulers = schedulers;
  }

  /** Moves all on by one step. */
  step(): void {
    for (const each of this.schedulers) each.step();
  }

  /** The rates set last, one for each group. */
  getLastLr(): number[] {
    return groupsOf((this.schedulers[0] as LRScheduler).optimizer).map((g) => g.lr);
  }

  /** The states of the schedules. */
  stateDict(): SchedulerState {
    return { schedulers: this.schedulers.map((each) => each.stateDict()) };
  }

  /** @throws ArgumentError if there are not as many states as schedules */
  loadStateDict({ schedulers }: SchedulerState): void {
    loadAll(this.schedulers, schedulers);
  }
}

/** Options of {@link ReduceLROnPlateau}. */
export interface PlateauOptions {
  mode?: 'min' | 'max';
  factor?: number;
  patience?: number;
  threshold?: number;
  thresholdMode?: 'rel' | 'abs';
  cooldown?: number;
  minLr?: number | readonly number[];
  eps?: number;
}

/** A factor when a metric has not improved for a while. */
export class ReduceLROnPlateau {
  readonly optimizer: Optimizer;
  private readonly options: Required<PlateauOptions>;
  private best: number;
  private badEpochs = 0;
  private coolingFor = 0;

  constructor(optimizer: Optimizer, options: PlateauOptions = {}) {
    this.optimizer = optimizer;
    this.options = { mode: 'min', factor: 0.1, patience: 10, threshold: 1e-4, thresholdMode: 'rel', cooldown: 0, minLr: 0, eps: 1e-8, ...options };
    if (this.options.factor >= 1) throw new ArgumentError(`ReduceLROnPlateau: factor must be below 1, got ${this.options.factor}`);
    this.best = this.options.mode === 'min' ? Number.POSITIVE_INFINITY : Number.NEGATIVE_INFINITY;
  }

  /** Takes the metric of an epoch, and lowers the rates if it has stalled. */
  step(metric: number): void {
    const { patience, cooldown } = this.options;
    if (this.improves(metric)) {
      this.best = metric;
      this.badEpochs = 0;
    } else this.badEpochs++;
    if (this.coolingFor > 0) {
      this.coolingFor--;
      this.badEpochs = 0;
    }
    if (this.badEpochs <= patience) return;
    this.reduce();
    this.coolingFor = cooldown;
    this.badEpochs = 0;
  }

  /** The present rates, one for each group. */
  getLastLr(): number[] {
    return groupsOf(this.optimizer).map((g) => g.lr);
  }

  /** Position and settings, to go on later. */
  stateDict(): SchedulerState {
    return stateOf(this);
  }

  /** Takes up a position and settings. */
  loadStateDict(state: SchedulerState): void {
    Object.assign(this, state);
  }

  private improves(metric: number): boolean {
    const { mode, threshold, thresholdMode } = this.options;
    const sign = mode === 'min' ? 1 : -1;
    const bar = thresholdMode === 'rel' ? this.best * (1 - sign * threshold) : this.best - sign * threshold;
    return mode === 'min' ? metric < bar : metric > bar;
  }

  private reduce(): void {
    const { factor, eps, minLr } = this.options;
    const lowest = perGroup(minLr, this.optimizer);
    groupsOf(this.optimizer).forEach((group, i) => {
      const next = Math.max(group.lr * factor, lowest[i] as number);
      if (group.lr - next > eps) group.lr = next;
    });
  }
}
