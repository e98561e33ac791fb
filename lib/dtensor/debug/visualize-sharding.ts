/** Draws which rank holds which shard of a tensor, as text or as SVG. */
import { ShardingError } from '../../core/errors.js';
import { escaped } from '../../core/escaped.js';
import { checkOneOf, withDefaults } from '../../core/options.js';
import type { Tensor } from '../../core/tensor.js';
import { localShardOf } from '../spec/local-shard.js';
import { type ShardingGrid, type Span, shardingGrid } from './sharding-grid.js';
import { inTerminal } from './terminal.js';

/** Options of {@link visualizeSharding}. */
export interface VisualizeOptions {
  /**
   * `'text'` (the default) is a table, which the mesh's first rank also prints; `'svg'` is an
   * image.
   */
  format?: 'text' | 'svg';
}

/**
 * Draws which rank holds which shard of a distributed tensor, by mesh coordinates, and returns the
 * text: a table, which the mesh's first rank also prints, or SVG. A tensor of more than two dims is
 * drawn along its sharded dims. Replicas are written `a | b`, partial values `a + b`; ranks without
 * data are listed below, and the middle of many shards is left out. Nothing is communicated.
 *
 * @throws ShardingError for a plain tensor, or one that is sharded along more than two dims;
 * ArgumentError for another format
 * @see PyTorch `torch.distributed.tensor.debug.visualize_sharding`
 * @example
 * visualizeSharding(distributeTensor(ones([4, 2]), mesh, [Shard(0)]));
 */
export function visualizeSharding(t: Tensor, options: VisualizeOptions = {}): string {
  const op = 'visualizeSharding';
  const { format } = withDefaults<Required<VisualizeOptions>>(op, { format: 'text' }, options);
  checkOneOf(op, 'format', format, ['text', 'svg']);
  const shard = localShardOf(t);
  if (shard === null)
    throw new ShardingError(
      `${op}: expected a distributed tensor, got a plain one. Only a distributed tensor has ` +
        'placements to show.',
      { op },
    );
  const grid = shardingGrid(op, shard.spec);
  if (format === 'svg') return drawSvg(grid);
  const text = drawText(grid);
  if (shard.spec.mesh.getCoordinate()?.every((at) => at === 0)) console.log(text);
  return text;
}

const colours = ['cyan', 'yellow', 'magenta', 'green', 'blue', 'red'] as const;

/** `dim 0 [0:4]`, as a Python slice; for a gap the number of shards left out. */
function titleOf(dim: number | null, { from, size, leftOut }: Span): string {
  if (leftOut > 0) return `… ${leftOut} more`;
  return dim === null ? '' : `dim ${dim} [${from}:${from + size}]`;
}

/** A line with the titles of columns, then a line for each span of rows. */
function drawText({ title, dims, rows, columns, cells, legend }: ShardingGrid): string {
  const heads = columns.map((span) => titleOf(dims[1], span));
  const sides = rows.map((span) => titleOf(dims[0], span));
  const sideWidth = Math.max(0, ...sides.map((side) => side.length));
  const widths = heads.map((head, i) =>
    Math.max(head.length, ...cells.map((line) => (line[i] as string).length)),
  );
  const rule = (left: string, middle: string, right: string): string =>
    `${' '.repeat(sideWidth)} ` +
    `${left}${widths.map((width) => '─'.repeat(width + 2)).join(middle)}${right}`;
  const lines = cells.map((line, row) => {
    const drawn = line.map((cell, i) =>
      inTerminal(
        colours[(row * columns.length + i) % colours.length] as (typeof colours)[number],
        ` ${cell.padEnd(widths[i] as number)} `,
      ),
    );
    return `${(sides[row] as string).padEnd(sideWidth)} │${drawn.join('│')}│`;
  });
  const titles = heads.map((text, i) => ` ${text.padEnd(widths[i] as number)} `).join(' ');
  const head = `${' '.repeat(sideWidth)}  ${titles}`.trimEnd();
  if (rows.length === 0 || columns.length === 0)
    return [inTerminal('bold', title), ...legend].join('\n');
  return [
    inTerminal('bold', title),
    ...(head === '' ? [] : [head]),
    rule('┌', '┬', '┐'),
    lines.join(`\n${rule('├', '┼', '┤')}\n`),
    rule('└', '┴', '┘'),
    ...legend,
  ].join('\n');
}

const WIDTH = 480;
const LEAST_HEIGHT = 60;
const MOST_HEIGHT = 480;
const MARGIN = { left: 72, top: 52, right: 12, bottom: 12 };
const LINE = 14;
const fills = ['#cfe8fc', '#fde6b3', '#e6d3f5', '#d3efd3', '#f9d2d2', '#dcdcdc'];

/** The begin and length of each span, in pixels. */
type Scale = readonly { readonly at: number; readonly length: number }[];

/** Lengths in proportion to sizes; equal lengths if there is a gap, which would take all space. */
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

/** A rectangle with the ranks of each shard, and the indices along both dims. */
function drawSvg({ title, dims, rows, columns, cells, legend }: ShardingGrid): string {
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
      `<text x="${middle(x[i] as Scale[number])}" y="${MARGIN.top - 6}" ` +
      `text-anchor="middle">${indices(dims[1], span)}</text>`,
  );
  const side = rows.map(
    (span, i) =>
      `<text x="${MARGIN.left - 6}" y="${middle(y[i] as Scale[number])}" ` +
      `text-anchor="end">${indices(dims[0], span)}</text>`,
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

/** A rectangle with one line for each rank. */
function box(x: Scale[number], y: Scale[number], text: string, fill: string): string {
  const names = text.split(/(?<= [|+]) /);
  const lines = names.map(
    (name, line) =>
      `<tspan x="${middle(x)}" ` +
      `dy="${line === 0 ? (-(names.length - 1) * LINE) / 2 : LINE}">${escaped(name)}</tspan>`,
  );
  return (
    `<rect x="${x.at.toFixed(1)}" y="${y.at.toFixed(1)}" width="${x.length.toFixed(1)}" ` +
    `height="${y.length.toFixed(1)}" fill="${fill}" stroke="#444"/>\n` +
    `<text x="${middle(x)}" y="${middle(y)}" text-anchor="middle" dominant-baseline="middle">` +
    `${lines.join('')}</text>`
  );
}
