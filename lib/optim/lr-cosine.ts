/** Schedules along a cosine. */
import { checkNumber } from '../core/options.js';
import { type ArgumentsOf, defineArguments } from '../core/signature.js';
import { LRScheduler } from './lr-scheduler.js';
import type { Optimizer } from './optimizer.js';
import type { SchedulerState } from './scheduler-state.js';

const cosineArguments = defineArguments(
  'CosineAnnealingLR(optimizer, /, TMax, etaMin, lastEpoch)',
  (optimizer: Optimizer, TMax: number, etaMin = 0, lastEpoch = -1) => ({
    optimizer,
    TMax,
    etaMin,
    lastEpoch,
  }),
);

/** Half a cosine from the initial rate to `etaMin`. @see Loshchilov and Hutter, arXiv:1608.03983 */
export class CosineAnnealingLR extends LRScheduler {
  /** The number of steps from the initial learning rate to the lowest. */
  readonly TMax: number;
  /** The lowest learning rate. */
  readonly etaMin: number;

  constructor(...args: ArgumentsOf<typeof cosineArguments>) {
    const { optimizer, TMax, etaMin, lastEpoch } = cosineArguments(...args);
    super(optimizer, lastEpoch);
    checkNumber('CosineAnnealingLR', 'TMax', TMax, { from: 1, whole: true });
    checkNumber('CosineAnnealingLR', 'etaMin', etaMin);
    this.TMax = TMax;
    this.etaMin = etaMin;
    this.begin();
  }

  protected rates(initial: boolean): number[] {
    const { TMax, etaMin, lastEpoch: at } = this;
    if (initial || at === 0) return this.current();
    if ((at - 1 - TMax) % (2 * TMax) === 0) {
      const lrs = this.current();
      return this.baseLrs.map(
        (base, i) => (lrs[i] as number) + ((base - etaMin) * (1 - Math.cos(Math.PI / TMax))) / 2,
      );
    }
    const factor =
      (1 + Math.cos((Math.PI * at) / TMax)) / (1 + Math.cos((Math.PI * (at - 1)) / TMax));
    return this.current().map((lr) => factor * (lr - etaMin) + etaMin);
  }
}

const restartArguments = defineArguments(
  'CosineAnnealingWarmRestarts(optimizer, /, T0, TMult, etaMin, lastEpoch)',
  (optimizer: Optimizer, T0: number, TMult = 1, etaMin = 0, lastEpoch = -1) => ({
    optimizer,
    T0,
    TMult,
    etaMin,
    lastEpoch,
  }),
);

/**
 * Cosines that start again, each `TMult` times as long. @see Loshchilov and Hutter,
 * arXiv:1608.03983
 */
export class CosineAnnealingWarmRestarts extends LRScheduler {
  /** The number of steps before the first restart. */
  readonly T0: number;
  /** The factor of that number after each restart. */
  readonly TMult: number;
  /** The lowest learning rate. */
  readonly etaMin: number;

  constructor(...args: ArgumentsOf<typeof restartArguments>) {
    const { optimizer, T0, TMult, etaMin, lastEpoch } = restartArguments(...args);
    super(optimizer, lastEpoch);
    checkNumber('CosineAnnealingWarmRestarts', 'T0', T0, { from: 1, whole: true });
    checkNumber('CosineAnnealingWarmRestarts', 'TMult', TMult, { from: 1, whole: true });
    checkNumber('CosineAnnealingWarmRestarts', 'etaMin', etaMin);
    this.T0 = T0;
    this.TMult = TMult;
    this.etaMin = etaMin;
    this.begin();
  }

  /** With PyTorch's position in the cosine, which follows from the step. */
  override stateDict(): SchedulerState {
    const { at, length } = this.cycle();
    return { ...super.stateDict(), T_cur: at, T_i: length };
  }

  private cycle(): { at: number; length: number } {
    let length = this.T0;
    let at = this.lastEpoch;
    while (at >= length) {
      at -= length;
      length *= this.TMult;
    }
    return { at, length };
  }

  protected rates(): number[] {
    const { at, length } = this.cycle();
    return this.baseLrs.map(
      (lr) => this.etaMin + ((lr - this.etaMin) * (1 + Math.cos((Math.PI * at) / length))) / 2,
    );
  }
}
