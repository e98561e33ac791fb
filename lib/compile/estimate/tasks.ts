/** What the streams of a rank have to do for a graph, in the order in which they get it. */
import type { Graph } from '../graph/graph.js';
import type { Node } from '../graph/node.js';
import { isView, isWait, startsCommunication } from '../graph/traits.js';
import { communicationSeconds, computeSeconds, type Rates } from './rates.js';
import { type CommunicationWork, communicationWork, computeWork } from './work.js';

/** The stream that computes, or the one that communicates. */
export type Lane = 'compute' | 'communication';

/** What a stream does at once: a kernel, a collective, a wait. */
export interface Task {
  /** The name of the node. */
  readonly name: string;
  /** The stream. */
  readonly lane: Lane;
  /** How long it takes; 0 for a wait. */
  readonly seconds: number;
  /** Floating-point operations of a product. */
  readonly flops: number;
  /** Bytes that a kernel moves, or that a collective sends. */
  readonly bytes: number;
  /** The mesh dimension or group of a collective; null for a kernel. */
  readonly along: string | null;
  /** The ranks of its group; 1 for a kernel. */
  readonly ranks: number;
  /** The collectives that must have ended. */
  readonly waitsFor: readonly Task[];
  /** The node, if the task is one of a graph. */
  readonly node: Node | null;
}

/** How {@link tasksOf} reads a graph. */
interface TaskOptions {
  /** The size of all groups; null for that of each. */
  readonly ranks?: number | null;
  /** Collectives take as long as on the rank that sends most. */
  readonly byLargest?: boolean;
  /** Waits where results are used first, and not where the graph has them. */
  readonly waitsLate?: boolean;
  /** Seconds of kernels, by the names of nodes, in place of those that follow from rates. */
  readonly measured?: ReadonlyMap<string, number>;
}

/** Which collectives the values of nodes are results of, until something waits for them. */
export class PendingResults<T> {
  private readonly collectives = new Map<Node, T>();

  /** What a node reads before anything has waited for it. */
  readBy(node: Node): T[] {
    const found = new Set<T>();
    for (const value of node.reads) {
      const collective = 'node' in value ? this.collectives.get(value.node) : undefined;
      if (collective !== undefined) found.add(collective);
    }
    return [...found];
  }

  /** The value of the node is the result of a collective, or a view of one. */
  add(node: Node, collective: T): void {
    this.collectives.set(node, collective);
  }
}

const NONE_MEASURED: ReadonlyMap<string, number> = new Map();

/** The tasks of a graph. */
export function tasksOf(
  graph: Graph,
  rates: Rates,
  {
    ranks = null,
    byLargest = false,
    waitsLate = false,
    measured = NONE_MEASURED,
  }: TaskOptions = {},
): Task[] {
  const tasks: Task[] = [];
  const users = graph.allUsers();
  const workOf = (node: Node): CommunicationWork =>
    communicationWork(node, { ranks, byLargest, waits: users.get(node)?.filter(isWait) });
  const pending = new PendingResults<Task>();
  for (const node of graph.nodes) {
    const waitsFor = pending.readBy(node);
    const [first] = waitsFor;
    if (startsCommunication(node)) {
      const task = communicationTask(node, rates, workOf(node), waitsFor);
      pending.add(node, task);
      tasks.push(task);
    } else if (isWait(node) && !waitsLate) {
      if (first !== undefined) tasks.push({ ...waitTask(node.name, waitsFor), node });
    } else if (isView(node) || isWait(node)) {
      if (first !== undefined) pending.add(node, first);
    } else {
      const work = computeWork(node);
      if (work === null) continue;
      const { flops, bytes } = work;
      const seconds = measured.get(node.name) ?? computeSeconds(rates, work);
      tasks.push({ ...waitTask(node.name, waitsFor), seconds, flops, bytes, node });
    }
  }
  return tasks;
}

/** A wait of the stream that computes. */
export const waitTask = (name: string, waitsFor: readonly Task[]): Task => ({
  name,
  lane: 'compute',
  seconds: 0,
  flops: 0,
  bytes: 0,
  along: null,
  ranks: 1,
  waitsFor,
  node: null,
});

function communicationTask(
  node: Node,
  rates: Rates,
  { ranks, along, sentBytes }: CommunicationWork,
  waitsFor: readonly Task[],
): Task {
  return {
    name: node.name,
    lane: 'communication',
    seconds: communicationSeconds(rates, ranks, sentBytes),
    flops: 0,
    bytes: sentBytes,
    along,
    ranks,
    waitsFor,
    node,
  };
}
