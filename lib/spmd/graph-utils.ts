/** Questions about graphs: which nodes have a property, and what follows from some nodes. */
import { checkGraph, checkNodes } from '../compile/graph/check-graph.js';
import { Dependencies } from '../compile/graph/dependencies.js';
import type { Graph } from '../compile/graph/graph.js';
import type { Node } from '../compile/graph/node.js';
import { checkFunction } from '../core/options.js';
import { checkTarget, type PassTarget } from './pass-contract.js';

/**
 * The nodes for which the predicate holds, in order.
 *
 * @throws ArgumentError for what is no graph, or no function
 * @see PyTorch `torch.distributed._spmd.graph_utils.find_node`
 */
export function findNode(graph: Graph, predicate: (node: Node) => boolean): Node[] {
  checkGraph('findNode', graph);
  checkFunction('findNode', 'predicate', predicate);
  return graph.nodes.filter(predicate);
}

/**
 * All nodes that follow from some nodes, these included, in the order of the graph: the users of
 * their values, the readers of memory that they write, and so on.
 *
 * @throws ArgumentError for what has no graph, or is no list of nodes
 * @see PyTorch `torch.distributed._spmd.graph_optimization.find_all_descendants`
 */
export function findAllDescendants(module: PassTarget, nodes: readonly Node[]): Node[] {
  checkTarget('findAllDescendants', module);
  checkNodes('findAllDescendants', 'nodes', nodes);
  return descendantsIn(module.graph, nodes);
}

/** All nodes of a graph that follow from some nodes. @internal */
export function descendantsIn(graph: Graph, nodes: readonly Node[]): Node[] {
  const { readers } = new Dependencies(graph);
  const found = new Set(nodes);
  for (const node of found) for (const reader of readers(node)) found.add(reader);
  return graph.nodes.filter((node) => found.has(node));
}
