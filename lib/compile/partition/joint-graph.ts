/** What is partitioned: forward and backward in one graph. */
import type { Graph } from '../graph/graph.js';
import type { Node, Value } from '../graph/node.js';

/** Forward and backward in one graph of local ops. */
export interface JointGraph {
  /** The results are those of forward, then the gradients. */
  readonly graph: Graph;
  /** The inputs of forward: local tensors. */
  readonly primals: readonly Node[];
  /** The gradients of the differentiable results of forward. */
  readonly tangents: readonly Node[];
  /** The number of results of forward. */
  readonly forwardOutputs: number;
}

/** The two parts of a joint graph. */
export interface Partition {
  /** Takes the primals; its results are those of forward, then the saved values. */
  readonly forward: Graph;
  /** Takes the saved values, then the tangents; its results are the gradients. */
  readonly backward: Graph;
  /** The saved values as values of the joint graph. */
  readonly saved: readonly Value[];
}

/** The tag of nodes that the backward pass recorded. @internal */
export const BACKWARD = 'backward';

/** Whether a node is of the backward pass: the engine recorded it, or it is a tangent. @internal */
export function isOfBackward({ tangents }: JointGraph, node: Node): boolean {
  return node.tags.has(BACKWARD) || tangents.includes(node);
}
