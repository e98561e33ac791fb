/** Simulated timelines: when each node of a graph would run, in worlds of any size. */

import { type Rates, type RatesName, ratesNameOf, ratesOf } from '../../compile/estimate/rates.js';
import { Streams } from '../../compile/estimate/streams.js';
import { type Task, tasksOf } from '../../compile/estimate/tasks.js';
import { Graph } from '../../compile/graph/graph.js';
import { checkNumber, checkOneOf, optionsOf, unexpected } from '../../core/options.js';
import { Timeline, type TimelineEntry } from './timeline.js';

/** Options of {@link timeline}. */
export interface TimelineOptions {
  /** A table of rates, or the name of a known one. By default that of the graph's device. */
  readonly rates?: RatesName | Rates;
  /**
   * The ranks of each collective: those of its group by default. Another number simulates a world
   * of that size, in which each rank has as much data.
   */
  readonly worldSize?: number | null;
  /** The title of tables and pictures: by default that of the graph. */
  readonly title?: string;
  /**
   * Where the stream that computes waits for collectives: at the waits of the graph, `'graph'`, or
   * where a kernel uses a result, `'use'`, as the streams of GPUs do.
   */
  readonly waits?: 'graph' | 'use';
  /**
   * Recorded timelines, from which kernels of the same names take their times: the mean of each.
   * All others take what follows from the rates.
   */
  readonly measured?: readonly Timeline[];
}

/** Runs tasks on two streams. */
export function simulate(title: string, rates: Rates, tasks: readonly Task[]): Timeline {
  const streams = new Streams();
  const ends = new Map<Task, number>();
  const entries: TimelineEntry[] = [];
  for (const task of tasks) {
    const { name, lane, seconds, flops, bytes } = task;
    const ready = Math.max(0, ...task.waitsFor.map((other) => ends.get(other) ?? 0));
    const isKernel = lane === 'compute';
    const { computed } = streams;
    const start = streams.run(isKernel, seconds, ready);
    const waited = isKernel ? start - computed : 0;
    const end = start + seconds;
    ends.set(task, end);
    if (end > start || waited > 0)
      entries.push({ name, lane, called: null, start, end, waited, flops, bytes });
  }
  return new Timeline(title, rates, entries);
}

/**
 * Estimates when each node of a graph runs on one rank: kernels in order on one stream, collectives
 * in order on another. A collective starts when all kernels before it in the graph, and the
 * collective before it, have ended; a wait stops the stream that computes until its collective has
 * ended. A kernel takes as long as the slowest of its launch, its memory traffic and its
 * floating-point operations; a collective its latency, and the bytes that a rank sends in a ring.
 * Ranks are equally fast, the host is ahead of the streams, and a kernel is as fast beside a
 * collective as alone. {@link recordTimeline} records what ranks do.
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
    rates = ratesNameOf(graph),
    worldSize = null,
    title = graph.title,
    waits = 'graph',
    measured = [],
  } = optionsOf(name, options, 'rates worldSize title waits measured');
  if (worldSize !== null) checkNumber(name, 'worldSize', worldSize, { from: 1, whole: true });
  if (typeof title !== 'string') throw unexpected(name, 'title', 'a string', title);
  checkOneOf(name, 'waits', waits, ['graph', 'use']);
  if (!Array.isArray(measured) || measured.some((each) => !(each instanceof Timeline)))
    throw unexpected(name, 'measured', 'a list of timelines', measured);
  const table = ratesOf(name, rates);
  const tasks = tasksOf(graph, table, {
    ranks: worldSize,
    waitsLate: waits === 'use',
    measured: meanTimes(measured),
  });
  return simulate(title, table, tasks);
}

/** Seconds of the kernels of each name: means, whose sums are those of whole runs. */
function meanTimes(measured: readonly Timeline[]): Map<string, number> {
  const times = new Map<string, number[]>();
  for (const { name, lane, start, end } of measured.flatMap(({ entries }) => entries))
    if (lane === 'compute') times.set(name, [...(times.get(name) ?? []), end - start]);
  const mean = (values: readonly number[]): number =>
    values.reduce((sum, value) => sum + value, 0) / values.length;
  return new Map([...times].map(([name, values]) => [name, mean(values)]));
}
