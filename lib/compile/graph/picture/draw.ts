/**
 * A graph as a picture: its nodes from top to bottom in the order in which they run, in frames of
 * one module each, with the collectives in a lane of their own beside what runs meanwhile.
 *
 * No library lays the nodes out: those that draw any graph spread a train step of 700 nodes over
 * ten thousand pixels in each direction, in 8 to 65 seconds, and show no order of nodes that do not
 * depend on each other, which is what passes change.
 */
import { escaped } from '../../../core/escaped.js';
import type { Graph } from '../graph.js';
import type { Node } from '../node.js';
import { printNode } from '../print.js';
import {
  type Layout,
  LETTER,
  layoutOf,
  MARGIN,
  type PlacedFrame,
  type PlacedLine,
  type PlacedRow,
  ROW,
} from './layout.js';
import type { RowKind } from './rows.js';

/** The most nodes of one row that are named. */
const MOST_NAMED = 24;
const HUES = 6;
/** From the middle of a line of text to its foot. */
const DROP = 4;
const LEGEND: Readonly<Record<RowKind, string>> = {
  input: 'input',
  compute: 'op',
  view: 'view',
  write: 'writes memory',
  wait: 'wait',
  collective: 'collective',
};

/** Colours on a light and on a dark page. */
const STYLE = `
text{font:11px ui-monospace,Menlo,Consolas,monospace;fill:#1f2933;white-space:pre}
.h{font-weight:bold;font-size:13px}.m{fill:#616e7c}.page{fill:#fff}
.frame{fill:#f5f7fa;stroke:#cbd2d9}.input{fill:#e4e7eb}.compute{fill:#cfe4f9}.view{fill:#e9f2fb}
.write{fill:#b9e8d3}.collective{fill:#fbb860}.wait{fill:#fde0ae}path{fill:none;stroke-width:1.2}
.v0{stroke:#3d7ab8}.v1{stroke:#8f6bc2}.v2{stroke:#2b8a7e}.v3{stroke:#b0607f}.v4{stroke:#7d8b2f}
.v5{stroke:#7b8794}.sent,.ready{stroke:#d9820f}.ready{stroke-dasharray:3 2}
.flight{stroke:#f08c00;stroke-width:5;stroke-opacity:.6;stroke-linecap:round}
path:hover{stroke-width:3.5}.flight:hover{stroke-width:7}@media (prefers-color-scheme:dark){
text{fill:#e4e7eb}.m{fill:#9aa5b1}.page{fill:#14181d}.frame{fill:#1d232a;stroke:#3e4c59}
.input{fill:#3e4c59}.compute{fill:#1d4a73}.view{fill:#1c3145}.write{fill:#155a42}
.collective{fill:#9c5a06}.wait{fill:#66501c}}
`;

/** The picture of a graph as SVG. @internal */
export function drawGraph(graph: Graph, title: string): string {
  const layout = layoutOf(graph);
  const { columns, height } = layout;
  const [size, all] = [`width="${columns.width}" height="${height}"`, `${columns.width} ${height}`];
  const head = `${title === '' ? 'graph' : title}: ${contentsOf(graph)}`;
  return `<svg xmlns="http://www.w3.org/2000/svg" ${size} viewBox="0 0 ${all}">
<title>${escaped(head)}</title>
<style>${STYLE}</style>
<rect class="page" width="100%" height="100%"/>
<text class="h" x="${MARGIN}" y="20">${escaped(head)}</text>
${legend()}
${layout.frames.map((frame) => drawFrame(frame, layout)).join('\n')}
${drawLines(layout).join('\n')}
${layout.rows.map((row) => drawRow(row, layout)).join('\n')}
</svg>
`;
}

function contentsOf({ nodes, callNodes, placeholders }: Graph): string {
  const count = (n: number, what: string): string => `${n} ${what}${n === 1 ? '' : 's'}`;
  const [inputs, calls] = [count(placeholders.length, 'input'), count(callNodes.length, 'call')];
  return `${count(nodes.length, 'node')}, of which ${inputs} and ${calls}`;
}

function legend(): string {
  let x = MARGIN;
  const entry = (mark: (at: number) => string, width: number, what: string): string => {
    const at = Math.round(x);
    x += width + what.length * LETTER + 14;
    return `${mark(at)}<text x="${at + width}" y="44">${what}</text>`;
  };
  const swatch = (kind: string) => (at: number) =>
    `<rect class="${kind}" x="${at}" y="34" width="13" height="13" rx="3"/>`;
  const line = (style: string) => (at: number) => `<path class="${style}" d="M${at} 41h22"/>`;
  return [
    ...Object.entries(LEGEND).map(([kind, what]) => entry(swatch(kind), 18, what)),
    entry(line('v0'), 28, 'value'),
    entry(line('flight'), 28, 'in flight'),
  ].join('\n');
}

function drawFrame({ path, label, top, bottom }: PlacedFrame, { columns }: Layout): string {
  const [width, height] = [columns.frameEnd - MARGIN, bottom - top + 4];
  const text = `<text class="m" x="${columns.path}" y="${top + ROW / 2 + DROP}">`;
  return (
    `<g><title>${escaped(path)}</title><rect class="frame" x="${MARGIN}" y="${top - 2}" ` +
    `width="${width}" height="${height}" rx="4"/>` +
    `${path === '' ? '' : `${text}${escaped(label)}</text>`}</g>`
  );
}

function drawRow({ row, y, name, operands, type }: PlacedRow, { columns }: Layout): string {
  const isSent = row.kind === 'collective';
  const [left, right] = isSent ? [columns.lane, columns.laneEnd] : [columns.name - 4, columns.end];
  const text = (x: number, what: string, style = ''): string =>
    what === '' ? '' : `<text${style} x="${x}" y="${y + DROP}">${escaped(what)}</text>`;
  return (
    `<g><title>${escaped(tooltip(row.nodes, row.operands))}</title>` +
    `<rect class="${row.kind}" x="${left}" y="${y - ROW / 2 + 1}" ` +
    `width="${right - left}" height="${ROW - 2}" rx="${isSent ? 8 : 3}"/>` +
    text(isSent ? left + 6 : columns.name, name) +
    text(columns.operands, operands, ' class="m"') +
    text(columns.type, type, ' class="m"') +
    '</g>'
  );
}

/** What a pointer on a row shows. */
function tooltip(nodes: readonly Node[], operands: string): string {
  if (nodes.length === 0) return `return ${operands}`;
  const lines = nodes.slice(0, MOST_NAMED).map(nodes.length === 1 ? detailsOf : printNode);
  const left = nodes.length - lines.length;
  return [...lines, ...(left > 0 ? [`and ${left} more`] : [])].join('\n');
}

function detailsOf(node: Node): string {
  const { path, site } = node.origin;
  const lines = [
    printNode(node),
    ...node.metas.map(({ placements }) => placements ?? ''),
    path === '' ? '' : `module ${path}`,
    site.replace(`${process.cwd()}/`, ''),
    [...node.tags].join(', '),
  ];
  return lines.filter((line) => line !== '').join('\n');
}

function drawLines({ rows, lines, columns }: Layout): string[] {
  const y = (i: number): number => (rows[i] as PlacedRow).y;
  const titled = (style: string, { from, to }: PlacedLine, d: string): string => {
    const [first, ...others] = [from, ...to].map((i) => (rows[i] as PlacedRow).name);
    const title = `<title>${escaped(`${first} → ${others.join(', ')}`)}</title>`;
    return `<path class="${style}" d="${d}">${title}</path>`;
  };
  /** From an edge to a track and along it to the last of its rows. */
  const stem = ({ from, to, x }: PlacedLine, start: number, drop: number): string =>
    `M${start} ${y(from) + drop}H${x}V${y(to.at(-1) as number)}`;
  /** From a track to each of its rows, with the head of an arrow. */
  const arrows = ({ to, x }: PlacedLine, end: number): string => {
    const side = Math.sign(end - x);
    const head = `m${-4 * side} -3l${4 * side} 3l${-4 * side} 3`;
    return to.map((i) => `M${x} ${y(i)}H${end - side}${head}`).join('');
  };
  const joined = (style: string, line: PlacedLine, start: number, end: number): string =>
    titled(style, line, stem(line, start, 3) + arrows(line, end));
  const left = columns.name - 4;
  return [
    ...lines.values.map((line) => joined(`v${line.track % HUES}`, line, left, left)),
    ...lines.sent.map((line) => joined('sent', line, columns.end, columns.lane)),
    ...lines.inFlight.map((line) => titled('flight', line, stem(line, columns.laneEnd, 0))),
    ...lines.inFlight.map((line) => titled('ready', line, arrows(line, columns.end))),
  ].map((text) => text.replace(/(\d\.\d)\d+/g, '$1'));
}
