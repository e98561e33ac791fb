/**
 * The nodes whose gradients are complete. Accumulators come first, in their order; of the others a
 * heap gives the highest sequence number.
 */
import { ACCUMULATE_SEQUENCE, type Node } from './node.js';

export class ReadyQueue {
  private readonly heap: Node[] = [];
  /** Data parallelism reduces gradients in the order in which they come: so it is that of edges. */
  private readonly accumulators: Node[] = [];
  private nextAccumulator = 0;

  push(node: Node): void {
    if (node.sequence === ACCUMULATE_SEQUENCE) {
      this.accumulators.push(node);
      return;
    }
    const { heap } = this;
    let at = heap.length;
    heap.push(node);
    while (at > 0) {
      const parent = (at - 1) >> 1;
      const above = heap[parent] as Node;
      if (above.sequence >= node.sequence) break;
      heap[at] = above;
      at = parent;
    }
    heap[at] = node;
  }

  pop(): Node | undefined {
    return this.popAccumulator() ?? this.popLatest();
  }

  private popAccumulator(): Node | undefined {
    const { accumulators } = this;
    if (accumulators.length === 0) return undefined;
    const node = accumulators[this.nextAccumulator++];
    if (this.nextAccumulator < accumulators.length) return node;
    accumulators.length = 0;
    this.nextAccumulator = 0;
    return node;
  }

  private popLatest(): Node | undefined {
    const { heap } = this;
    const top = heap[0];
    const last = heap.pop();
    if (top === undefined || last === undefined || heap.length === 0) return top;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= heap.length) break;
      if (
        child + 1 < heap.length &&
        (heap[child + 1] as Node).sequence > (heap[child] as Node).sequence
      )
        child++;
      if ((heap[child] as Node).sequence <= last.sequence) break;
      heap[at] = heap[child] as Node;
      at = child;
    }
    heap[at] = last;
    return top;
  }
}
