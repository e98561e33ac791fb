/** Parts of a tensor as a table in the terminal. */
import { inTerminal } from './table.js';
import type { ShownTensor, Span } from './visualize-sharding.js';

const colours = ['cyan', 'yellow', 'magenta', 'green', 'blue', 'red'] as const;

/** `0:4`, the indices of a span as Python slices them. */
const indices = ({ from, size }: Span): string => `${from}:${from + size}`;

function spans(list: readonly Span[]): Span[] {
  return [...new Map(list.map((span) => [span.from, span])).values()].sort((a, b) => a.from - b.from);
}

/** A line of titles for columns, then a line for each span of rows. */
export function drawGrid({ title, dims, parts }: ShownTensor): string {
  const [rows, columns] = [spans(parts.map((part) => part.row)), spans(parts.map((part) => part.column))];
  const [rowDim, columnDim] = dims;
  const heads = columns.map((span) => (columnDim === null ? '' : `dim ${columnDim} [${indices(span)}]`));
  const sides = rows.map((span) => (rowDim === null ? '' : `dim ${rowDim} [${indices(span)}]`));
  const cells = rows.map((row) => columns.map((column) => parts.find((part) => part.row.from === row.from && part.column.from === column.from)?.ranks.join(' | ') ?? ''));
  const sideWidth = Math.max(0, ...sides.map((side) => side.length));
  const widths = heads.map((head, i) => Math.max(head.length, ...cells.map((line) => (line[i] as string).length)));
  const rule = (left: string, middle: string, right: string): string => `${' '.repeat(sideWidth)} ${left}${widths.map((width) => '─'.repeat(width + 2)).join(middle)}${right}`;
  const lines = cells.map((line, row) => {
    const drawn = line.map((cell, i) => inTerminal(colours[(row * columns.length + i) % colours.length] as (typeof colours)[number], ` ${cell.padEnd(widths[i] as number)} `));
    return `${(sides[row] as string).padEnd(sideWidth)} │${drawn.join('│')}│`;
  });
  const head = `${' '.repeat(sideWidth)}  ${heads.map((text, i) => ` ${text.padEnd(widths[i] as number)} `).join(' ')}`.trimEnd();
  return [inTerminal('bold', title), ...(head === '' ? [] : [head]), rule('┌', '┬', '┐'), lines.join(`\n${rule('├', '┼', '┤')}\n`), rule('└', '┴', '┘')].join('\n');
}
