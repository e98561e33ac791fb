/** Timelines: when each node of a graph runs, and how long ranks wait for communication. */

import type { Rates } from '../../compile/estimate/rates.js';
import type { Lane } from '../../compile/estimate/tasks.js';
import { coveredTime, type Span } from '../../core/covered-time.js';
import { drawTimeline } from './picture.js';
import { printTimeline } from './table.js';

/** A node in a {@link Timeline}. */
export interface TimelineEntry {
  /** The name of the node. */
  readonly name: string;
  /** The stream that runs it. */
  readonly lane: Lane;
  /** Seconds until the host calls it; null if that was not recorded. */
  readonly called: number | null;
  /** Seconds until it starts. */
  readonly start: number;
  /** Seconds until it has ended. */
  readonly end: number;
  /**
   * Seconds before the start in which the stream waits for a collective, with nothing to compute.
   */
  readonly waited: number;
  /** Floating-point operations of a product. */
  readonly flops: number;
  /** Bytes that a kernel moves, or that a rank sends in a collective. */
  readonly bytes: number;
}

/** What {@link timeline} and {@link recordTimeline} return: times in seconds. */
export class Timeline {
  /** What the timeline is of. */
  readonly title: string;
  /** The rates; null if the times are those that a rank has seen. */
  readonly rates: Rates | null;
  /** The nodes that take time, in the order of the graph. */
  readonly entries: readonly TimelineEntry[];
  /** When all is done. */
  readonly total: number;
  /** The time of all kernels. */
  readonly compute: number;
  /** The time of all collectives. */
  readonly communication: number;
  /** The time of collectives in which nothing is computed. */
  readonly exposed: number;
  /** The time in which nothing is computed or communicated, because the host is late. */
  readonly idle: number;

  /** @internal */
  constructor(title: string, rates: Rates | null, entries: readonly TimelineEntry[]) {
    this.title = title;
    this.rates = rates;
    this.entries = entries;
    const kernels = entries.filter(({ lane }) => lane === 'compute');
    const collectives = entries.filter(({ lane }) => lane === 'communication');
    this.compute = sumOf(kernels);
    this.communication = sumOf(collectives);
    this.total = entries.reduce((last, { end }) => Math.max(last, end), 0);
    const busy = coveredTime(entries);
    // Differences of sums, which rounding must not make more than a part of the time.
    this.exposed = Math.min(Math.max(0, busy - coveredTime(kernels)), this.communication);
    this.idle = Math.max(0, this.total - busy);
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

const sumOf = (spans: readonly Span[]): number =>
  spans.reduce((time, { start, end }) => time + end - start, 0);
