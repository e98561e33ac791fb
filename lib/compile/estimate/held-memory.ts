/** The memory that a graph holds while it runs: what allocates it, and which nodes need it. */
import { Dependencies } from '../graph/dependencies.js';
import type { Graph } from '../graph/graph.js';
import type { Node, Value } from '../graph/node.js';
import { isWait, startsCommunication } from '../graph/traits.js';
import { bytesOf } from '../partition/memory.js';
import type { NodeValue } from '../partition/value-map.js';

/** Memory that values of a graph share. */
export interface HeldMemory {
  /** The first value in it. */
  readonly value: NodeValue;
  readonly bytes: number;
  /** The nodes that compute values in it or read them. */
  readonly nodes: readonly Node[];
  /** Whether it is there from the first node on: that of an input. */
  readonly isGiven: boolean;
  /** Whether it is there up to the last node: that of a result, or of an input. */
  readonly isKept: boolean;
}

/** How {@link heldMemory} counts. */
export interface HeldOptions {
  /** The inputs that are freed after the last node that needs them. */
  readonly donated?: ReadonlySet<Node>;
  /** What a collective reads is held until its wait, as on GPUs, and not only until it starts. */
  readonly untilWaits?: boolean;
}

/** All memory of a graph, by the first values in it. */
export function heldMemory(
  graph: Graph,
  { donated = new Set(), untilWaits = false }: HeldOptions = {},
): HeldMemory[] {
  const users = graph.allUsers();
  const dependencies = new Dependencies(graph);
  const held = new Map<object, HeldMemory & { nodes: Node[]; isKept: boolean }>();
  const blockOf = (value: Value) =>
    'node' in value ? held.get(dependencies.memoryOf(value)) : undefined;
  for (const node of graph.nodes) {
    const readers =
      untilWaits && startsCommunication(node)
        ? [node, ...(users.get(node) as Node[]).filter(isWait)]
        : [node];
    for (const value of node.reads) blockOf(value)?.nodes.push(...readers);
    for (const [output, meta] of node.metas.entries()) {
      const value = { node, output };
      const known = blockOf(value);
      if (known !== undefined) {
        known.nodes.push(node);
        continue;
      }
      const isGiven = isInput(node);
      held.set(dependencies.memoryOf(value), {
        value,
        bytes: bytesOf(meta),
        nodes: [node],
        isGiven,
        isKept: isGiven && !donated.has(node),
      });
    }
  }
  for (const value of graph.outputs) {
    const block = blockOf(value);
    if (block !== undefined) block.isKept = true;
  }
  return [...held.values()];
}

const isInput = ({ kind }: Node): boolean => kind === 'placeholder' || kind === 'constant';
