/** Where everything is in a picture of a graph. */
import type { Graph } from '../graph.js';
import { printValue } from '../print.js';
import { type Frame, framesOf, type Row } from './rows.js';
import { type Line, type Lines, linesOf, tracksOf } from './tracks.js';

export const ROW = 18;
export const MARGIN = 14;
/** The height of title and legend. */
const HEAD = 60;
const FRAME_GAP = 7;
const PAD = 6;
/** The width of a letter. */
export const LETTER = 6.63;
const TRACK = 8;
/** The widest gutter beside the rows: more lines are closer together. */
const WIDEST = 240;
/** The most letters of each column. */
const MOST = { path: 28, name: 28, operands: 44, type: 40, merged: 84, lane: 34 } as const;
/** The least width, which the legend needs. */
const LEAST = 760;

/** A row, its place, and its texts as far as there is room for them. */
export interface PlacedRow {
  readonly row: Row;
  /** The middle. */
  readonly y: number;
  readonly name: string;
  readonly operands: string;
  readonly type: string;
}

/** A frame and its place. */
export interface PlacedFrame {
  readonly path: string;
  readonly label: string;
  readonly top: number;
  readonly bottom: number;
}

/** A line, and where its vertical part is. */
export interface PlacedLine extends Line {
  readonly x: number;
  readonly track: number;
}

/** Where the columns begin, from left to right. */
export interface Columns {
  readonly path: number;
  readonly name: number;
  readonly operands: number;
  readonly type: number;
  /** Where the boxes of rows end. */
  readonly end: number;
  readonly frameEnd: number;
  readonly lane: number;
  readonly laneEnd: number;
  readonly width: number;
}

type ShownRow = Omit<PlacedRow, 'y'>;

/** All places of a picture. */
export interface Layout {
  readonly rows: readonly PlacedRow[];
  readonly frames: readonly PlacedFrame[];
  readonly lines: { readonly [side in keyof Lines]: readonly PlacedLine[] };
  readonly columns: Columns;
  readonly height: number;
}

/** The places of the rows of a graph, and of what it returns. */
export function layoutOf(graph: Graph): Layout {
  const operands = graph.outputs.map((value) => printValue(value).replace('%', '')).join(', ');
  const returned: Row = { kind: 'input', nodes: [], name: 'return', operands, type: '' };
  const frames = [...framesOf(graph), { path: '', rows: [returned] }];
  const rows = frames.flatMap((frame) => frame.rows);
  const lines = linesOf(graph, rows);
  const gutters = {
    values: gutter(lines.values),
    sent: gutter(lines.sent),
    inFlight: gutter(lines.inFlight),
  };
  const columns = columnsOf(frames, gutters);
  const { placed, height } = placedOf(frames, rows.map(shownOf));
  return {
    ...placed,
    lines: {
      values: placedLines(lines.values, gutters.values, columns.name - PAD, -1),
      sent: placedLines(lines.sent, gutters.sent, columns.frameEnd, 1),
      inFlight: placedLines(lines.inFlight, gutters.inFlight, columns.laneEnd, 1),
    },
    columns,
    height,
  };
}

/** The tracks of lines, and the room for them. */
interface Gutter {
  readonly tracks: readonly number[];
  readonly step: number;
  readonly width: number;
}

function gutter(lines: readonly Line[]): Gutter {
  const tracks = tracksOf(lines);
  const count = tracks.reduce((most, track) => Math.max(most, track + 1), 0);
  const step = Math.min(TRACK, WIDEST / Math.max(count, 1));
  return { tracks, step, width: Math.ceil(count * step) + (count === 0 ? 0 : PAD) };
}

const placedLines = (
  lines: readonly Line[],
  { tracks, step }: Gutter,
  edge: number,
  side: 1 | -1,
): PlacedLine[] =>
  lines.map((line, i) => {
    const track = tracks[i] as number;
    return { ...line, track, x: edge + side * (PAD + track * step) };
  });

const shortened = (text: string, most: number): string =>
  text.length <= most ? text : `${text.slice(0, most - 1)}…`;
const shortPath = (path: string): string =>
  path.length <= MOST.path ? path : `…${path.slice(1 - MOST.path)}`;

/** The texts of a row. A row of several nodes has their names in all columns. */
function shownOf(row: Row): ShownRow {
  const { kind, nodes, name, operands, type } = row;
  if (kind === 'collective')
    return { row, name: shortened(name, MOST.lane), operands: '', type: '' };
  if (nodes.length > 1) return { row, name: shortened(name, MOST.merged), operands: '', type: '' };
  return {
    row,
    name: shortened(name, MOST.name),
    operands: shortened(operands, MOST.operands),
    type: shortened(type, MOST.type),
  };
}

function placedOf(
  frames: readonly Frame[],
  shown: readonly ShownRow[],
): { readonly placed: Pick<Layout, 'rows' | 'frames'>; readonly height: number } {
  const rows: PlacedRow[] = [];
  let top = HEAD;
  const placedFrames = frames.map((frame): PlacedFrame => {
    const start = top;
    for (const _ of frame.rows) {
      rows.push({ ...(shown[rows.length] as PlacedRow), y: top + ROW / 2 });
      top += ROW;
    }
    top += FRAME_GAP;
    const { path } = frame;
    return { path, label: shortPath(path), top: start, bottom: top - FRAME_GAP };
  });
  return { placed: { rows, frames: placedFrames }, height: top + MARGIN };
}

function columnsOf(
  frames: readonly Frame[],
  gutters: { readonly [side in keyof Lines]: Gutter },
): Columns {
  const shown = frames.flatMap(({ rows }) => rows.map(shownOf));
  const widest = (texts: readonly string[]): number =>
    Math.ceil(texts.reduce((most, text) => Math.max(most, text.length), 0) * LETTER);
  const room = (text: (row: ShownRow) => string, of = isSingle): number =>
    widest(shown.filter(of).map(text));
  const path = MARGIN + PAD;
  const paths = widest(frames.map((each) => shortPath(each.path)));
  const name = path + paths + gutters.values.width + 3 * PAD;
  const operands = name + room((row) => row.name) + 3 * PAD;
  const type = operands + room((row) => row.operands) + 2 * PAD;
  const single = type + room((row) => row.type) + PAD;
  const end = Math.max(single, name + room((row) => row.name, isMerged) + 2 * PAD);
  const frameEnd = end + PAD;
  const lane = frameEnd + gutters.sent.width + (gutters.sent.width === 0 ? 0 : PAD);
  const names = room((row) => row.name, isCollective);
  const laneEnd = names === 0 ? frameEnd : lane + names + 2 * PAD;
  const right = laneEnd + gutters.inFlight.width + MARGIN;
  const width = Math.max(right, LEAST);
  return { path, name, operands, type, end, frameEnd, lane, laneEnd, width };
}

const isCollective = ({ row }: ShownRow): boolean => row.kind === 'collective';
const isMerged = ({ row }: ShownRow): boolean => row.kind !== 'collective' && row.nodes.length > 1;
const isSingle = ({ row }: ShownRow): boolean => row.kind !== 'collective' && row.nodes.length <= 1;
