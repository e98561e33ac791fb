/** A heap of nodes whose gradients are complete: the highest sequence number comes first. */
import type { Node } from './node.js';

export class ReadyQueue {
  private readonly heap: Node[] = [];

  push(node: Node): void {
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
