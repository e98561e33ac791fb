/** Parts of a tensor as a table in the terminal. */
import { inTerminal } from './table.js';
import type { ShownTensor, Span } from './visualize-sharding.js';

const colours = ['cyan', 'yellow', 'magenta', 'green', 'blue', 'red'] as const;

/** `dim 0 [0:4]`, the indices of a span as Python slices them; of a gap, how many are left out. */
export function titleOf(dim: number | null, { from, size, leftOut }: Span): string {
  if (leftOut > 0) return `… ${leftOut} more`;
  return dim === null ? '' : `dim ${dim} [${from}:${from + size}]`;
}

/** A line of titles for columns, then a line for each span of rows. */
export function drawGrid({ title, dims, rows, columns, cells, legend }: ShownTensor): string {
  const heads = columns.map((span) => titleOf(dims[1], span));
  const sides = rows.map((span) => titleOf(dims[0], span));
  const sideWidth = Math.max(0, ...sides.map((side) => side.length));
  const widths = heads.map((head, i) =>
    Math.max(head.length, ...cells.map((line) => (line[i] as string).length)),
  );
  const rule = (left: string, middle: string, right: string): string =>
    `${' '.repeat(sideWidth)} ${left}${widths.map((width) => '─'.repeat(width + 2)).join(middle)}${right}`;
  const lines = cells.map((line, row) => {
    const drawn = line.map((cell, i) =>
      inTerminal(
        colours[(row * columns.length + i) % colours.length] as (typeof colours)[number],
        ` ${cell.padEnd(widths[i] as number)} `,
      ),
    );
    return `${(sides[row] as string).padEnd(sideWidth)} │${drawn.join('│')}│`;
  });
  const head =
    `${' '.repeat(sideWidth)}  ${heads.map((text, i) => ` ${text.padEnd(widths[i] as number)} `).join(' ')}`.trimEnd();
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
