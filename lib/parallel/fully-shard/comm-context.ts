/** What the groups below one root share: streams, and the order in which they are used. */
import { cuda, type Device } from '../../index.js';
import type { RefillableBuffer } from '../common/refillable-buffer.js';
import type { FSDPParamGroup } from './param-group.js';

export class CommContext {
  /**
   * On a GPU, casts before a gather and the memory of gathers are on a stream of their own, so that a
   * gather does not wait for the compute of the layer before it.
   */
  private readonly gatherStream: cuda.Stream | null;
  private readonly reduceStream: cuda.Stream | null;
  /** The input of the last reduce-scatter, whose memory is freed when the next one begins. */
  private reducing: RefillableBuffer | null = null;
  /** Groups in the order in which their forward ended. */
  private readonly order: FSDPParamGroup[] = [];

  constructor(device: Device) {
    const onGpu = device.type === 'cuda';
    this.gatherStream = onGpu ? new cuda.Stream({ device }) : null;
    this.reduceStream = onGpu ? new cuda.Stream({ device }) : null;
  }

  /** Runs `fn` on the stream of gathers. */
  gathering<T>(fn: () => T): T {
    return this.gatherStream === null ? fn() : cuda.stream(this.gatherStream, fn);
  }

  /** Runs `fn` on the stream of what follows a reduction. */
  reduced<T>(fn: () => T): T {
    return this.reduceStream === null ? fn() : cuda.stream(this.reduceStream, fn);
  }

  /**
   * Frees the input of the last reduction: compute waits for that reduction. At most one input is in
   * memory then, besides the next.
   */
  freeReduced(next: RefillableBuffer | null): void {
    this.reducing?.free();
    this.reducing = next;
  }

  forwardEnded(group: FSDPParamGroup): void {
    group.orderIndex = this.order.push(group) - 1;
  }

  /** The group whose backward is expected after that of `group`. */
  before(group: FSDPParamGroup): FSDPParamGroup | null {
    return this.order[group.orderIndex - 1] ?? null;
  }

  forgetOrder(): void {
    this.order.length = 0;
  }

  backwardEnded(): void {
    this.forgetOrder();
    this.freeReduced(null);
  }
}
