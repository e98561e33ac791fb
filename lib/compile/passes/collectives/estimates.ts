/** The time that a graph takes and the memory that it holds, for any order of its nodes. */
import { heldMemory } from '../../estimate/held-memory.js';
import { atLargestShards } from '../../estimate/largest-shards.js';
import type { Rates } from '../../estimate/rates.js';
import { Streams } from '../../estimate/streams.js';
import { type Task, tasksOf } from '../../estimate/tasks.js';
import type { Graph } from '../../graph/graph.js';
import type { Node } from '../../graph/node.js';

/** Nodes in an order, each as its position in the given graph. */
export type Order = readonly number[];

/** A collective, or a kernel, with the collectives that it waits for. */
interface Timed {
  readonly seconds: number;
  readonly isKernel: boolean;
  readonly waitsFor: readonly number[];
}

/** Memory, and the nodes between the first and the last of which it is held. */
interface Block {
  readonly bytes: number;
  readonly nodes: readonly number[];
  readonly isGiven: boolean;
  readonly isKept: boolean;
}

/**
 * Communication beside kernels takes longer than alone, and ranks come late: so many times its
 * estimate is covered.
 */
const MARGIN = 1.5;

/** Estimates of a graph. They are equal on all ranks, whatever the sizes of their shards. */
export class Estimates {
  /** What takes time, by positions; undefined for other nodes. */
  private readonly timed: readonly (Timed | undefined)[];
  private readonly blocks: readonly Block[];
  private readonly length: number;

  /** `donated`: the positions of the inputs that are freed after their last use. */
  constructor(given: Graph, rates: Rates, donated: readonly number[]) {
    const graph = atLargestShards(given);
    const { nodes, placeholders } = graph;
    const positions = new Map(nodes.map((node, i) => [node, i]));
    const positionOf = (node: Node): number => positions.get(node) as number;
    this.length = nodes.length;
    const tasks = tasksOf(graph, beside(rates), { byLargest: true, waitsLate: true });
    this.timed = timedNodes(nodes, tasks, positionOf);
    const freed = new Set(donated.map((i) => placeholders[i] as Node));
    this.blocks = heldMemory(graph, { donated: freed, untilWaits: true }).map((block) => ({
      ...block,
      nodes: block.nodes.map(positionOf),
    }));
  }

  /** How long a node takes. */
  secondsOf(node: number): number {
    return this.timed[node]?.seconds ?? 0;
  }

  /** Whether a node stops until a collective has ended. */
  waitsFor(node: number, start: number): boolean {
    return this.timed[node]?.waitsFor.includes(start) ?? false;
  }

  /** How long it takes to run all. */
  seconds(order: Order): number {
    const streams = new Streams();
    const ends = new Float64Array(this.length);
    for (const node of order) this.run(streams, node, ends);
    return Math.max(streams.computed, streams.communicated);
  }

  /** How long kernels, and whoever gets the results, wait for each collective. */
  stalls(order: Order): Float64Array {
    const streams = new Streams();
    const ends = new Float64Array(this.length);
    const stalls = new Float64Array(this.length);
    for (const node of order) {
      const timed = this.timed[node];
      if (timed === undefined) continue;
      const { computed } = streams;
      const waited = this.run(streams, node, ends) - computed;
      if (timed.isKernel) for (const start of timed.waitsFor) (stalls[start] as number) += waited;
    }
    // What ends behind the last kernel delays what comes after the graph.
    for (const node of order)
      if (this.timed[node]?.isKernel === false) {
        const late = (ends[node] as number) - streams.computed;
        if (late > 0) (stalls[node] as number) += Math.min(late, this.secondsOf(node));
      }
    return stalls;
  }

  /** The most bytes that are held at once. */
  bytes(order: Order): number {
    const positions = new Int32Array(this.length);
    for (let at = 0; at < order.length; at++) positions[order[at] as number] = at;
    const changes = new Float64Array(this.length + 1);
    for (const { bytes, nodes, isGiven, isKept } of this.blocks) {
      let [from, to] = [this.length, 0];
      for (const node of nodes) {
        from = Math.min(from, positions[node] as number);
        to = Math.max(to, positions[node] as number);
      }
      (changes[isGiven ? 0 : from] as number) += bytes;
      if (!isKept) (changes[to + 1] as number) -= bytes;
    }
    let [now, peak] = [0, 0];
    for (const change of changes) {
      now += change;
      peak = Math.max(peak, now);
    }
    return peak;
  }

  /** Returns when the node starts. */
  private run(streams: Streams, node: number, ends: Float64Array): number {
    const timed = this.timed[node];
    if (timed === undefined) return streams.computed;
    const { isKernel, seconds, waitsFor } = timed;
    let ready = 0;
    for (const start of waitsFor) ready = Math.max(ready, ends[start] as number);
    const start = streams.run(isKernel, seconds, ready);
    ends[node] = start + seconds;
    return start;
  }
}

/** The rates of links beside kernels. */
function beside(rates: Rates): Rates {
  const links = rates.links.map(({ ranks, latency, bandwidth }) => ({
    ranks,
    latency: latency * MARGIN,
    bandwidth: bandwidth / MARGIN,
  }));
  return { ...rates, links };
}

function timedNodes(
  nodes: readonly Node[],
  tasks: readonly Task[],
  positionOf: (node: Node) => number,
): (Timed | undefined)[] {
  const timed = new Array<Timed | undefined>(nodes.length).fill(undefined);
  for (const { node, seconds, lane, waitsFor } of tasks)
    timed[positionOf(node as Node)] = {
      seconds,
      isKernel: lane === 'compute',
      waitsFor: waitsFor.map((task) => positionOf(task.node as Node)),
    };
  return timed;
}
