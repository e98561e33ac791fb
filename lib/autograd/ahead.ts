/** Which nodes of the graph lead from the roots of a backward pass to its targets. */
import type { Edge, Node } from './node.js';

/** The nodes on the paths to targets. @internal */
export interface Ahead {
  /** Targets, and nodes that lead to one. */
  readonly receiving: ReadonlySet<Node>;
  /** Nodes that lead to a target. */
  readonly passing: ReadonlySet<Node>;
}

/** @internal */
export function aheadOf(roots: readonly Edge[], targets: ReadonlySet<Node>): Ahead {
  const order: Node[] = [];
  const seen = new Set<Node>();
  const stack: { node: Node; next: number }[] = [];
  for (const { node: root } of roots) {
    if (seen.has(root)) continue;
    seen.add(root);
    stack.push({ node: root, next: 0 });
    while (stack.length > 0) {
      const top = stack[stack.length - 1] as { node: Node; next: number };
      const edge = top.node.edges[top.next++];
      if (edge !== undefined) {
        if (edge !== null && !seen.has(edge.node)) {
          seen.add(edge.node);
          stack.push({ node: edge.node, next: 0 });
        }
      } else {
        order.push(top.node);
        stack.pop();
      }
    }
  }
  const receiving = new Set<Node>();
  const passing = new Set<Node>();
  for (const node of order) {
    if (node.edges.some((e) => e !== null && receiving.has(e.node))) passing.add(node);
    if (targets.has(node) || passing.has(node)) receiving.add(node);
  }
  return { receiving, passing };
}
