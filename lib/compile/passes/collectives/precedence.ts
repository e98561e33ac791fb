/**
 * Which nodes of a graph must come before which. Any order that keeps this computes the same values
 * from the same memory, and calls collectives in the same order.
 */
import { Dependencies } from '../../graph/dependencies.js';
import type { Graph } from '../../graph/graph.js';
import type { Node } from '../../graph/node.js';
import { isCollective, isOrderedEffect, isWait, startsCommunication } from '../../graph/traits.js';

/** Nodes that keep their order among themselves. */
type Chain = 'communication' | 'waits' | 'program';

/** The precedence of a graph as it is now: edits need a new one. */
export class Precedence {
  private readonly earlier = new Map<Node, Node[]>();
  private readonly later = new Map<Node, Node[]>();

  constructor(graph: Graph) {
    for (const node of graph.nodes) {
      this.earlier.set(node, []);
      this.later.set(node, []);
    }
    for (const node of graph.nodes)
      for (const value of node.reads) if ('node' in value) this.add(value.node, node);
    this.addMemory(graph);
    this.addChains(graph);
    this.addEffects(graph);
  }

  /** Nodes that must come before a node; those before them are not repeated. */
  before(node: Node): readonly Node[] {
    return this.earlier.get(node) as Node[];
  }

  /** Nodes that must come after a node; those after them are not repeated. */
  after(node: Node): readonly Node[] {
    return this.later.get(node) as Node[];
  }

  private add(first: Node, second: Node): void {
    (this.earlier.get(second) as Node[]).push(first);
    (this.later.get(first) as Node[]).push(second);
  }

  /** What reads memory stays on its side of what writes it. */
  private addMemory(graph: Graph): void {
    const dependencies = new Dependencies(graph);
    const keyOf = this.memoryKeys(graph, dependencies);
    const writers = new Map<object, Node>();
    const readers = new Map<object, Node[]>();
    for (const node of graph.nodes) {
      for (const memory of dependencies.readBy(node)) {
        const key = keyOf(memory);
        const writer = writers.get(key);
        if (writer !== undefined) this.add(writer, node);
        const known = readers.get(key);
        if (known === undefined) readers.set(key, [node]);
        else known.push(node);
      }
      for (const memory of dependencies.writtenBy(node)) {
        const key = keyOf(memory);
        const writer = writers.get(key);
        if (writer !== undefined && writer !== node) this.add(writer, node);
        for (const reader of readers.get(key) ?? []) if (reader !== node) this.add(reader, node);
        readers.delete(key);
        writers.set(key, node);
      }
    }
  }

  /** Inputs may lie in one memory: where one is written, all of them count as one. */
  private memoryKeys(graph: Graph, dependencies: Dependencies): (memory: object) => object {
    const inputs = new Set(
      graph.nodes.filter(isInput).map((node) => dependencies.memoryOf({ node, output: 0 })),
    );
    const isWritten = graph.nodes.some((node) =>
      dependencies.changedBy(node).some((memory) => inputs.has(memory)),
    );
    return isWritten ? (memory) => (inputs.has(memory) ? inputs : memory) : (memory) => memory;
  }

  private addChains(graph: Graph): void {
    const last = new Map<Chain, Node>();
    for (const node of graph.nodes) {
      const chain = chainOf(node);
      if (chain === null) continue;
      const before = last.get(chain);
      if (before !== undefined) this.add(before, node);
      last.set(chain, node);
    }
  }

  /** Nothing passes an effect that does more than return a value. */
  private addEffects(graph: Graph): void {
    let effect: Node | null = null;
    let since: Node[] = [];
    for (const node of graph.nodes) {
      if (isInput(node)) continue;
      if (effect !== null) this.add(effect, node);
      if (!isOrderedEffect(node)) {
        since.push(node);
        continue;
      }
      for (const before of since) this.add(before, node);
      [effect, since] = [node, []];
    }
  }
}

/** Whether the node is there before the graph runs. */
export const isInput = ({ kind }: Node): boolean => kind === 'placeholder' || kind === 'constant';

/**
 * The chain of a node: all ranks communicate in one order; draws take numbers from generators in
 * order, and so may code of the program; waits of the program may free what others fill.
 */
function chainOf(node: Node): Chain | null {
  if (startsCommunication(node)) return 'communication';
  const isProgram = node.op?.compute != null && !isCollective(node);
  if (isWait(node)) return isProgram ? 'waits' : null;
  return isProgram || node.effect === 'draw' ? 'program' : null;
}
