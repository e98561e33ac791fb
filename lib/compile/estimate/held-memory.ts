/** The memory that a graph holds while it runs: what allocates it, and which nodes need it. */
import type { Graph } from '../graph/graph.js';
import type { Node, Value } from '../graph/node.js';
import { isWait, startsCommunication } from '../graph/traits.js';
import { bytesOf, Memory } from '../partition/memory.js';
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
  const memory = new Memory(graph);
  const held = new Map<object, HeldMemory & { nodes: Node[]; isKept: boolean }>();
  const blockOf = (value: Value) => ('node' in value ? held.get(memory.of(value)) : undefined);
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
      held.set(memory.of(value), {
        value,
        bytes: bytesOf(meta),
        nodes: [node, ...startsOf(node)],
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

/** What has allocated the memory of a wait of the program, which only ends the communication. */
const startsOf = (node: Node): Node[] =>
  isWait(node) && node.op?.manages != null
    ? node.inputs.flatMap((value) =>
        'node' in value && startsCommunication(value.node) ? value.node : [],
      )
    : [];

const isInput = ({ kind }: Node): boolean => kind === 'placeholder' || kind === 'constant';
