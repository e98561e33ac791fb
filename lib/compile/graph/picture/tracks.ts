/** Lines beside the rows of a picture: which rows they join, and which of them share a track. */
import type { Graph } from '../graph.js';
import type { Node } from '../node.js';
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
  const rowOf = new Map<Node, number>(
    rows.flatMap(({ nodes }, i) => nodes.map((node) => [node, i])),
  );
  const readers = rows.map(() => new Set<number>());
  const join = (value: { node: Node } | { number: unknown }, to: number): void => {
    const from = 'node' in value ? rowOf.get(value.node) : undefined;
    if (from !== undefined && from !== to) readers[from]?.add(to);
  };
  rows.forEach(({ nodes }, i) => {
    for (const { reads } of nodes) for (const value of reads) join(value, i);
  });
  for (const value of graph.outputs) join(value, rows.length - 1);
  const [values, sent, inFlight]: Line[][] = [[], [], []] as const;
  rows.forEach(({ kind, nodes }, from) => {
    if (kind === 'input' && nodes.length > 1) return;
    const all = [...(readers[from] as Set<number>)].filter((to) => to > from).sort((a, b) => a - b);
    const isSent = (to: number): boolean => rows[to]?.kind === 'collective';
    const lines =
      kind === 'collective'
        ? ([[inFlight, all]] as const)
        : ([
            [values, all.filter((to) => !isSent(to))],
            [sent, all.filter(isSent)],
          ] as const);
    for (const [side, to] of lines) if (to.length > 0) side?.push({ from, to });
  });
  return { values, sent, inFlight } as Lines;
}

/** The track of each line: those of one track do not meet, and short ones are nearest to the rows. */
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
