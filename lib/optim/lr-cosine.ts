/** Schedules along a cosine. */
import { checkNumber, optionsOf } from '../core/options.js';
import { LRScheduler, type ScheduleOptions } from './lr-scheduler.js';
import type { Optimizer } from './optimizer.js';
import type { SchedulerState } from './scheduler-state.js';

/** Half a cosine from the initial rate to `etaMin`. @see Loshchilov and Hutter, arXiv:1608.03983 */
export class CosineAnnealingLR extends LRScheduler {
  readonly TMax: number;
  readonly etaMin: number;

  constructor(optimizer: Optimizer, options: { TMax: number; etaMin?: number } & ScheduleOptions) {
    const { TMax, etaMin = 0, lastEpoch } = optionsOf('CosineAnnealingLR', options, 'TMax etaMin lastEpoch');
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
      return this.baseLrs.map((base, i) => (lrs[i] as number) + ((base - etaMin) * (1 - Math.cos(Math.PI / TMax))) / 2);
    }
    const factor = (1 + Math.cos((Math.PI * at) / TMax)) / (1 + Math.cos((Math.PI * (at - 1)) / TMax));
    return this.current().map((lr) => factor * (lr - etaMin) + etaMin);
  }
}

/** Cosines that start again, each `TMult` times as long. @see Loshchilov and Hutter, arXiv:1608.03983 */
export class CosineAnnealingWarmRestarts extends LRScheduler {
  readonly T0: number;
  readonly TMult: number;
  readonly etaMin: number;

  constructor(optimizer: Optimizer, options: { T0: number; TMult?: number; etaMin?: number } & ScheduleOptions) {
    const { T0, TMult = 1, etaMin = 0, lastEpoch } = optionsOf('CosineAnnealingWarmRestarts', options, 'T0 TMult etaMin lastEpoch');
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
    return this.baseLrs.map((lr) => this.etaMin + ((lr - this.etaMin) * (1 + Math.cos((Math.PI * at) / length))) / 2);
  }
}
