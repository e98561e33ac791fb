/** A schedule that reacts to a metric. */
import { checkNumber, checkOneOf, unexpected } from '../core/options.js';
import { type ArgumentsOf, defineArguments } from '../core/signature.js';
import { Optimizer } from './optimizer.js';
import { groupsOf, perGroup } from './scheduler-groups.js';
import { type SchedulerState, stateOf, takeUp } from './scheduler-state.js';

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

/** A factor when a metric has not improved for a while. */
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
   * Takes the metric of an epoch, and lowers the rates if it has stalled. NaN counts as no
   * improvement. @throws ArgumentError unless it is a number
   */
  step(metric: number): void {
    if (typeof metric !== 'number')
      throw unexpected('ReduceLROnPlateau', 'the metric', 'a number', metric);
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

  /** The present rates, one for each group. */
  getLastLr(): number[] {
    return groupsOf(this.optimizer).map((g) => g.lr);
  }

  /** Position and settings, to go on later. */
  stateDict(): SchedulerState {
    return { ...stateOf(this), _last_lr: this.getLastLr() };
  }

  /**
   * Takes up a position and settings. @throws ArgumentError for what is not the state of such a
   * schedule
   */
  loadStateDict(state: SchedulerState): void {
    takeUp(this, state);
    // JSON has no infinity, the best metric before any.
    this.best ??= this.worst();
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
      const next = Math.max(
        group.lr * this.factor,
        this.minLrs[i] ?? (this.minLrs.at(-1) as number),
      );
      if (group.lr - next > this.eps) group.lr = next;
    });
  }
}
