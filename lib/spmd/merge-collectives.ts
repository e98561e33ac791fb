/** Merges collectives that reduce or gather the same value. */
import { equalCalls } from '../compile/graph/eliminate.js';
import type { Graph } from '../compile/graph/graph.js';
import type { Node } from '../compile/graph/node.js';
import { isWait } from '../compile/graph/traits.js';
import type { NodeValue } from '../compile/partition/value-map.js';
import { isCollective } from './comm-block.js';
import { Dependencies } from './dependencies.js';

/**
 * Removes each collective that repeats an earlier one: equal op, parameters and operand, whose memory
 * is not written in between. All ranks have the same graph, so all remove the same ones.
 *
 * @returns the number of removed collectives
 */
export function mergeEqualCollectives(graph: Graph): number {
  let count = 0;
  const earlier: Node[] = [];
  for (const node of graph.nodes.filter(isCollective)) {
    const same = earlier.find((other) => isRepeated(graph, other, node));
    if (same === undefined) {
      earlier.push(node);
      continue;
    }
    count++;
    const wait = graph.usersOf(same).find(isWait);
    for (const user of graph.usersOf(node)) {
      if (!isWait(user) || wait === undefined) continue;
      graph.replaceUses({ node: user, output: 0 }, { node: wait, output: 0 });
      graph.erase(user);
    }
    graph.replaceUses({ node, output: 0 }, { node: same, output: 0 });
    graph.erase(node);
  }
  return count;
}

function isRepeated(graph: Graph, first: Node, second: Node): boolean {
  if (!equalCalls(first, second)) return false;
  const dependencies = new Dependencies(graph);
  const operands = first.inputs
    .filter((value): value is NodeValue => 'node' in value)
    .map((value) => dependencies.memoryOf(value));
  const between = graph.nodes.slice(graph.nodes.indexOf(first), graph.nodes.indexOf(second));
  const results = dependencies.memoryOf({ node: first, output: 0 });
  // A result that is written in place is no longer that of the collective.
  const written = graph.nodes.flatMap((node) => [...dependencies.writtenBy(node)]);
  if (written.includes(results)) return false;
  return !between.some((node) =>
    operands.some((memory) => dependencies.writtenBy(node).has(memory)),
  );
}
