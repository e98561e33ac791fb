/**
 * Groups calls that one kernel computes: first each with the calls whose results it reads, then
 * groups that read one value. A group never depends on itself through a node outside of it.
 */
import { numelOf, sameShape } from '../../core/shape.js';
import { fusedLimits } from '../../ops/fused-pointwise.js';
import type { Graph } from '../graph/graph.js';
import type { Node, Value } from '../graph/node.js';
import { isView } from '../graph/traits.js';
import { type NodeValue, ValueMap } from '../partition/value-map.js';
import {
  computedShape,
  isBarrier,
  isCandidate,
  isJoin,
  metaOfValue,
  operandOf,
  type Space,
  spaceOf,
  storesOf,
} from './candidates.js';
import { HeldBytes } from './held-bytes.js';

/** Readers of one value further apart stay so: all results of one call live from there on. */
const NEAR = 100;

/** Calls that become one, in the order of the graph. */
export interface Group {
  readonly members: readonly Node[];
  /** What they compute their elements over. */
  readonly space: Space;
  /** The values of other nodes that members read, without views between dense values. */
  readonly inputs: readonly NodeValue[];
  /** The members whose results other nodes read, or the graph returns. */
  readonly stored: readonly Node[];
}

/** The nodes of a graph, each in a unit of its own at first, and how units depend on each other. */
export class Groups {
  /** What a node reads; of a candidate, without views that its group does not need. */
  readonly operands = new Map<Node, readonly Value[]>();
  private readonly units = new Map<Node, Group>();
  private readonly readers = new Map<Node, Node[]>();
  private readonly results = new Set<Node>();
  private readonly positions = new Map<Node, number>();
  /** For each position, how many groups have members both up to it and behind it. */
  private readonly open: number[];
  private readonly held: HeldBytes;
  /** The number of barriers before each node: no group crosses one. */
  private readonly regions = new Map<Node, number>();

  constructor(graph: Graph, canFuse: (node: Node) => boolean) {
    for (const value of graph.outputs) if ('node' in value) this.results.add(value.node);
    this.open = graph.nodes.map(() => 0);
    this.held = new HeldBytes(graph);
    let region = 0;
    const candidates: Node[] = [];
    for (const [position, node] of graph.nodes.entries()) {
      if (isBarrier(node)) region++;
      this.positions.set(node, position);
      this.regions.set(node, region);
      const isMember = isCandidate(node) && canFuse(node);
      if (isMember) candidates.push(node);
      const operands = isMember ? node.inputs.map((value) => operandOf(node, value)) : node.reads;
      this.operands.set(node, operands);
    }
    this.addReaders(graph.nodes);
    for (const node of candidates) this.units.set(node, this.unitOf([node], spaceOf(node)));
    for (const node of candidates) this.joinProducers(node);
    this.joinReaders();
  }

  /** The groups of several calls, of which some compute. */
  get all(): Group[] {
    return [...new Set(this.units.values())].filter(
      ({ members }) => members.length > 1 && !members.every(isJoin),
    );
  }

  /** Views that no node reads any more, because members read what they show, read nothing. */
  private addReaders(nodes: readonly Node[]): void {
    for (const node of [...nodes].reverse()) {
      if (isView(node) && !this.readers.has(node) && !this.results.has(node)) continue;
      for (const value of this.operands.get(node) as readonly Value[]) {
        if ('number' in value) continue;
        const readers = this.readers.get(value.node);
        if (readers === undefined) this.readers.set(value.node, [node]);
        else if (readers[0] !== node) readers.unshift(node);
      }
    }
  }

  private unitOf(members: readonly Node[], space: Space): Group {
    const inside = new Set(members);
    const inputs = new ValueMap<true>();
    for (const node of members)
      for (const value of this.operands.get(node) as readonly Value[])
        if ('node' in value && !inside.has(value.node)) inputs.set(value, true);
    const stored = members.filter(
      (node) => this.results.has(node) || this.readersOf(node).some((user) => !inside.has(user)),
    );
    return { members, space, inputs: inputs.keys, stored };
  }

  private readersOf(node: Node): readonly Node[] {
    return this.readers.get(node) ?? [];
  }

  private joinProducers(node: Node): void {
    for (const value of this.operands.get(node) as readonly Value[]) {
      const producer = 'node' in value ? this.units.get(value.node) : undefined;
      if (producer !== undefined) this.join(producer, this.units.get(node) as Group);
    }
  }

  /** Joins groups that read all elements of one value. */
  private joinReaders(): void {
    for (const [node, readers] of this.readers)
      for (const output of node.metas.keys()) {
        const value = { node, output };
        const reading = readers.filter((reader) => this.readsAll(reader, value));
        for (let i = 1; i < reading.length; i++) {
          const [a, b] = [reading[i - 1], reading[i]] as [Node, Node];
          if (this.positionOf(b) - this.positionOf(a) <= NEAR)
            this.join(this.units.get(a) as Group, this.units.get(b) as Group);
        }
      }
  }

  /** Whether a candidate reads each element of a value once. */
  private readsAll(node: Node, value: NodeValue): boolean {
    if (!this.units.has(node)) return false;
    const numel = numelOf(computedShape(node));
    if (numel !== numelOf(metaOfValue(value).shape)) return false;
    return (this.operands.get(node) as readonly Value[]).some(
      (read) => 'node' in read && read.node === value.node && read.output === value.output,
    );
  }

  private join(a: Group, b: Group): void {
    if (a === b || this.regionOf(a) !== this.regionOf(b)) return;
    const space = jointSpace(a.space, b.space);
    if (space === null || a.members.length + b.members.length > fusedLimits.steps) return;
    if (this.dependsOnItself(a, b)) return;
    const unit = this.unitOf(this.inOrder(a, b), space);
    const stores = unit.stored.reduce((sum, node) => sum + storesOf(node), 0);
    if (unit.inputs.length + stores > fusedLimits.operands) return;
    if (!this.held.joined(unit.members, this.readersOutside(unit))) return;
    for (const node of unit.members) this.units.set(node, unit);
    for (const before of [a, b]) this.countOpen(before, -1);
    this.countOpen(unit, 1);
  }

  private readersOutside({ members, stored }: Group): Node[] {
    const inside = new Set(members);
    return stored.flatMap((node) => this.readersOf(node).filter((user) => !inside.has(user)));
  }

  private countOpen({ members }: Group, by: number): void {
    const end = this.positionOf(members.at(-1) as Node);
    for (let at = this.positionOf(members[0] as Node); at < end; at++)
      this.open[at] = (this.open[at] as number) + by;
  }

  private regionOf({ members }: Group): number {
    return this.regions.get(members[0] as Node) as number;
  }

  private inOrder(a: Group, b: Group): Node[] {
    const members = [...a.members, ...b.members];
    return members.sort((x, y) => this.positionOf(x) - this.positionOf(y));
  }

  private positionOf(node: Node): number {
    return this.positions.get(node) as number;
  }

  /** Whether a node outside of both depends on one of them, and one of them on the node. */
  private dependsOnItself(a: Group, b: Group): boolean {
    const region = this.regionOf(a);
    const inside = new Set([...a.members, ...b.members]);
    const last = Math.max(...[a, b].map(({ members }) => this.positionOf(members.at(-1) as Node)));
    // Nodes behind both lead back only through a group that begins before.
    const isEnd = this.open[last] === 0;
    const isOutside = (node: Node): boolean =>
      this.regions.get(node) !== region || (isEnd && this.positionOf(node) > last);
    const seen = new Set<Node>();
    const pending: Node[] = [];
    const follow = (node: Node, but: ReadonlySet<Node> = seen): void => {
      for (const reader of this.readersOf(node))
        if (!but.has(reader) && !isOutside(reader)) pending.push(reader);
    };
    for (const node of inside) follow(node, inside);
    for (let node = pending.pop(); node !== undefined; node = pending.pop()) {
      if (seen.has(node)) continue;
      for (const other of this.units.get(node)?.members ?? [node]) {
        if (inside.has(other)) return true;
        seen.add(other);
        follow(other);
      }
    }
    return false;
  }
}

/** The space of calls of two spaces; null if they have no common one. */
function jointSpace(a: Space, b: Space): Space | null {
  if (a.key !== b.key) return null;
  if (a.shape !== null && b.shape !== null && !sameShape(a.shape, b.shape)) return null;
  return { key: a.key, shape: a.shape ?? b.shape };
}
