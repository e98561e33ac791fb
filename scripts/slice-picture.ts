/** What the pictures of recorded traces share: slices on an axis of time, as SVG. */
import { escaped } from '../lib/core/escaped.js';

/** Of the page, and of the space left and right of an axis. */
export const [WIDTH, LEFT, RIGHT] = [960, 96, 12] as const;
/** The mean width of a letter of labels. */
export const LETTER = 5.4;

/** From microseconds to a place on the page. */
export type Axis = (us: number) => number;

export const milliseconds = (us: number): string => `${(us / 1e3).toFixed(1)} ms`;

/** An axis over the width of the page. */
export function axisOf(from: number, to: number): Axis {
  return (us) => LEFT + ((us - from) / (to - from)) * (WIDTH - LEFT - RIGHT);
}

/** The times of the ends of an axis, as text. */
export function drawEnds(from: number, to: number, y: number): string {
  return (
    `<text x="${LEFT}" y="${y}">${milliseconds(from)}</text>\n` +
    `<text x="${WIDTH - RIGHT}" y="${y}" text-anchor="end">${milliseconds(to)}</text>`
  );
}

/** A slice of time in a row, with a label where it has room. */
export interface Box {
  readonly start: number;
  readonly end: number;
  /** The top of the row and its height. */
  readonly y: number;
  readonly height: number;
  readonly label: string;
  /** Shown for the slice under the pointer. */
  readonly title: string;
  /** More attributes: the fill. */
  readonly style: string;
}

export function drawBox(x: Axis, { start, end, y, height, label, title, style }: Box): string {
  const from = x(start);
  const width = Math.max(0.3, x(end) - from);
  const text =
    label === '' || label.length * LETTER > width
      ? ''
      : `<text x="${(from + 2).toFixed(1)}" y="${y + Math.round((height * 2) / 3)}">${escaped(label)}</text>`;
  return (
    `<rect x="${from.toFixed(1)}" y="${y}" width="${width.toFixed(1)}" height="${height}" ` +
    `${style}><title>${escaped(title)}</title></rect>${text}`
  );
}

/** A whole file: a white page with its head. */
export function drawPage(head: string, height: number, body: readonly string[]): string {
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${height}" font-family="sans-serif" font-size="10">
<title>${escaped(head)}</title>
<rect width="100%" height="100%" fill="white"/>
${drawHead(head, 20)}
${body.join('\n')}
</svg>
`;
}

/** A line in bold over a part of the page. */
export function drawHead(head: string, y: number): string {
  return `<text x="8" y="${y}" font-weight="bold" font-size="11">${escaped(head)}</text>`;
}
