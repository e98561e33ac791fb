/** Maps and sets by value of a graph: a value is an output of a node, and has no identity. */
import type { Node, Value } from '../graph/node.js';

/** A value that a node computes. @internal */
export type NodeValue = Extract<Value, { node: Node }>;

/** A map by value, in order of insertion. @internal */
export class ValueMap<T> {
  private readonly byNode = new Map<Node, T[]>();
  private readonly order: NodeValue[] = [];

  get({ node, output }: NodeValue): T | undefined {
    return this.byNode.get(node)?.[output];
  }

  has({ node, output }: NodeValue): boolean {
    const list = this.byNode.get(node);
    return list !== undefined && output in list;
  }

  set(value: NodeValue, to: T): void {
    const { node, output } = value;
    if (!this.has(value)) this.order.push(value);
    const list = this.byNode.get(node);
    if (list !== undefined) list[output] = to;
    else {
      const made: T[] = [];
      made[output] = to;
      this.byNode.set(node, made);
    }
  }

  /** The values that were set. */
  get keys(): readonly NodeValue[] {
    return this.order;
  }
}
