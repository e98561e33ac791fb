/**
 * The factor of the loss and the count of good steps, in tensors: steps of graphs change them, and
 * ranks of one process do without reading them.
 */
import { noGrad } from '../autograd/grad-mode.js';
import type { Device } from '../core/device.js';
import { float32, int64 } from '../core/dtype.js';
import { layers } from '../core/hooks.js';
import { belongsToOtherRank, otherRankError } from '../core/rank-runtime.js';
import { keep } from '../core/scope.js';
import type { Tensor } from '../core/tensor.js';
import { valueOn } from '../ops/beside.js';
import { full } from '../ops/factories.js';
import { where } from '../ops/where.js';

/** How the factor moves. */
export interface Growth {
  readonly growthFactor: number;
  readonly backoffFactor: number;
  readonly growthInterval: number;
}

export class ScaleFactor {
  /** What the tensors begin with. They are made on the device of the first loss or gradient. */
  private first: { readonly scale: number; readonly tracker: number };
  private tensors: { readonly scale: Tensor; readonly tracker: Tensor } | null = null;

  constructor(scale: number, tracker: number) {
    this.first = { scale, tracker };
  }

  /** The factor, made on `device` if it is not there. @throws DistributedError in another rank */
  on(device: Device): Tensor {
    this.tensors ??= this.outsideCapture(() => ({
      scale: keep(full([], this.first.scale, { dtype: float32, device })),
      tracker: keep(full([], this.first.tracker, { dtype: int64, device })),
    }));
    const { scale } = this.tensors;
    const { runtime } = scale.device;
    if (belongsToOtherRank(runtime)) throw otherRankError('GradScaler', 'the scaler', runtime);
    return scale;
  }

  /** Runs `make`; in a capture, of real tensors that every run goes on with. */
  private outsideCapture<T>(make: () => T): T {
    const { capture } = layers.backend;
    return noGrad(() => (capture === null ? make() : capture.outside(make)));
  }

  /** The factor and the count; reads tensors that are there. */
  read(): { scale: number; tracker: number } {
    if (this.tensors === null) return this.first;
    const { scale, tracker } = this.tensors;
    return { scale: scale.item<number>(), tracker: tracker.item<number>() };
  }

  /** The factor, without blocking. */
  async readScale(): Promise<number> {
    return this.tensors === null ? this.first.scale : this.tensors.scale.itemAsync<number>();
  }

  /** Sets the factor, and the count if one is given. */
  set(scale: number, tracker: number | null = null): void {
    this.first = { scale, tracker: tracker ?? this.first.tracker };
    const { tensors } = this;
    if (tensors === null) return;
    noGrad(() => {
      tensors.scale.fill_(scale);
      if (tracker !== null) tensors.tracker.fill_(tracker);
    });
  }

  /**
   * Lowers the factor if `foundInf` is not 0, else counts a good step and raises it after
   * `growthInterval` of them, unless it would be infinite.
   *
   * @see PyTorch `torch._amp_update_scale_`
   */
  update(foundInf: Tensor, { growthFactor, backoffFactor, growthInterval }: Growth): void {
    const scale = this.on(foundInf.device);
    const { tracker } = this.tensors as { tracker: Tensor };
    const found = valueOn(foundInf, scale).ne(0);
    const count = tracker.add(1);
    const isFull = count.eq(growthInterval);
    const grown = scale.mul(growthFactor);
    const next = where(isFull.logicalAnd(grown.isfinite()), grown, scale);
    scale.copy_(where(found, scale.mul(backoffFactor), next));
    tracker.copy_(where(found.logicalOr(isFull), tracker.zerosLike(), count));
  }
}
