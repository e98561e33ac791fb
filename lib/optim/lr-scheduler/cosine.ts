/** Schedules that lower the rates along a cosine. */
import { type ArgumentsOf, defineArguments } from '../../core/signature.js';
import type { Optimizer } from '../optimizer.js';
import { LRScheduler } from './scheduler.js';
import type { SchedulerState } from './state.js';

const cosineArguments = defineArguments(
  'CosineAnnealingLR(optimizer, /, TMax, etaMin, lastEpoch)',
  (optimizer: Optimizer, TMax: number, etaMin = 0, lastEpoch = -1) => ({
    optimizer,
    TMax,
    etaMin,
    lastEpoch,
  }),
);

/**
 * Anneals the rates along half a cosine to `etaMin`. @see Loshchilov and Hutter, arXiv:1608.03983
 */
export class CosineAnnealingLR extends LRScheduler {
  /** The number of steps from the initial learning rate to the lowest. */
  declare readonly TMax: number;
  /** The lowest learning rate. */
  declare readonly etaMin: number;

  constructor(...args: ArgumentsOf<typeof cosineArguments>) {
    const { optimizer, lastEpoch, ...settings } = cosineArguments(...args);
    super(optimizer, lastEpoch);
    this.start(settings, { TMax: { from: 1, whole: true }, etaMin: {} });
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
 * Anneals along cosines with warm restarts; each is `TMult` times as long as the one before. @see
 * Loshchilov and Hutter, arXiv:1608.03983
 */
export class CosineAnnealingWarmRestarts extends LRScheduler {
  /** The number of steps before the first restart. */
  declare readonly T0: number;
  /** The factor of that number after each restart. */
  declare readonly TMult: number;
  /** The lowest learning rate. */
  declare readonly etaMin: number;

  constructor(...args: ArgumentsOf<typeof restartArguments>) {
    const { optimizer, lastEpoch, ...settings } = restartArguments(...args);
    super(optimizer, lastEpoch);
    this.start(settings, {
      T0: { from: 1, whole: true },
      TMult: { from: 1, whole: true },
      etaMin: {},
    });
  }

  /** PyTorch also saves the position in the cosine; here it follows from the step. */
  override stateDict(): SchedulerState {
    const { at, length } = this.cycle();
    return { ...super.stateDict(), T_cur: at, T_i: length };
  }

  /** The length of the current cosine, and the step in it. */
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
