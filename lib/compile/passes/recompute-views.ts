/**
 * Lets backward make views of forward again. A view needs no memory, only its base does; and a base
 * that gets other memory before backward, as sharded parameters do, gives other views then.
 */
import type { Node, Value } from '../graph/node.js';
import { BACKWARD, halvesOf, type JointGraph } from '../partition/joint-graph.js';
import { Memory, source } from '../partition/memory.js';
import { type NodeValue, ValueMap } from '../partition/value-map.js';

/**
 * Makes nodes of backward that read a view of forward read a copy of it, which stands before the
 * first of them. The partitions of the library do so by themselves; this is for others.
 *
 * @returns the number of views that backward makes again
 * @throws CompileError as `defaultPartition`
 */
export function recomputeViews(joint: JointGraph): number {
  const { graph, forwardOutputs } = joint;
  const { forward, backward } = halvesOf(joint);
  const memory = new Memory(graph);
  const [early, late] = [new Set(forward), new Set(backward)];
  const hasTags = graph.nodes.some((node) => node.tags.has(BACKWARD));
  const copies = new ValueMap<NodeValue>();
  /** The views of forward that lead to a value, the innermost last. */
  const viewsOf = (value: NodeValue): NodeValue[] => {
    const views: NodeValue[] = [];
    for (let at: NodeValue | null = value; at !== null && early.has(at.node); at = source(at))
      if (memory.isWindow(at)) views.push(at);
      else if (at.node.into === null) break;
    return views;
  };
  const copy = ({ node }: NodeValue, read: Value): NodeValue => {
    const tags = hasTags ? new Set([...node.tags, BACKWARD]) : node.tags;
    const name = node.op?.name ?? node.kind;
    return { node: graph.add({ ...node, name, inputs: [read], tags }), output: 0 };
  };
  const again = (value: Value): Value => {
    if ('number' in value) return value;
    let made: Value = value;
    for (const view of viewsOf(value).reverse()) {
      const known = copies.get(view);
      const read = view.node.inputs[0] as NodeValue;
      made = known ?? copy(view, copies.get(inPlaceTarget(read)) ?? read);
      copies.set(view, made);
    }
    return made;
  };
  for (const node of graph.nodes.splice(0)) {
    if (late.has(node)) {
      node.inputs = node.inputs.map(again);
      if (node.into !== null) node.into = again(node.into);
    }
    graph.nodes.push(node);
  }
  graph.outputs = graph.outputs.map((value, i) => (i < forwardOutputs ? value : again(value)));
  return copies.keys.length;
}

/** The value before the in-place calls that returned it. */
function inPlaceTarget(value: NodeValue): NodeValue {
  let at = value;
  const intoOf = ({ node, output }: NodeValue): Node['into'] => (output === 0 ? node.into : null);
  for (let into = intoOf(at); into !== null && 'node' in into; into = intoOf(at)) at = into;
  return at;
}
