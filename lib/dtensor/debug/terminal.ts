/** Tables and styles for the terminal. */
import { styleText } from 'node:util';

/** A table with a bold line of titles; `numeric` columns are aligned to the right. */
export function formatTable(
  titles: readonly string[],
  rows: readonly (readonly string[])[],
  numeric: readonly number[] = [],
): string {
  const widths = titles.map((title, i) =>
    Math.max(title.length, ...rows.map((row) => (row[i] as string).length)),
  );
  const line = (cells: readonly string[]): string =>
    cells
      .map((cell, i) =>
        numeric.includes(i) ? cell.padStart(widths[i] as number) : cell.padEnd(widths[i] as number),
      )
      .join('  ')
      .trimEnd();
  return [inTerminal('bold', line(titles)), ...rows.map(line)].join('\n');
}

/** Styled text; plain text if the output is no terminal or NO_COLOR is set. */
export function inTerminal(style: Parameters<typeof styleText>[0], text: string): string {
  return process.stdout.isTTY === true && process.env['NO_COLOR'] === undefined
    ? styleText(style, text)
    : text;
}
