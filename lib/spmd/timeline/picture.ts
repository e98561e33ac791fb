/** A timeline as a picture. */
import { escaped } from '../../core/escaped.js';
import type { Timeline, TimelineEntry } from './timeline.js';
import { formatSeconds } from './units.js';

const WIDTH = 960;
const LEFT = 104;
const TOP = 34;
const LANE = 34;
const GAP = 8;
const RIGHT = 12;
const fills = { compute: '#cfe8fc', communication: '#fde6b3', wait: '#f9d2d2' } as const;
/** Names are drawn in boxes of at least this many pixels a letter. */
const LETTER = 6.5;

/** Two rows of boxes, one a stream; red boxes are waits. */
export function drawTimeline({ title, entries, total, exposed }: Timeline): string {
  const scale = (WIDTH - LEFT - RIGHT) / Math.max(total, Number.MIN_VALUE);
  const yOf = { compute: TOP, communication: TOP + LANE + GAP } as const;
  const box = (from: number, to: number, y: number, fill: string, text: string): string => {
    const [x, width] = [LEFT + from * scale, (to - from) * scale];
    const label =
      text.length * LETTER > width
        ? ''
        : `<text x="${(x + width / 2).toFixed(1)}" y="${y + LANE / 2}" text-anchor="middle" ` +
          `dominant-baseline="middle">${escaped(text)}</text>`;
    return (
      `<rect x="${x.toFixed(1)}" y="${y}" width="${width.toFixed(1)}" height="${LANE}" ` +
      `fill="${fill}" stroke="#444" stroke-width="0.5"><title>${escaped(text)}</title></rect>` +
      label
    );
  };
  const boxesOf = ({ name, lane, start, end, waited }: TimelineEntry): string[] => [
    ...(waited > 0 ? [box(start - waited, start, yOf[lane], fills.wait, 'waits')] : []),
    ...(end > start ? [box(start, end, yOf[lane], fills[lane], name)] : []),
  ];
  const bottom = yOf.communication + LANE;
  const head =
    `${title === '' ? 'graph' : title}: ${formatSeconds(total)}, of which ` +
    `${formatSeconds(exposed)} waiting for communication`;
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${bottom + 28}" font-family="sans-serif" font-size="11">
<title>${escaped(head)}</title>
<rect width="100%" height="100%" fill="white"/>
<text x="8" y="20" font-weight="bold">${escaped(head)}</text>
<text x="8" y="${yOf.compute + LANE / 2}" dominant-baseline="middle">compute</text>
<text x="8" y="${yOf.communication + LANE / 2}" dominant-baseline="middle">communication</text>
${entries.flatMap(boxesOf).join('\n')}
<text x="${LEFT}" y="${bottom + 18}">0</text>
<text x="${WIDTH - RIGHT}" y="${bottom + 18}" text-anchor="end">${formatSeconds(total)}</text>
</svg>
`;
}
