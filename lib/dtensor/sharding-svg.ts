/** Parts of a tensor as a picture. */
import type { ShownTensor, Span } from './visualize-sharding.js';

const WIDTH = 480;
const LEAST_HEIGHT = 60;
const MOST_HEIGHT = 480;
const MARGIN = { left: 72, top: 52, right: 12, bottom: 12 };
const LINE = 14;
const fills = ['#cfe8fc', '#fde6b3', '#e6d3f5', '#d3efd3', '#f9d2d2', '#dcdcdc'];

const escaped = (text: string): string => text.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);

interface Scale {
  readonly start: number;
  readonly unit: number;
}
const at = ({ start, unit }: Scale, index: number): string => (start + index * unit).toFixed(1);
const middle = (scale: Scale, { from, size }: Span): string => at(scale, from + size / 2);

/** A rectangle for each part, with those who hold it, and the indices along both dims. */
export function drawSvg({ title, dims, sizes, parts }: ShownTensor): string {
  const [rows, columns] = [Math.max(1, sizes[0]), Math.max(1, sizes[1])];
  const wide = WIDTH - MARGIN.left - MARGIN.right;
  const high = Math.min(MOST_HEIGHT, Math.max(LEAST_HEIGHT, (wide * rows) / columns));
  const [x, y]: [Scale, Scale] = [
    { start: MARGIN.left, unit: wide / columns },
    { start: MARGIN.top, unit: high / rows },
  ];
  const boxes = parts.map(({ row, column, ranks }, i) => {
    const lines = ranks.map((rank, line) => `<tspan x="${middle(x, column)}" dy="${line === 0 ? (-(ranks.length - 1) * LINE) / 2 : LINE}">${escaped(rank)}</tspan>`);
    return `<rect x="${at(x, column.from)}" y="${at(y, row.from)}" width="${(column.size * x.unit).toFixed(1)}" height="${(row.size * y.unit).toFixed(1)}" fill="${fills[i % fills.length]}" stroke="#444"/>
<text x="${middle(x, column)}" y="${middle(y, row)}" text-anchor="middle" dominant-baseline="middle">${lines.join('')}</text>`;
  });
  const spans = (of: (part: (typeof parts)[number]) => Span): Span[] => [...new Map(parts.map((part) => [of(part).from, of(part)])).values()];
  const label = (dim: number | null, { from, size }: Span): string => (dim === null ? '' : `${from}:${from + size}`);
  const top = spans((part) => part.column).map((span) => `<text x="${middle(x, span)}" y="${MARGIN.top - 6}" text-anchor="middle">${label(dims[1], span)}</text>`);
  const side = spans((part) => part.row).map((span) => `<text x="${MARGIN.left - 6}" y="${middle(y, span)}" text-anchor="end">${label(dims[0], span)}</text>`);
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${(high + MARGIN.top + MARGIN.bottom).toFixed(0)}" font-family="sans-serif" font-size="11">
<rect width="100%" height="100%" fill="white"/>
<text x="8" y="18" font-weight="bold">${escaped(title)}</text>
${[...boxes, ...top, ...side].join('\n')}
</svg>
`;
}
