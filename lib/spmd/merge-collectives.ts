/** Merges collectives that reduce or gather the same value. */
import { checkGraph } from '../compile/graph/check-graph.js';
import { Dependencies } from '../compile/graph/dependencies.js';
import { equalCalls } from '../compile/graph/eliminate.js';
import type { Graph } from '../compile/graph/graph.js';
import type { Node, Value } from '../compile/graph/node.js';
import { isCollective, isWait } from '../compile/graph/traits.js';
import { RECOMPUTED } from '../compile/partition/tags.js';
import { ValueMap } from '../compile/partition/value-map.js';

/**
 * Removes each collective that repeats an earlier one: equal op, parameters and operand, whose
 * memory is not written in between. What a checkpoint gathers again in backward it did not keep, so
 * that stays. All ranks have the same graph, so all remove the same ones.
 *
 * @returns the number of removed collectives
 * @throws ArgumentError for what is no graph
 */
export function mergeEqualCollectives(graph: Graph): number {
  checkGraph('mergeEqualCollectives', graph);
  const merging = new Merging(graph);
  const kept: Node[] = [];
  for (const node of graph.nodes) {
    node.inputs = node.inputs.map(merging.valueOf);
    if (node.into !== null) node.into = merging.valueOf(node.into);
    if (merging.keeps(node)) kept.push(node);
  }
  const removed = graph.nodes.filter(isCollective).length - kept.filter(isCollective).length;
  graph.outputs = graph.outputs.map(merging.valueOf);
  graph.nodes.splice(0, graph.nodes.length, ...kept);
  return removed;
}

/** Goes over the nodes of a graph in order. */
class Merging {
  private readonly isRepeated: (first: Node, second: Node) => boolean;
  private readonly replaced = new ValueMap<Value>();
  /** The collectives that stay, by their calls; those that others repeat; the wait for each. */
  private readonly collectives = new Map<string, Node[]>();
  private readonly repeated = new Set<Node>();
  private readonly waits = new Map<Node, Node>();

  constructor(graph: Graph) {
    this.isRepeated = repetitionsIn(graph);
  }

  /** What stands for a value now. */
  readonly valueOf = (value: Value): Value =>
    'node' in value ? (this.replaced.get(value) ?? value) : value;

  /** Whether the next node stays. Else another one stands for it. */
  keeps(node: Node): boolean {
    const other = isWait(node) ? this.waitLike(node) : isCollective(node) ? this.like(node) : null;
    if (other !== null) this.replaced.set({ node, output: 0 }, { node: other, output: 0 });
    return other === null;
  }

  private like(node: Node): Node | null {
    const key = callKey(node);
    const earlier = this.collectives.get(key) ?? [];
    const same = earlier.find((other) => this.isRepeated(other, node));
    if (same === undefined) this.collectives.set(key, [...earlier, node]);
    else this.repeated.add(same);
    return same ?? null;
  }

  private waitLike(node: Node): Node | null {
    const of = operandOf(node);
    const wait = of === null ? undefined : this.waits.get(of);
    if (of !== null && wait === undefined) this.waits.set(of, node);
    return of !== null && wait !== undefined && this.repeated.has(of) ? wait : null;
  }
}

function operandOf({ inputs: [first] }: Node): Node | null {
  return first !== undefined && 'node' in first ? first.node : null;
}

/** The op and the operands of a call: equal ones may be repetitions. */
const callKey = ({ op, inputs }: Node): string =>
  [op?.name, ...inputs.map((v) => ('node' in v ? `${v.node.id}.${v.output}` : 'number'))].join();

/** Whether one collective repeats another one, in a graph as it was before any was removed. */
function repetitionsIn(graph: Graph): (first: Node, second: Node) => boolean {
  const dependencies = new Dependencies(graph);
  const { positionOf } = dependencies;
  const writes = new Map<object, number[]>();
  graph.nodes.forEach((node, at) => {
    for (const memory of dependencies.writtenBy(node)) {
      const positions = writes.get(memory);
      if (positions === undefined) writes.set(memory, [at]);
      else positions.push(at);
    }
  });
  // A result that is written in place is no longer that of the collective.
  const isOverwritten = (node: Node): boolean =>
    writes.has(dependencies.memoryOf({ node, output: 0 }));
  return (first, second) =>
    equalCalls(first, second) &&
    first.tags.has(RECOMPUTED) === second.tags.has(RECOMPUTED) &&
    !isOverwritten(first) &&
    !isOverwritten(second) &&
    !first.inputs.some(
      (value) =>
        'node' in value &&
        (writes.get(dependencies.memoryOf(value)) ?? []).some(
          (at) => at > positionOf(first) && at < positionOf(second),
        ),
    );
}
