/** Copies of graphs. */
import { checkGraph, checkNodes } from './check-graph.js';
import { Graph } from './graph.js';
import { Node, type Value, type ValueMeta } from './node.js';
import type { SizeExpression } from './size-expression.js';
import { filled, partOf } from './symbols.js';

/** A copy of a graph. Its nodes have the numbers and names of the copied ones. */
export interface GraphCopy {
  /** The copy. */
  readonly graph: Graph;
  /** The copy of each node. */
  readonly nodeMap: ReadonlyMap<Node, Node>;
}

/**
 * Copies a graph, or its first nodes in the order given by `nodes`, so that edits of one leave the
 * other alone. Tensors and parameters are shared.
 *
 * @throws ArgumentError for what is no graph, or no list of nodes
 */
export function copyGraph(from: Graph, nodes?: readonly Node[]): GraphCopy {
  checkGraph('copyGraph', from, 'from');
  if (nodes !== undefined) checkNodes('copyGraph', 'nodes', nodes);
  const graph = new Graph();
  const nodeMap = new Map<Node, Node>();
  for (const node of nodes ?? from.nodes) appendCopy(graph, node, nodeMap);
  graph.title = from.title;
  graph.outputs = from.outputs.map((v) => copyOfValue(v, nodeMap));
  graph.symbols = from.symbols;
  graph.shared = from.shared.map((list) => list.flatMap((node) => nodeMap.get(node) ?? []));
  return { graph, nodeMap };
}

/** A copy of a dynamic graph in which the symbols have these sizes. @internal */
export function copyAtSizes(from: Graph, sizes: readonly number[]): Graph {
  const { graph, nodeMap } = copyGraph(from);
  const at = (expression: SizeExpression): number => expression.at(sizes);
  for (const [node, copy] of nodeMap) {
    const { symbolic } = node;
    if (symbolic === null) continue;
    const { params, inputs, metas, of } = symbolic;
    if (node.params === of.params) copy.params = filled(params, node.params, at) as object;
    if (node.metas === of.metas) copy.metas = filled(metas, node.metas, at) as ValueMeta[];
    copy.inputs = copy.inputs.map((value, i) =>
      value === of.inputs[i] ? (filled(partOf(inputs, i), value, at) as Value) : value,
    );
  }
  graph.symbols = [];
  return graph;
}

/** Appends a copy of a node whose operands were copied before. @internal */
export function appendCopy(graph: Graph, node: Node, nodeMap: Map<Node, Node>): Node {
  const copy = new Node(
    {
      ...node,
      inputs: node.inputs.map((v) => copyOfValue(v, nodeMap)),
      into: node.into === null ? null : copyOfValue(node.into, nodeMap),
      draw: node.draw === null ? null : (nodeMap.get(node.draw) ?? node.draw),
    },
    node.id,
  );
  graph.reserveName(copy.name);
  graph.nodes.push(copy);
  nodeMap.set(node, copy);
  return copy;
}

/** The value in the copy; the same value where the node was not copied. @internal */
export function copyOfValue(value: Value, nodeMap: ReadonlyMap<Node, Node>): Value {
  if ('number' in value) return value;
  const node = nodeMap.get(value.node);
  return node === undefined ? value : { node, output: value.output };
}
