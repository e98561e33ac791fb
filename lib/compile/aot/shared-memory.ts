/** The memory of a joint graph that more than one of its values may have. */
import type { Storage } from '../../core/storage.js';
import type { Graph } from '../graph/graph.js';
import type { Node } from '../graph/node.js';
import { Memory, writtenValues } from '../partition/memory.js';

/**
 * What backward computes again must be as it was, and a graph knows of a change only if it has the
 * name of the value that is changed.
 */
export class SharedMemory {
  private readonly byStorage = new Map<Storage, Node[]>();

  /** Adds an input, by the memory that it has outside of the capture. */
  add(input: Node, storage: Storage | null): void {
    if (storage === null) return;
    const others = this.byStorage.get(storage);
    if (others === undefined) this.byStorage.set(storage, [input]);
    else others.push(input);
  }

  /** Adds another input for a distributed tensor, beside that for its local shard. */
  join(whole: Node, local: Node): void {
    for (const inputs of this.byStorage.values()) if (inputs.includes(local)) inputs.push(whole);
  }

  /** The inputs of each memory that has several. */
  get groups(): readonly (readonly Node[])[] {
    return [...this.byStorage.values()].filter((inputs) => inputs.length > 1);
  }

  /** Whether a call writes into inputs that share memory, or into memory that an op manages. */
  isWritten(graph: Graph): boolean {
    const written = graph.nodes.flatMap((node) =>
      node.kind === 'call' ? writtenValues(node) : [],
    );
    if (written.length === 0) return false;
    const memory = new Memory(graph);
    const shared = this.groups.flat();
    const managed = graph.nodes.filter(({ op }) => op?.traits.includes('communicates'));
    const values = [...shared, ...managed].flatMap((node) =>
      node.metas.map((_, output) => memory.of({ node, output })),
    );
    const refused = new Set(values);
    return written.some((value) => refused.has(memory.of(value)));
  }
}
