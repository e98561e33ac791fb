/**
 * The bytes that a graph holds at each of its nodes, as groups form. A fused call reads all that
 * its members read at one place, so that values which were freed early live up to there: a sum of
 * many products would hold all of them. What its members pass on to each other needs no memory.
 */
import { heldMemory } from '../estimate/held-memory.js';
import type { Graph } from '../graph/graph.js';
import type { Node } from '../graph/node.js';

/** Memory, with the nodes that compute in it or read it, and its first and last place. */
interface Block {
  readonly bytes: number;
  readonly nodes: readonly Node[];
  readonly isGiven: boolean;
  readonly isKept: boolean;
  first: number;
  last: number;
}

/** What becomes of a block, if its nodes move. Null if it is not needed any more. */
interface Change {
  readonly block: Block;
  readonly to: readonly [first: number, last: number] | null;
}

/** Bytes that groups may add: less than one value of those that are worth fusing on the CPU. */
const ALLOWANCE = 4096;

export class HeldBytes {
  /** Where each node runs: an even number, or just before such a place. */
  private readonly places: Map<Node, number>;
  private readonly blocks = new Map<Node, Block[]>();
  /** The bytes held at each place. */
  private readonly held: Float64Array;
  /** The most bytes that any place may hold. */
  private readonly most: number;

  constructor(graph: Graph) {
    this.places = new Map(graph.nodes.map((node, i) => [node, 2 * i]));
    this.held = new Float64Array(2 * graph.nodes.length);
    for (const { bytes, nodes, isGiven, isKept } of heldMemory(graph)) {
      if (isGiven && isKept) continue;
      const block = { bytes, nodes, isGiven, isKept, first: 0, last: 0 };
      [block.first, block.last] = this.extentOf(block);
      this.add(block, block.first, block.last, 1);
      for (const node of new Set(nodes)) {
        const known = this.blocks.get(node);
        if (known === undefined) this.blocks.set(node, [block]);
        else known.push(block);
      }
    }
    this.most = this.held.reduce((a, b) => Math.max(a, b), 0) + ALLOWANCE;
  }

  /**
   * Makes nodes run as one, at most as late as the last of them and before `readers`, unless the
   * graph then holds more than it did without groups. Whether they do.
   */
  joined(members: readonly Node[], readers: readonly Node[]): boolean {
    const place = Math.min(
      Math.max(...members.map((node) => this.placeOf(node))),
      ...readers.map((node) => this.placeOf(node) - 1),
    );
    const before = members.map((node) => this.placeOf(node));
    for (const node of members) this.places.set(node, place);
    const changes = this.changesOf(members);
    this.apply(changes, 1);
    if (!this.exceeds(changes)) {
      for (const { block, to } of changes) [block.first, block.last] = to ?? [0, -1];
      return true;
    }
    this.apply(changes, -1);
    members.forEach((node, i) => {
      this.places.set(node, before[i] as number);
    });
    return false;
  }

  private changesOf(members: readonly Node[]): Change[] {
    const inside = new Set(members);
    const touched = new Set(members.flatMap((node) => this.blocks.get(node) ?? []));
    const changes: Change[] = [];
    for (const block of touched) {
      const isInternal = !block.isKept && block.nodes.every((node) => inside.has(node));
      const to = isInternal ? null : this.extentOf(block);
      if (to === null || to[0] !== block.first || to[1] !== block.last) changes.push({ block, to });
    }
    return changes;
  }

  private apply(changes: readonly Change[], sign: number): void {
    for (const { block, to } of changes) {
      this.add(block, block.first, block.last, -sign);
      if (to !== null) this.add(block, to[0], to[1], sign);
    }
  }

  /** Whether more is held than may be, at a place where blocks are that were not there before. */
  private exceeds(changes: readonly Change[]): boolean {
    return changes.some(({ block, to }) => {
      if (to === null) return false;
      for (let place = to[0]; place <= to[1]; place++) {
        const isNew = place < block.first || place > block.last;
        if (isNew && (this.held[place] as number) > this.most) return true;
      }
      return false;
    });
  }

  private add({ bytes }: Block, first: number, last: number, sign: number): void {
    for (let place = first; place <= last; place++)
      this.held[place] = (this.held[place] as number) + sign * bytes;
  }

  private extentOf({ nodes, isGiven, isKept }: Omit<Block, 'first' | 'last'>): [number, number] {
    let [first, last] = [Number.POSITIVE_INFINITY, 0];
    for (const node of nodes) {
      const place = this.placeOf(node);
      first = Math.min(first, place);
      last = Math.max(last, place);
    }
    return [isGiven ? 0 : first, isKept ? this.held.length - 1 : last];
  }

  private placeOf(node: Node): number {
    return this.places.get(node) as number;
  }
}
