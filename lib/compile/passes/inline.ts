/** Copies the calls of one graph into another. */
import type { Graph } from '../graph/graph.js';
import type { Node, Value } from '../graph/node.js';
import type { NodeValue } from '../partition/value-map.js';

/**
 * Copies the calls of a graph, whose placeholders stand for values of `into`, in front of a node,
 * or to the end. The copies have new numbers, and the origin, tags and grad mode of `like`.
 *
 * @returns what the results of the graph are in `into`
 */
export function inlineCalls(
  into: Graph,
  calls: Graph,
  operands: ReadonlyMap<Node, NodeValue>,
  { origin, tags, mode }: Pick<Node, 'origin' | 'tags' | 'mode'>,
  before: Node | null = null,
): Value[] {
  const copies = new Map<Node, Node>();
  const mapped = (value: Value): Value => {
    if ('number' in value) return value;
    const copy = copies.get(value.node);
    return copy === undefined
      ? (operands.get(value.node) as NodeValue)
      : { node: copy, output: value.output };
  };
  for (const call of calls.nodes) {
    if (operands.has(call)) continue;
    const fields = {
      ...call,
      name: call.op?.name ?? call.kind,
      inputs: call.inputs.map(mapped),
      into: call.into === null ? null : mapped(call.into),
      origin,
      tags,
      mode,
    };
    copies.set(call, into.add(fields, before));
  }
  return calls.outputs.map(mapped);
}
