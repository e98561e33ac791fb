/** A schedule that lowers the rates when a metric stops improving. */
import { checkNumber, checkOneOf, unexpected } from '../../core/options.js';
import { PREPARE_LOAD } from '../../core/prepare-load.js';
import { type ArgumentsOf, defineArguments } from '../../core/signature.js';
import { reportCall } from '../../core/unrepeatable.js';
import { Optimizer } from '../optimizer.js';
import { groupsOf, perGroup, rateOf, setRate } from './scheduler.js';
import { prepareState, type SchedulerState, stateOf } from './state.js';

const plateauArguments = defineArguments(
  'ReduceLROnPlateau(optimizer, /, mode, factor, patience, threshold, thresholdMode, cooldown, minLr, eps)',
  (
    optimizer: Optimizer,
    mode: 'min' | 'max' = 'min',
    factor = 0.1,
    patience = 10,
    threshold = 1e-4,
    thresholdMode: 'rel' | 'abs' = 'rel',
    cooldown = 0,
    minLr: number | readonly number[] = 0,
    eps = 1e-8,
  ) => ({ optimizer, mode, factor, patience, threshold, thresholdMode, cooldown, minLr, eps }),
);

/** Multiplies the rates by `factor` when a metric has not improved for `patience` steps. */
export class ReduceLROnPlateau {
  /** The optimizer whose learning rates change. */
  readonly optimizer: Optimizer;
  /** Steps taken. */
  lastEpoch = 0;
  private readonly mode: 'min' | 'max';
  private readonly factor: number;
  private readonly patience: number;
  private readonly threshold: number;
  private readonly thresholdMode: 'rel' | 'abs';
  private readonly cooldown: number;
  private readonly minLrs: number[];
  private readonly eps: number;
  private best: number;
  private numBadEpochs = 0;
  private cooldownCounter = 0;

  constructor(...args: ArgumentsOf<typeof plateauArguments>) {
    const op = 'ReduceLROnPlateau';
    const { optimizer, mode, factor, patience, threshold, thresholdMode, cooldown, minLr, eps } =
      plateauArguments(...args);
    if (!(optimizer instanceof Optimizer))
      throw unexpected(op, 'optimizer', 'an optimizer', optimizer);
    checkOneOf(op, 'mode', mode, ['min', 'max']);
    checkOneOf(op, 'thresholdMode', thresholdMode, ['rel', 'abs']);
    checkNumber(op, 'factor', factor, { from: 0, below: 1 });
    checkNumber(op, 'patience', patience, { from: 0, whole: true });
    checkNumber(op, 'cooldown', cooldown, { from: 0, whole: true });
    checkNumber(op, 'threshold', threshold);
    checkNumber(op, 'eps', eps, { from: 0 });
    this.optimizer = optimizer;
    this.mode = mode;
    this.factor = factor;
    this.patience = patience;
    this.threshold = threshold;
    this.thresholdMode = thresholdMode;
    this.cooldown = cooldown;
    this.minLrs = perGroup(op, 'minLr', minLr, optimizer);
    this.eps = eps;
    this.best = this.worst();
  }

  /**
   * Lowers the rates if the metric of this epoch has stalled. NaN counts as no improvement. @throws
   * ArgumentError unless the metric is a number
   */
  step(metric: number): void {
    if (typeof metric !== 'number')
      throw unexpected('ReduceLROnPlateau', 'the metric', 'a number', metric);
    reportCall(this, 'step');
    this.lastEpoch++;
    if (this.improves(metric)) {
      this.best = metric;
      this.numBadEpochs = 0;
    } else this.numBadEpochs++;
    if (this.cooldownCounter > 0) {
      this.cooldownCounter--;
      this.numBadEpochs = 0;
    }
    if (this.numBadEpochs <= this.patience) return;
    this.reduce();
    this.cooldownCounter = this.cooldown;
    this.numBadEpochs = 0;
  }

  /** The current rates, one for each group. */
  getLastLr(): number[] {
    reportCall(this, 'getLastLr');
    return groupsOf(this.optimizer).map(rateOf);
  }

  /** Step count and settings under PyTorch's names. */
  stateDict(): SchedulerState {
    return { ...stateOf(this), _last_lr: this.getLastLr() };
  }

  /**
   * Restores a state; PyTorch's states load, too. @throws ArgumentError if the state is not that of
   * such a schedule
   */
  loadStateDict(state: SchedulerState): void {
    this.prepareLoad(state)();
  }

  /** @internal */
  [PREPARE_LOAD](state: SchedulerState): (() => void) | null {
    const isOwn = this.loadStateDict === ReduceLROnPlateau.prototype.loadStateDict;
    return isOwn ? this.prepareLoad(state) : null;
  }

  private prepareLoad(state: SchedulerState): () => void {
    const load = prepareState(this, state);
    return () => {
      load();
      // JSON turns the infinity that `best` starts with into null.
      this.best ??= this.worst();
    };
  }

  private worst(): number {
    return this.mode === 'min' ? Number.POSITIVE_INFINITY : Number.NEGATIVE_INFINITY;
  }

  private improves(metric: number): boolean {
    const { mode, threshold, thresholdMode } = this;
    const sign = mode === 'min' ? 1 : -1;
    const bar =
      thresholdMode === 'rel' ? this.best * (1 - sign * threshold) : this.best - sign * threshold;
    return mode === 'min' ? metric < bar : metric > bar;
  }

  private reduce(): void {
    groupsOf(this.optimizer).forEach((group, i) => {
      const rate = rateOf(group);
      const next = Math.max(rate * this.factor, this.minLrs[i] ?? (this.minLrs.at(-1) as number));
      if (rate - next > this.eps) setRate(group, next);
    });
  }
}
