/** Lines beside the rows of a picture: which rows they join, and which of them share a track. */
import type { Graph } from '../graph.js';
import type { Node, Value } from '../node.js';
import type { Row } from './rows.js';

/** A line from the row that makes values to the rows that read them. */
export interface Line {
  readonly from: number;
  readonly to: readonly number[];
}

/** The lines of a picture, by the side of the rows on which they run. */
export interface Lines {
  /** Values that later rows read. */
  readonly values: readonly Line[];
  /** Values that are sent. */
  readonly sent: readonly Line[];
  /** Collectives that run until a row waits for them. */
  readonly inFlight: readonly Line[];
}

/** The lines between rows, the last of which is the result. Inputs that share a row have none. */
export function linesOf(graph: Graph, rows: readonly Row[]): Lines {
  const readers = readersOf(graph, rows);
  const lines = { values: [] as Line[], sent: [] as Line[], inFlight: [] as Line[] };
  const add = (side: keyof Lines, from: number, to: readonly number[]): void => {
    if (to.length > 0) lines[side].push({ from, to });
  };
  const isSent = (to: number): boolean => rows[to]?.kind === 'collective';
  rows.forEach(({ kind, nodes }, from) => {
    const to = readers[from] as readonly number[];
    if (kind === 'collective') add('inFlight', from, to);
    else if (kind !== 'input' || nodes.length === 1) {
      add(
        'values',
        from,
        to.filter((row) => !isSent(row)),
      );
      add('sent', from, to.filter(isSent));
    }
  });
  return lines;
}

/** The later rows that read values of each row, in order. */
function readersOf(graph: Graph, rows: readonly Row[]): number[][] {
  const rowOf = new Map(
    rows.flatMap(({ nodes }, i) => nodes.map((node): [Node, number] => [node, i])),
  );
  const readers = rows.map(() => new Set<number>());
  const join = (values: readonly Value[], to: number): void => {
    for (const value of values) {
      const from = 'node' in value ? rowOf.get(value.node) : undefined;
      if (from !== undefined && from < to) readers[from]?.add(to);
    }
  };
  rows.forEach(({ nodes }, i) => {
    for (const { reads } of nodes) join(reads, i);
  });
  join(graph.outputs, rows.length - 1);
  return readers.map((all) => [...all].sort((a, b) => a - b));
}

/** The track of each line: those of one do not meet, and short ones are nearest to the rows. */
export function tracksOf(lines: readonly Line[]): number[] {
  const end = ({ to }: Line): number => to.at(-1) as number;
  const length = (line: Line): number => end(line) - line.from;
  const taken: Line[][] = [];
  const trackOf = new Map<Line, number>();
  for (const line of [...lines].sort((a, b) => length(a) - length(b) || a.from - b.from)) {
    const meets = (other: Line): boolean => other.from < end(line) && line.from < end(other);
    const free = taken.findIndex((others) => !others.some(meets));
    const track = free < 0 ? taken.push([]) - 1 : free;
    taken[track]?.push(line);
    trackOf.set(line, track);
  }
  return lines.map((line) => trackOf.get(line) as number);
}
