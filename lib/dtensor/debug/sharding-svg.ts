/** Parts of a tensor as a picture. */
import { titleOf } from './sharding-grid.js';
import type { ShownTensor, Span } from './visualize-sharding.js';

const WIDTH = 480;
const LEAST_HEIGHT = 60;
const MOST_HEIGHT = 480;
const MARGIN = { left: 72, top: 52, right: 12, bottom: 12 };
const LINE = 14;
const fills = ['#cfe8fc', '#fde6b3', '#e6d3f5', '#d3efd3', '#f9d2d2', '#dcdcdc'];

const escaped = (text: string): string => text.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);

/** Where spans are drawn: begin and length of each, in pixels. */
type Scale = readonly { readonly at: number; readonly length: number }[];

/** As long as they are; all alike where some are left out, which would take all the room. */
function scaleOf(spans: readonly Span[], start: number, length: number): Scale {
  const weights = spans.map(({ size }) => (spans.some(({ leftOut }) => leftOut > 0) ? 1 : size));
  const unit =
    length /
    Math.max(
      1,
      weights.reduce((a, b) => a + b, 0),
    );
  let at = start;
  return weights.map((weight) => {
    const drawn = { at, length: weight * unit };
    at += drawn.length;
    return drawn;
  });
}

const sizeOf = (spans: readonly Span[]): number =>
  Math.max(1, ...spans.map(({ from, size }) => from + size));
const middle = ({ at, length }: Scale[number]): string => (at + length / 2).toFixed(1);

/** A rectangle for each part, with those who hold it, and the indices along both dims. */
export function drawSvg({ title, dims, rows, columns, cells, legend }: ShownTensor): string {
  const wide = WIDTH - MARGIN.left - MARGIN.right;
  const high = Math.min(
    MOST_HEIGHT,
    Math.max(LEAST_HEIGHT, (wide * sizeOf(rows)) / sizeOf(columns)),
  );
  const [x, y] = [scaleOf(columns, MARGIN.left, wide), scaleOf(rows, MARGIN.top, high)];
  const boxes = cells.flatMap((line, row) =>
    line.map((text, column) =>
      box(
        x[column] as Scale[number],
        y[row] as Scale[number],
        text,
        fills[(row * columns.length + column) % fills.length] as string,
      ),
    ),
  );
  const top = columns.map(
    (span, i) =>
      `<text x="${middle(x[i] as Scale[number])}" y="${MARGIN.top - 6}" text-anchor="middle">${indices(dims[1], span)}</text>`,
  );
  const side = rows.map(
    (span, i) =>
      `<text x="${MARGIN.left - 6}" y="${middle(y[i] as Scale[number])}" text-anchor="end">${indices(dims[0], span)}</text>`,
  );
  const below = MARGIN.top + high + LINE;
  const explanation = legend.map(
    (line, i) => `<text x="8" y="${(below + i * LINE).toFixed(1)}">${escaped(line)}</text>`,
  );
  const height = high + MARGIN.top + MARGIN.bottom + legend.length * LINE;
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${height.toFixed(0)}" font-family="sans-serif" font-size="11">
<rect width="100%" height="100%" fill="white"/>
<text x="8" y="18" font-weight="bold">${escaped(title)}</text>
${[...boxes, ...top, ...side, ...explanation].join('\n')}
</svg>
`;
}

const indices = (dim: number | null, span: Span): string =>
  escaped(titleOf(dim, span).replace(/^dim \d+ \[(.*)\]$/, '$1'));

/** Several holders stand below one another. */
function box(x: Scale[number], y: Scale[number], text: string, fill: string): string {
  const names = text.split(/(?<= [|+]) /);
  const lines = names.map(
    (name, line) =>
      `<tspan x="${middle(x)}" dy="${line === 0 ? (-(names.length - 1) * LINE) / 2 : LINE}">${escaped(name)}</tspan>`,
  );
  return `<rect x="${x.at.toFixed(1)}" y="${y.at.toFixed(1)}" width="${x.length.toFixed(1)}" height="${y.length.toFixed(1)}" fill="${fill}" stroke="#444"/>
<text x="${middle(x)}" y="${middle(y)}" text-anchor="middle" dominant-baseline="middle">${lines.join('')}</text>`;
}
