/** Draws the loss curve as SVG. */
import { scaleLinear } from 'd3-scale';
import { line } from 'd3-shape';

const WIDTH = 640;
const HEIGHT = 360;
const MARGIN = { left: 48, right: 16, top: 28, bottom: 36 };

/** Draws training losses by step, and the bigram model's loss as a dashed line. */
export function lossCurveSvg(losses: readonly number[], bigram: number): string {
  const x = scaleLinear([0, Math.max(1, losses.length - 1)], [MARGIN.left, WIDTH - MARGIN.right]);
  const lowest = losses.reduce((a, b) => Math.min(a, b), bigram);
  const highest = losses.reduce((a, b) => Math.max(a, b), bigram);
  const y = scaleLinear([lowest - 0.1, highest + 0.1], [HEIGHT - MARGIN.bottom, MARGIN.top]).nice();
  const path = line<number>((_, step) => x(step), y)([...losses]);
  const yTicks = y
    .ticks(6)
    .map(
      (v) =>
        `<line x1="${MARGIN.left}" x2="${WIDTH - MARGIN.right}" y1="${y(v)}" y2="${y(v)}" stroke="#ddd"/><text x="${MARGIN.left - 8}" y="${y(v) + 4}" text-anchor="end">${v}</text>`,
    );
  const xTicks = x
    .ticks(6)
    .map(
      (v) =>
        `<text x="${x(v)}" y="${HEIGHT - MARGIN.bottom + 18}" text-anchor="middle">${v}</text>`,
    );
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${HEIGHT}" font-family="sans-serif" font-size="12">
<rect width="100%" height="100%" fill="white"/>
<text x="${MARGIN.left}" y="18">training loss, nats a byte</text>
${[...yTicks, ...xTicks].join('\n')}
<line x1="${MARGIN.left}" x2="${WIDTH - MARGIN.right}" y1="${y(bigram)}" y2="${y(bigram)}" stroke="#c33" stroke-dasharray="6 4"/>
<text x="${WIDTH - MARGIN.right}" y="${y(bigram) - 6}" text-anchor="end" fill="#c33">byte bigram ${bigram.toFixed(3)}</text>
<path d="${path ?? ''}" fill="none" stroke="#2563a8" stroke-width="1.5"/>
</svg>
`;
}
