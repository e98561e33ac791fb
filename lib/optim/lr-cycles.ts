/** Schedules that move momentum along, combine others, or react to a metric. */
import { ArgumentError } from '../core/errors.js';
import { checkNumber, checkOneOf, optionsOf, unexpected } from '../core/options.js';
import { LRScheduler, type ScheduleOptions } from './lr-scheduler.js';
import { Optimizer } from './optimizer.js';
import { checkState, type SchedulerState, stateOf, takeUp } from './scheduler-state.js';

type MomentumGroup = { lr: number; initialLr?: number; momentum?: number; betas?: readonly [number, number] };

const groupsOf = (optimizer: Optimizer): MomentumGroup[] => optimizer.paramGroups as unknown as MomentumGroup[];

function setMomentum(group: MomentumGroup, value: number): void {
  if (group.betas !== undefined) group.betas = [value, group.betas[1]];
  else group.momentum = value;
}

/** One value for each group. @throws ArgumentError for a list of another length, and for what is not a number */
function perGroup(op: string, name: string, value: number | readonly number[], optimizer: Optimizer): number[] {
  const groups = optimizer.paramGroups.length;
  const list = Array.isArray(value) ? [...(value as readonly number[])] : Array<number>(groups).fill(value as number);
  if (list.length !== groups) throw unexpected(op, name, `one number, or ${groups}, one for each group`, value);
  for (const each of list) checkNumber(op, name, each);
  return list;
}

/** Checks what cycles beside the rate. @throws ArgumentError if the optimizer has neither momentum nor betas */
function checkMomentum(op: string, optimizer: Optimizer, base: unknown, max: unknown): void {
  checkNumber(op, 'baseMomentum', base, { from: 0, to: 1 });
  checkNumber(op, 'maxMomentum', max, { from: 0, to: 1 });
  if (groupsOf(optimizer).some((group) => group.momentum === undefined && group.betas === undefined))
    throw new ArgumentError(`${op}: cycleMomentum needs an optimizer with momentum or betas, ${optimizer.constructor.name} has neither`, { op });
}

/** Options of {@link OneCycleLR}. */
export interface OneCycleOptions extends ScheduleOptions {
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
    if (cycleMomentum) checkMomentum('OneCycleLR', optimizer, baseMomentum, maxMomentum);
    const total = totalStepsOf(options);
    this.totalSteps = total;
    this.levels = perGroup('OneCycleLR', 'maxLr', options.maxLr, optimizer).map((max) => ({ initial: max / divFactor, max, min: max / divFactor / finalDivFactor }));
    this.momenta = cycleMomentum ? { base: baseMomentum, max: maxMomentum } : null;
    this.anneal = annealStrategy === 'cos' ? (from, to, at) => to + ((from - to) / 2) * (Math.cos(Math.PI * at) + 1) : (from, to, at) => (to - from) * at + from;
    if (this.lastEpoch === -1) this.startFrom(this.levels.map(({ initial }) => initial));
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
    const part = phase.end === start ? 1 : (at - start) / (phase.end - start);
    const momenta = this.momenta;
    if (momenta !== null) {
      for (const group of groupsOf(this.optimizer)) setMomentum(group, this.anneal(momenta[phase.momentum[0]], momenta[phase.momentum[1]], part));
    }
    return this.levels.map((level) => this.anneal(level[phase.lr[0]], level[phase.lr[1]], part));
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
  baseMomentum?: number;
  maxMomentum?: number;
}

/** Back and forth between two rates. @see Smith, arXiv:1506.01186 */
export class CyclicLR extends LRScheduler {
  private readonly low: number[];
  private readonly high: number[];
  private readonly options: Required<Omit<CyclicOptions, 'baseLr' | 'maxLr' | 'lastEpoch'>>;

  constructor(optimizer: Optimizer, options: CyclicOptions) {
    const { baseLr, maxLr, lastEpoch, ...rest } = optionsOf('CyclicLR', options);
    super(optimizer, lastEpoch);
    this.low = perGroup('CyclicLR', 'baseLr', baseLr, optimizer);
    this.high = perGroup('CyclicLR', 'maxLr', maxLr, optimizer);
    this.options = { stepSizeUp: 2000, stepSizeDown: null, mode: 'triangular', gamma: 1, cycleMomentum: true, baseMomentum: 0.8, maxMomentum: 0.9, ...rest };
    const { stepSizeUp, stepSizeDown, mode, gamma, cycleMomentum, baseMomentum, maxMomentum } = this.options;
    checkNumber('CyclicLR', 'stepSizeUp', stepSizeUp, { above: 0 });
    if (stepSizeDown !== null) checkNumber('CyclicLR', 'stepSizeDown', stepSizeDown, { from: 0 });
    checkOneOf('CyclicLR', 'mode', mode, ['triangular', 'triangular2', 'exp_range']);
    checkNumber('CyclicLR', 'gamma', gamma);
    if (cycleMomentum) checkMomentum('CyclicLR', optimizer, baseMomentum, maxMomentum);
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

/** @throws ArgumentError unless all are schedules of one optimizer */
function checkSchedules(op: string, schedulers: readonly LRScheduler[], optimizer?: Optimizer): void {
  if (!Array.isArray(schedulers) || schedulers.length === 0) throw unexpected(op, 'schedulers', 'a list of at least one schedule', schedulers);
  schedulers.forEach((each, i) => {
    if (!(each instanceof LRScheduler)) throw unexpected(op, `schedule ${i}`, 'an LRScheduler', each);
    if (each.optimizer !== (optimizer ?? schedulers[0]?.optimizer)) throw new ArgumentError(`${op}: schedule ${i} belongs to another optimizer`, { op, index: i });
  });
}

/** Schedules one after another, changing at milestones. */
export class SequentialLR extends LRScheduler {
  private readonly schedulers: readonly LRScheduler[];
  private readonly milestones: readonly number[];

  /** @throws ArgumentError unless all are schedules of the optimizer, with an ascending milestone between each two */
  constructor(optimizer: Optimizer, schedulers: readonly LRScheduler[], options: { milestones: readonly number[] } & ScheduleOptions) {
    const { milestones, lastEpoch } = optionsOf('SequentialLR', options, 'milestones lastEpoch');
    super(optimizer, lastEpoch);
    checkSchedules('SequentialLR', schedulers, optimizer);
    if (!Array.isArray(milestones) || schedulers.length !== milestones.length + 1) {
      throw unexpected('SequentialLR', 'milestones', `a list of ${schedulers.length - 1}, one less than schedules`, milestones);
    }
    milestones.forEach((each, i) => {
      checkNumber('SequentialLR', `milestone ${i}`, each, { from: (milestones as number[])[i - 1] ?? 0, whole: true });
    });
    this.schedulers = [...schedulers];
    this.milestones = [...milestones];
    if (this.lastEpoch === -1) for (const group of groupsOf(optimizer)) group.lr = group.initialLr as number;
    for (const each of schedulers) each.undo();
    this.begin();
  }

  protected rates(initial: boolean): number[] {
    const i = this.milestones.filter((m) => m <= this.lastEpoch).length;
    const active = this.schedulers[i] as LRScheduler;
    if (i > 0 && this.milestones[i - 1] === this.lastEpoch) {
      active.restart();
      for (const group of groupsOf(this.optimizer)) group.lr = group.initialLr as number;
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

  /** Position, and the states of the schedules. */
  override stateDict(): SchedulerState {
    return { ...this.ownState(), schedulers: this.schedulers.map((each) => each.stateDict()) };
  }

  override loadStateDict(state: SchedulerState): void {
    const { schedulers, ...own } = optionsOf('SequentialLR.loadStateDict', state);
    checkState('SequentialLR', this.ownState(), own);
    loadAll('SequentialLR', this.schedulers, schedulers);
    Object.assign(this, structuredClone(own));
  }

  private ownState(): SchedulerState {
    const { schedulers: _schedulers, ...own } = { ...this };
    return stateOf(own);
  }
}

/** @throws ArgumentError if there are not as many states as schedules */
function loadAll(op: string, schedulers: readonly LRScheduler[], states: unknown): void {
  if (!Array.isArray(states) || states.length !== schedulers.length) {
    throw unexpected(`${op}.loadStateDict`, 'schedulers', `a list of the states of ${schedulers.length} schedules`, states);
  }
  schedulers.forEach((each, i) => each.loadStateDict(states[i] as SchedulerState));
}

/** Several schedules at once, each changing what the one before left. */
export class ChainedScheduler {
  private readonly schedulers: readonly LRScheduler[];

  /** @throws ArgumentError unless there is at least one schedule, and all are of one optimizer */
  constructor(schedulers: readonly LRScheduler[]) {
    checkSchedules('ChainedScheduler', schedulers);
    this.schedulers = [...schedulers];
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
  loadStateDict(state: SchedulerState): void {
    const { schedulers } = optionsOf('ChainedScheduler.loadStateDict', state);
    loadAll('ChainedScheduler', this.schedulers, schedulers);
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
  /** Steps taken. */
  lastEpoch = 0;
  private readonly options: Required<PlateauOptions>;
  private best: number;
  private badEpochs = 0;
  private coolingFor = 0;

  constructor(optimizer: Optimizer, options: PlateauOptions = {}) {
    const op = 'ReduceLROnPlateau';
    if (!(optimizer instanceof Optimizer)) throw unexpected(op, 'optimizer', 'an optimizer', optimizer);
    this.optimizer = optimizer;
    this.options = { mode: 'min', factor: 0.1, patience: 10, threshold: 1e-4, thresholdMode: 'rel', cooldown: 0, minLr: 0, eps: 1e-8, ...optionsOf(op, options) };
    const { mode, factor, patience, threshold, thresholdMode, cooldown, minLr, eps } = this.options;
    checkOneOf(op, 'mode', mode, ['min', 'max']);
    checkOneOf(op, 'thresholdMode', thresholdMode, ['rel', 'abs']);
    checkNumber(op, 'factor', factor, { from: 0, below: 1 });
    checkNumber(op, 'patience', patience, { from: 0, whole: true });
    checkNumber(op, 'cooldown', cooldown, { from: 0, whole: true });
    checkNumber(op, 'threshold', threshold);
    checkNumber(op, 'eps', eps, { from: 0 });
    perGroup(op, 'minLr', minLr, optimizer);
    this.best = this.worst();
  }

  /** Takes the metric of an epoch, and lowers the rates if it has stalled. NaN counts as no improvement. @throws ArgumentError unless it is a number */
  step(metric: number): void {
    if (typeof metric !== 'number') throw unexpected('ReduceLROnPlateau', 'the metric', 'a number', metric);
    this.lastEpoch++;
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

  /** Takes up a position and settings. @throws ArgumentError for what is not the state of such a schedule */
  loadStateDict(state: SchedulerState): void {
    takeUp(this, state);
    // JSON has no infinity, the best metric before any.
    this.best ??= this.worst();
  }

  private worst(): number {
    return this.options.mode === 'min' ? Number.POSITIVE_INFINITY : Number.NEGATIVE_INFINITY;
  }

  private improves(metric: number): boolean {
    const { mode, threshold, thresholdMode } = this.options;
    const sign = mode === 'min' ? 1 : -1;
    const bar = thresholdMode === 'rel' ? this.best * (1 - sign * threshold) : this.best - sign * threshold;
    return mode === 'min' ? metric < bar : metric > bar;
  }

  private reduce(): void {
    const { factor, eps, minLr } = this.options;
    const lowest = perGroup('ReduceLROnPlateau', 'minLr', minLr, this.optimizer);
    groupsOf(this.optimizer).forEach((group, i) => {
      const next = Math.max(group.lr * factor, lowest[i] as number);
      if (group.lr - next > eps) group.lr = next;
    });
  }
}
