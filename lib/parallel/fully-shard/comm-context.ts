/** What the groups below one root share: the order of their forward, and the running reduction. */
import type { RefillableBuffer } from '../common/refillable-buffer.js';
import { OfStep } from './captured-step.js';
import { ForwardOrder } from './forward-order.js';
import type { GroupMemory } from './group-memory.js';

export class CommContext {
  /** The input of the last reduce-scatter, whose memory is freed when the next one begins. */
  private reducing: RefillableBuffer | null = null;
  /** Whole parameters that forward is done with, and that are still in memory. */
  private readonly passed = new Set<GroupMemory>();
  private readonly ownOrder = new ForwardOrder();
  private readonly orderInStep = new OfStep(() => new ForwardOrder());

  /** Groups in the order in which their forward ended; while a step is captured, that of the step. */
  get order(): ForwardOrder {
    return this.orderInStep.now ?? this.ownOrder;
  }

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

  backwardEnded(): void {
    this.order.forget();
    this.freeReduced(null);
    this.freePassed();
  }
}
