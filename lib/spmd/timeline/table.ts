/** A timeline as text. */
import { formatTable } from '../../dtensor/debug/terminal.js';
import type { Timeline, TimelineEntry } from './timeline.js';
import { formatBytes, formatSeconds } from './units.js';

/** A table has at most so many rows: the longest ones. */
const MOST_ROWS = 60;

const lengthOf = ({ start, end, waited }: TimelineEntry): number => end - start + waited;

/** The times, and a row for each node. */
export function printTimeline({ entries, rates, ...times }: Timeline): string {
  const { title, total, compute, communication, exposed } = times;
  const longest = new Set(
    [...entries].sort((a, b) => lengthOf(b) - lengthOf(a)).slice(0, MOST_ROWS),
  );
  const rows = entries.filter((entry) => longest.has(entry)).map(rowOf);
  const left = entries.length - rows.length;
  return [
    `${title === '' ? 'graph' : title} at the rates of ${rates.name}: ${formatSeconds(total)}, of ` +
      `which kernels ${formatSeconds(compute)} and exposed communication ${formatSeconds(exposed)}; ` +
      `collectives ${formatSeconds(communication)}`,
    formatTable(['start', 'end', 'waited', 'stream', 'node', 'work'], rows, [0, 1, 2]),
    ...(left > 0 ? [`${left} shorter nodes are left out`] : []),
  ].join('\n');
}

function rowOf({ start, end, waited, lane, name, flops, bytes }: TimelineEntry): string[] {
  const work = flops > 0 ? `${(flops / 1e9).toPrecision(3)} GFLOP, ` : '';
  const isWait = end === start;
  return [
    formatSeconds(start),
    formatSeconds(end),
    waited > 0 ? formatSeconds(waited) : '',
    lane,
    name,
    isWait ? '' : `${work}${formatBytes(bytes)}${lane === 'compute' ? '' : ' sent'}`,
  ];
}
