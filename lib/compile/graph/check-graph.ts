/** What passes are given: a graph, and nodes of it. */
import { unexpected } from '../../core/options.js';
import { Graph } from './graph.js';
import { Node } from './node.js';

/** @throws ArgumentError unless it is a graph */
export function checkGraph(op: string, graph: unknown, name = 'graph'): asserts graph is Graph {
  if (!(graph instanceof Graph))
    throw unexpected(op, name, 'a Graph, such as `graph` of a GraphModule', graph);
}

/** @throws ArgumentError unless it is a list of nodes */
export function checkNodes(op: string, name: string, nodes: unknown): asserts nodes is Node[] {
  if (!Array.isArray(nodes) || !nodes.every((node) => node instanceof Node))
    throw unexpected(op, name, 'a list of nodes of the graph', nodes);
}

/** @throws ArgumentError unless it is a node */
export function checkNode(op: string, name: string, node: unknown): asserts node is Node {
  if (!(node instanceof Node)) throw unexpected(op, name, 'a node of the graph', node);
}
