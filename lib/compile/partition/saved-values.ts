/**
 * Chooses the values that backward gets, as a minimum cut between the inputs of a joint graph and
 * the nodes that only backward can run. A node is a vertex, and each of its outputs another one;
 * the edge between them has the cost of saving the output.
 */
import type { Graph } from '../graph/graph.js';
import type { Node, Value } from '../graph/node.js';
import { mustStay } from '../graph/traits.js';
import { isTensor } from './extract.js';
import type { Halves, JointGraph } from './joint-graph.js';
import { FlowNetwork } from './max-flow.js';
import { bytesOf, isAlias, type Memory } from './memory.js';
import { isFusible, isUnrepeatable, type RecomputeTags } from './recomputable.js';
import { type NodeValue, ValueMap } from './value-map.js';

/** The choice. */
interface SavedValues {
  readonly saved: ValueMap<true>;
  /** The nodes about whose values it says something. */
  readonly considered: ReadonlySet<Node>;
}

/** Chooses the values. `free`: primals that cost nothing to save. @internal */
export function cheapestValues(
  joint: JointGraph,
  halves: Halves,
  memory: Memory,
  tags: RecomputeTags,
  free: ReadonlySet<Node>,
): SavedValues {
  const network = new SavingNetwork(joint, halves, memory, tags, free);
  return { saved: network.solve(), considered: network.considered };
}

class SavingNetwork {
  readonly considered = new Set<Node>();
  private readonly network = new FlowNetwork();
  private readonly source = this.network.addVertex();
  private readonly sink = this.network.addVertex();
  private readonly computed = new Map<Node, number>();
  private readonly available = new ValueMap<number>();
  private readonly joint: JointGraph;
  private readonly halves: Halves;
  private readonly memory: Memory;
  private readonly tags: RecomputeTags;
  private readonly free: ReadonlySet<Node>;
  private readonly users: ReadonlyMap<Node, readonly Node[]>;
  private readonly distances: ReadonlyMap<Node, number>;
  private readonly ofForward: ReadonlySet<Node>;

  constructor(
    joint: JointGraph,
    halves: Halves,
    memory: Memory,
    tags: RecomputeTags,
    free: ReadonlySet<Node>,
  ) {
    this.joint = joint;
    this.halves = halves;
    this.memory = memory;
    this.tags = tags;
    this.free = free;
    this.users = joint.graph.allUsers();
    this.ofForward = new Set(halves.forward);
    this.distances = distancesToBackward(halves, this.users);
  }

  solve(): ValueMap<true> {
    const { joint, halves, network } = this;
    for (const node of halves.forward) if (this.isChoice(node)) this.addOfForward(node);
    const needed = neededNodes(joint.graph, joint.forwardOutputs, halves);
    const pinned: Node[] = [];
    for (const node of halves.backward) {
      if (!needed.has(node) || node.kind === 'constant') continue;
      if (this.mayRunInForward(node)) this.addEarly(node);
      else pinned.push(node);
    }
    for (const node of this.considered) this.connect(node.reads, this.computed.get(node) as number);
    for (const node of pinned) this.connect(node.reads, this.sink);
    this.connect(joint.graph.outputs.slice(joint.forwardOutputs), this.sink);
    const { sourceSide } = network.minCut(this.source, this.sink);
    const saved = new ValueMap<true>();
    for (const value of this.available.keys) {
      const out = this.available.get(value) as number;
      if (sourceSide[this.computed.get(value.node) as number] && !sourceSide[out])
        saved.set(value, true);
    }
    return saved;
  }

  /** Whether the node makes values of its own: views and in-place calls do not. */
  private isChoice(node: Node): boolean {
    if (node.kind === 'constant' || node.into !== null) return false;
    return !this.memory.isWindow({ node, output: 0 });
  }

  private addOfForward(node: Node): void {
    const again = this.tags.mustRecompute(node);
    this.addVertices(node, (value) => {
      return again && !this.tags.crosses(value) ? Number.POSITIVE_INFINITY : this.costOf(value);
    });
    if (!again && (isUnrepeatable(node, this.memory) || this.tags.isKept(node)))
      this.network.addEdge(
        this.source,
        this.computed.get(node) as number,
        Number.POSITIVE_INFINITY,
      );
  }

  /** Adds a node of backward that forward may run, if its result is smaller than what it reads. */
  private addEarly(node: Node): void {
    if (this.isChoice(node)) this.addVertices(node, (value) => this.costOf(value));
  }

  private addVertices(node: Node, cost: (value: NodeValue) => number): void {
    const { network } = this;
    const inside = network.addVertex();
    this.considered.add(node);
    this.computed.set(node, inside);
    for (let output = 0; output < Math.max(1, node.metas.length); output++) {
      const out = network.addVertex();
      this.available.set({ node, output }, out);
      network.addEdge(inside, out, cost({ node, output }));
    }
  }

  /** Whoever has `vertex` needs all these values. */
  private connect(values: readonly Value[], vertex: number): void {
    for (const value of values) {
      if ('number' in value) continue;
      const out = this.available.get(this.memory.base(value));
      if (out !== undefined) this.network.addEdge(out, vertex, Number.POSITIVE_INFINITY);
    }
  }

  private costOf(value: NodeValue): number {
    const { node, output } = value;
    const meta = node.metas[output];
    if (meta === undefined || !isTensor(value) || this.free.has(node)) return 0;
    if (this.tags.isSaved(node) || this.tags.crosses(value)) return 0;
    const steps = Math.min(100, Math.max(1, this.distances.get(node) as number));
    const users = this.users.get(node) ?? [];
    const fused = node.kind === 'call' && isFusible(node) && users.every(isFusible);
    return Math.round(bytesOf(meta) * 1.1 ** steps) * (fused ? 2 : 1);
  }

  /**
   * Whether a node of backward needs no tangent, has no effect and reads nothing that backward
   * changes, so that it gives in forward what it gives in backward.
   */
  private mayRunInForward(node: Node): boolean {
    const { halves, memory } = this;
    if (node.kind !== 'call' || halves.dependent.has(node) || mustStay(node)) return false;
    if (node.op?.traits.includes('uninitialized')) return false;
    const changes = node.metas.some((_, output) => memory.writes({ node, output }) > 0);
    if (changes && !isAlias(node)) return false;
    return node.reads.every((value) => 'number' in value || this.isEarly(value));
  }

  private isEarly(value: NodeValue): boolean {
    const { node } = value;
    const write = this.memory.lastWrite(value);
    if (write >= 0 && !this.ofForward.has(this.joint.graph.nodes[write] as Node)) return false;
    return (
      this.ofForward.has(node) ||
      node.kind === 'constant' ||
      this.considered.has(node) ||
      (isAlias(node) && this.mayRunInForward(node))
    );
  }
}

/** The steps from each node to the closest one of backward. */
function distancesToBackward(
  { forward, backward }: Halves,
  users: ReadonlyMap<Node, readonly Node[]>,
): Map<Node, number> {
  const distances = new Map<Node, number>(backward.map((node) => [node, 0]));
  for (const node of [...forward].reverse()) {
    let least = Number.POSITIVE_INFINITY;
    for (const user of users.get(node) ?? [])
      least = Math.min(least, distances.get(user) ?? Number.POSITIVE_INFINITY);
    distances.set(node, least + 1);
  }
  return distances;
}

/** The nodes of backward that its results and effects need. */
function neededNodes(graph: Graph, forwardOutputs: number, { backward }: Halves): Set<Node> {
  const needed = new Set<Node>();
  const use = (value: Value): void => {
    if ('node' in value) needed.add(value.node);
  };
  graph.outputs.slice(forwardOutputs).forEach(use);
  for (const node of [...backward].reverse()) {
    if (!needed.has(node) && !mustStay(node)) continue;
    needed.add(node);
    node.reads.forEach(use);
  }
  return needed;
}
