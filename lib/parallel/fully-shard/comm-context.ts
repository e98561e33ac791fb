/** What the groups below one root share: the order of their forward, and the running reduction. */
import type { RefillableBuffer } from '../common/refillable-buffer.js';
import type { GroupMemory } from './group-memory.js';
import type { FSDPParamGroup } from './param-group.js';

export class CommContext {
  /** The input of the last reduce-scatter, whose memory is freed when the next one begins. */
  private reducing: RefillableBuffer | null = null;
  /** Whole parameters that forward is done with, and that are still in memory. */
  private readonly passed = new Set<GroupMemory>();
  /** Groups in the order in which their forward ended. */
  private readonly order: FSDPParamGroup[] = [];

  /**
   * Frees the input of the last reduction: compute waits for that reduction. At most one input is
   * in memory then, besides the next.
   */
  freeReduced(next: RefillableBuffer | null): void {
    this.reducing?.free();
    this.reducing = next;
  }

  /**
   * Frees whole parameters when the gather for the next module has been submitted. The stream of
   * gathers waits for the compute that used them, and that gather shall not.
   */
  freeLater(memory: GroupMemory): void {
    this.passed.add(memory);
  }

  /** They are gathered again, into the same memory. */
  keepInMemory(memory: GroupMemory): void {
    this.passed.delete(memory);
  }

  freePassed(): void {
    for (const memory of this.passed) memory.freeNow();
    this.passed.clear();
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
    this.freePassed();
  }
}
