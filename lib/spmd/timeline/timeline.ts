/** When each node of a graph would run, and how long the ranks would wait for communication. */
import { Graph } from '../../compile/graph/graph.js';
import { checkNumber, optionsOf, unexpected } from '../../core/options.js';
import { drawTimeline } from './picture.js';
import { type Rates, type RatesName, ratesOf } from './rates.js';
import { printTimeline } from './table.js';
import { type Lane, type Task, tasksOf } from './tasks.js';

/** Options of {@link timeline}. */
export interface TimelineOptions {
  /** A table of rates, or the name of a known one. By default that of the graph's device. */
  readonly rates?: RatesName | Rates;
  /**
   * The ranks of each collective: those of its group by default. Another number simulates a world of
   * that size, in which each rank has as much data.
   */
  readonly worldSize?: number | null;
  /** The title of tables and pictures: by default that of the graph. */
  readonly title?: string;
}

/** A node in a {@link Timeline}. */
export interface TimelineEntry {
  /** The name of the node. */
  readonly name: string;
  /** The stream that runs it. */
  readonly lane: Lane;
  /** Seconds until it starts. */
  readonly start: number;
  /** Seconds until it has ended. */
  readonly end: number;
  /** Seconds before the start in which the stream waits for a collective, with nothing to compute. */
  readonly waited: number;
  /** Floating-point operations of a product. */
  readonly flops: number;
  /** Bytes that a kernel moves, or that a rank sends in a collective. */
  readonly bytes: number;
}

/** What {@link timeline} returns: times in seconds. */
export class Timeline {
  /** What the timeline is of. */
  readonly title: string;
  /** The rates. */
  readonly rates: Rates;
  /** The nodes that take time, in the order of the graph. */
  readonly entries: readonly TimelineEntry[];
  /** When all is done. */
  readonly total: number;
  /** The time of all kernels. */
  readonly compute: number;
  /** The time of all collectives. */
  readonly communication: number;
  /** The time in which nothing is computed, because a collective has to end first. */
  readonly exposed: number;

  /** @internal */
  constructor(title: string, rates: Rates, tasks: readonly Task[]) {
    this.title = title;
    this.rates = rates;
    this.entries = simulated(tasks);
    const sum = (lane: Lane): number =>
      this.entries.reduce((time, e) => time + (e.lane === lane ? e.end - e.start : 0), 0);
    this.compute = sum('compute');
    this.communication = sum('communication');
    this.total = this.entries.reduce((last, { end }) => Math.max(last, end), 0);
    this.exposed = this.total - this.compute;
  }

  /** The times, and a table of the nodes. */
  toString(): string {
    return printTimeline(this);
  }

  /** A picture: two streams from left to right, with waits between the kernels. */
  toSvg(): string {
    return drawTimeline(this);
  }

  [Symbol.for('nodejs.util.inspect.custom')](): string {
    return this.toString();
  }
}

/** Runs the tasks on two streams. */
function simulated(tasks: readonly Task[]): TimelineEntry[] {
  const ends = new Map<Task, number>();
  const entries: TimelineEntry[] = [];
  let [computed, communicated] = [0, 0];
  for (const task of tasks) {
    const { name, lane, flops, bytes } = task;
    const ready = Math.max(0, ...task.waitsFor.map((other) => ends.get(other) ?? 0));
    const isCompute = lane === 'compute';
    const start = isCompute ? Math.max(computed, ready) : Math.max(computed, communicated, ready);
    const end = start + task.seconds;
    const waited = isCompute ? start - computed : 0;
    if (isCompute) computed = end;
    else communicated = end;
    ends.set(task, end);
    if (end > start || waited > 0) entries.push({ name, lane, start, end, waited, flops, bytes });
  }
  return entries;
}

/**
 * Estimates when each node of a graph runs on one rank: kernels in order on one stream, collectives
 * in order on another. A collective starts when all kernels before it in the graph, and the
 * collective before it, have ended; a wait stops the stream that computes until its collective has
 * ended. A kernel takes as long as the slowest of its launch, its memory traffic and its
 * floating-point operations; a collective its latency, and the bytes that a rank sends in a ring.
 * Ranks are equally fast, the host is ahead of the streams, and a kernel is as fast beside a
 * collective as alone.
 *
 * No ranks are needed: a graph that was captured with `initProcessGroup('fake', …)` is as good.
 *
 * @throws ArgumentError for what is no graph, for other options and for rates that are no positive
 * numbers
 * @example
 * const gmTransformation = (module: StepModule) => {
 *   const gm = new IterGraphModule(module);
 *   console.log(`${timeline(gm.graph)}`);
 *   commFusionWithConcat(gm, 25);
 *   scheduleCommWait(gm);
 *   console.log(`${timeline(gm.graph)}`);
 *   gm.finalizeSetup();
 *   return gm;
 * };
 */
export function timeline(graph: Graph, options: TimelineOptions = {}): Timeline {
  const name = 'timeline';
  if (!(graph instanceof Graph)) throw unexpected(name, 'graph', 'a graph', graph);
  const {
    rates = deviceOf(graph),
    worldSize = null,
    title = graph.title,
  } = optionsOf(name, options, 'rates worldSize title');
  if (worldSize !== null) checkNumber(name, 'worldSize', worldSize, { from: 1, whole: true });
  if (typeof title !== 'string') throw unexpected(name, 'title', 'a string', title);
  const table = ratesOf(name, rates);
  return new Timeline(title, table, tasksOf(graph, table, { ranks: worldSize }));
}

function deviceOf(graph: Graph): RatesName {
  const isOnGpu = graph.nodes.some(({ metas }) => metas.some((m) => m.device.type === 'cuda'));
  return isOnGpu ? 'h200' : 'cpu';
}
