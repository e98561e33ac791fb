/** Waits for communication where results are used, and not before. */
import { checkGraph } from '../../graph/check-graph.js';
import type { Graph } from '../../graph/graph.js';
import { lint } from '../../graph/lint.js';
import type { Node } from '../../graph/node.js';
import { isView, isWait } from '../../graph/traits.js';
import { Precedence } from './precedence.js';

/**
 * Moves each wait of a lowered graph, and each view of what it returns, to directly before the
 * first node that uses it, so that what comes before runs beside the communication. A result that
 * only the graph returns is waited for at the end. Other nodes keep their order.
 *
 * @throws ArgumentError for what is no graph
 * @see PyTorch `torch._inductor.comms.sink_waits`
 * @example
 * const late = aotAutograd({
 *   fwCompiler: (module) => {
 *     sinkWaits(module.graph);
 *     module.recompile();
 *     return module.forward.bind(module);
 *   },
 * });
 * const fn = compile((t: Tensor) => t.sin(), { backend: late });
 */
export function sinkWaits(graph: Graph): void {
  checkGraph('sinkWaits', graph);
  sinkSomeWaits(graph, isWait);
}

/** The same for the waits that `sinks` chooses. */
export function sinkSomeWaits(graph: Graph, sinks: (wait: Node) => boolean): void {
  const order = orderWithLate(graph, lateNodes(graph, sinks));
  graph.nodes.splice(0, graph.nodes.length, ...order);
  lint(graph);
}

/** Waits, and views of what they return. */
function lateNodes(graph: Graph, sinks: (wait: Node) => boolean): ReadonlySet<Node> {
  const late = new Set<Node>();
  for (const node of graph.nodes) {
    const [input] = node.inputs;
    const isOfLate = input !== undefined && 'node' in input && late.has(input.node);
    if (isWait(node) ? sinks(node) : isView(node) && isOfLate) late.add(node);
  }
  return late;
}

/** Goes from the end to the start: a late node has its place as soon as all have that need it. */
function orderWithLate(graph: Graph, late: ReadonlySet<Node>): Node[] {
  const precedence = new Precedence(graph);
  const positions = new Map(graph.nodes.map((node, i) => [node, i]));
  const positionOf = (node: Node): number => positions.get(node) as number;
  const placed = new Set<Node>();
  const isDue = (node: Node): boolean =>
    late.has(node) &&
    !placed.has(node) &&
    precedence.after(node).every((other) => placed.has(other));
  const place = (node: Node): void => {
    placed.add(node);
    const needed = precedence.before(node).filter(isDue);
    for (const each of needed.sort((a, b) => positionOf(b) - positionOf(a)))
      if (isDue(each)) place(each);
  };
  const backwards = [...graph.nodes].reverse();
  for (const node of backwards) if (isDue(node)) place(node);
  for (const node of backwards) if (!late.has(node)) place(node);
  return [...placed].reverse();
}
