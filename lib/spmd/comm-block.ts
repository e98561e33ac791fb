/** Blocks of communication: a collective, its waits, and what arranges its results. */
import { checkGraph, checkNode } from '../compile/graph/check-graph.js';
import type { Graph } from '../compile/graph/graph.js';
import type { Node, Value } from '../compile/graph/node.js';
import { isCollective, isView, isWait } from '../compile/graph/traits.js';
import type { Shape } from '../core/shape.js';

/** A collective and the nodes that only prepare its results. */
export interface CommBlock {
  /** The shape of the collective's input. */
  readonly shape: Shape;
  /** All nodes of the block, in order. */
  readonly nodeList: readonly Node[];
  /** What the collective reads. */
  readonly inputs: readonly Value[];
  /** The waits for its results. */
  readonly waitNodes: readonly Node[];
  /** The collective. */
  readonly commNode: Node;
  /** The nodes of the block whose values are used outside of it. */
  readonly outputs: readonly Node[];
}

/**
 * The block of a collective: its waits, and the views of what they return.
 *
 * @throws ArgumentError for what is no graph, or no node
 * @see PyTorch `torch.distributed._spmd.comm_tensor`, `get_comm_block`
 */
export function getCommBlock(graph: Graph, commNode: Node): CommBlock {
  checkGraph('getCommBlock', graph);
  checkNode('getCommBlock', 'commNode', commNode);
  return blockOf(graph, commNode, graph.allUsers());
}

function blockOf(
  graph: Graph,
  commNode: Node,
  users: ReadonlyMap<Node, readonly Node[]>,
): CommBlock {
  const block = new Set([commNode]);
  const waitNodes: Node[] = [];
  for (const node of block)
    for (const user of users.get(node) ?? []) {
      if (isWait(user)) waitNodes.push(user);
      if (isWait(user) || (node !== commNode && isView(user))) block.add(user);
    }
  const nodeList = graph.nodes.filter((node) => block.has(node));
  const returned = new Set(graph.outputs.flatMap((v) => ('node' in v ? [v.node] : [])));
  const outputs = nodeList.filter(
    (node) => returned.has(node) || (users.get(node) ?? []).some((user) => !block.has(user)),
  );
  const [first] = commNode.inputs;
  const shape =
    first === undefined || 'number' in first ? [] : (first.node.metas[first.output]?.shape ?? []);
  return { shape, nodeList, inputs: commNode.inputs, waitNodes, commNode, outputs };
}

/**
 * The blocks of all collectives, or of those of one name, such as `'allReduce'`, in order.
 *
 * @throws ArgumentError for what is no graph
 */
export function getAllCommBlocks(graph: Graph, op?: string): CommBlock[] {
  checkGraph('getAllCommBlocks', graph);
  const users = graph.allUsers();
  return graph.nodes
    .filter((node) => isCollective(node) && (op === undefined || node.op?.name === op))
    .map((node) => blockOf(graph, node, users));
}
