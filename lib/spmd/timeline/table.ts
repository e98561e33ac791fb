/** A timeline as text. */
import { formatTable } from '../../dtensor/debug/terminal.js';
import type { Timeline, TimelineEntry } from './timeline.js';
import { formatBytes, formatSeconds } from './units.js';

/** A table has at most so many rows: the longest ones. */
const MOST_ROWS = 60;
/** A smaller part of the time is what rounding leaves. */
const IDLE_SHARE = 1e-6;
const TITLES = ['start', 'end', 'waited', 'stream', 'node', 'work'];
const NUMBERS = new Set(['called', 'start', 'end', 'waited']);

const lengthOf = ({ start, end, waited }: TimelineEntry): number => end - start + waited;

/** The times, and a row for each node. */
export function printTimeline(timeline: Timeline): string {
  const { entries, rates } = timeline;
  const longest = new Set(
    [...entries].sort((a, b) => lengthOf(b) - lengthOf(a)).slice(0, MOST_ROWS),
  );
  const shown = entries.filter((entry) => longest.has(entry));
  const rows = shown.map((entry) =>
    rates === null ? [formatSeconds(entry.called ?? 0), ...rowOf(entry)] : rowOf(entry),
  );
  const titles = rates === null ? ['called', ...TITLES] : TITLES;
  const numbers = titles.flatMap((title, i) => (NUMBERS.has(title) ? [i] : []));
  const left = entries.length - rows.length;
  return [
    headOf(timeline),
    formatTable(titles, rows, numbers),
    ...(left > 0 ? [`${left} shorter nodes are left out`] : []),
  ].join('\n');
}

function headOf(timeline: Timeline): string {
  const { title, rates, total, compute, exposed, idle, communication } = timeline;
  const by = rates === null ? 'as a rank has seen it' : `at the rates of ${rates.name}`;
  const host = idle > IDLE_SHARE * total ? ` and the host ${formatSeconds(idle)}` : '';
  return (
    `${title === '' ? 'graph' : title} ${by}: ${formatSeconds(total)}, of which kernels ` +
    `${formatSeconds(compute)}${host === '' ? ' and' : ','} exposed communication ` +
    `${formatSeconds(exposed)}${host}; collectives ${formatSeconds(communication)}`
  );
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
