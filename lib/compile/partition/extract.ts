/** Makes the two graphs of a partition from the nodes of each and the values that pass over. */
import { copyOfValue } from '../graph/copy.js';
import { Graph } from '../graph/graph.js';
import { Node, sameValue, type Value } from '../graph/node.js';
import type { JointGraph, Partition } from './joint-graph.js';

/**
 * Builds the parts. `forward` and `backward` are nodes of the joint graph in its order; a node may
 * be in both, which then computes it twice. Saved are the values that backward reads and does not
 * compute.
 */
export function extract(
  joint: JointGraph,
  forward: readonly Node[],
  backward: readonly Node[],
): Partition {
  const results = joint.graph.outputs.slice(0, joint.forwardOutputs);
  const gradients = joint.graph.outputs.slice(joint.forwardOutputs);
  const own = new Set([...backward, ...joint.tangents]);
  const saved: Value[] = [];
  const save = (value: Value): void => {
    if (!('node' in value) || own.has(value.node)) return;
    if (!saved.some((other) => sameValue(other, value))) saved.push(value);
  };
  for (const node of backward) node.reads.forEach(save);
  gradients.forEach(save);
  return {
    forward: part(forward, [], [...results, ...saved]),
    backward: part(backward, [...saved, ...joint.tangents.map(valueOf)], gradients),
    saved,
  };
}

const valueOf = (node: Node): Value => ({ node, output: 0 });

/** A graph of copies of `nodes`, with placeholders for `inputs`. */
function part(nodes: readonly Node[], inputs: readonly Value[], outputs: readonly Value[]): Graph {
  const graph = new Graph();
  const copies = new Map<Node, Node>();
  const given: [Value, Value][] = inputs.map((value) => [
    value,
    valueOf(placeholder(graph, value)),
  ]);
  const copied = (value: Value): Value => {
    const known = given.find(([original]) => sameValue(original, value));
    return known === undefined ? copyOfValue(value, copies) : known[1];
  };
  for (const node of nodes) {
    const draw = node.draw === null ? null : copied(valueOf(node.draw));
    const copy = new Node(
      {
        ...node,
        inputs: node.inputs.map(copied),
        into: node.into === null ? null : copied(node.into),
        draw: draw !== null && 'node' in draw ? draw.node : null,
      },
      node.id,
    );
    graph.reserveName(copy.name);
    graph.nodes.push(copy);
    copies.set(node, copy);
  }
  graph.outputs = outputs.map(copied);
  return graph;
}

/** A placeholder for a value of the joint graph; one of a node that is an input keeps its number. */
function placeholder(graph: Graph, value: Value): Node {
  const { node, output } = value as { node: Node; output: number };
  return graph.add({
    kind: 'placeholder',
    name: node.kind === 'placeholder' ? node.name : 'saved',
    metas: node.metas.slice(output, output + 1),
    origin: node.origin,
  });
}
