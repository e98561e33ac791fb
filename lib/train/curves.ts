/** Curves of a loss: one line of text for a terminal, and a picture. */
import { checkNumber, listOf, optionsOf, unexpected } from '../core/options.js';
import { meansOf } from './means.js';

const LEVELS = '▁▂▃▄▅▆▇█';

/**
 * A curve as a line of text, from the lowest to the highest value; more values than columns are
 * shown by their means.
 *
 * @throws ArgumentError for columns that are no whole number from 1
 * @example
 * sparkline([4, 3, 2, 1]); // '█▆▃▁'
 */
export function sparkline(values: readonly number[], columns = 24): string {
  checkNumber('sparkline', 'columns', columns, { from: 1, whole: true });
  const means = meansOf(values, columns).map((mean) => (Number.isFinite(mean) ? mean : 0));
  const lowest = Math.min(...means);
  const range = Math.max(...means) - lowest || 1;
  const top = LEVELS.length - 1;
  return means.map((mean) => LEVELS[Math.round(((mean - lowest) / range) * top)]).join('');
}

/** Options of {@link lossCurve}. */
export interface LossCurveOptions {
  /** What stands above. `'training loss'` by default. */
  title?: string;
  /** A dashed line to compare with. */
  baseline?: { readonly name: string; readonly loss: number };
}

const [WIDTH, HEIGHT] = [640, 360];
const MARGIN = { left: 48, right: 16, top: 28, bottom: 36 };
/** About so many lines and numbers along an axis. */
const TICKS = 6;

/**
 * The losses of steps as a picture in SVG.
 *
 * @throws ArgumentError for what is no list, and for unknown options
 * @example
 * lossCurve([5.5, 4.2, 3.9], { baseline: { name: 'bigram', loss: 4 } }).slice(0, 4); // '<svg'
 */
export function lossCurve(losses: readonly number[], options: LossCurveOptions = {}): string {
  const op = 'lossCurve';
  const { title = 'training loss', baseline = null } = optionsOf(op, options, 'title baseline');
  if (typeof title !== 'string') throw unexpected(op, 'title', 'a text', title);
  const steps = listOf(op, 'losses', 'a list of numbers', losses);
  const points = meansOf(steps, WIDTH);
  const shown = [...points, ...(baseline === null ? [] : [baseline.loss])].filter(Number.isFinite);
  const [low, high] = shown.length === 0 ? [0, 1] : [Math.min(...shown), Math.max(...shown)];
  const step = roundStep((high - low + 0.2) / TICKS);
  const [bottom, top] = [Math.floor((low - 0.1) / step), Math.ceil((high + 0.1) / step)];
  const y = axis(bottom * step, top * step, HEIGHT - MARGIN.bottom, MARGIN.top, step);
  const last = Math.max(1, steps.length - 1);
  const x = axis(0, last, MARGIN.left, WIDTH - MARGIN.right, roundStep(Math.max(1, last / TICKS)));
  const each = points.length > 1 ? (steps.length - 1) / (points.length - 1) : 0;
  const path = points
    .flatMap((loss, i) =>
      Number.isFinite(loss) ? [`${rounded(x.at(i * each))},${rounded(y.at(loss))}`] : [],
    )
    .join('L');
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${HEIGHT}" font-family="sans-serif" font-size="12">
<rect width="100%" height="100%" fill="white"/>
<text x="${MARGIN.left}" y="18">${escaped(title)}</text>
${[...y.ticks.map((tick) => horizontal(tick, y)), ...x.ticks.map((tick) => vertical(tick, x))].join('\n')}
${baseline === null ? '' : baselineOf(baseline, y)}<path d="${path === '' ? '' : `M${path}`}" fill="none" stroke="#2563a8" stroke-width="1.5"/>
</svg>
`;
}

interface Axis {
  /** Where a value lies, in pixels. */
  at(value: number): number;
  readonly ticks: readonly number[];
}

/** An axis between two values, with numbers that are a step apart. */
function axis(low: number, high: number, from: number, to: number, step: number): Axis {
  const first = Math.ceil(low / step);
  const count = Math.floor(high / step) - first + 1;
  return {
    at: (value) => from + ((value - low) / (high - low)) * (to - from),
    // Sums of binary fractions have many digits.
    ticks: Array.from({ length: count }, (_, i) => Number(((first + i) * step).toPrecision(12))),
  };
}

/** 1, 2 or 5 times a power of ten. */
function roundStep(least: number): number {
  const power = 10 ** Math.floor(Math.log10(least));
  return power * ([1, 2, 5, 10].find((factor) => factor * power >= least) ?? 10);
}

const rounded = (pixels: number): string => pixels.toFixed(1);

function horizontal(tick: number, { at }: Axis): string {
  const y = at(tick);
  return `<line x1="${MARGIN.left}" x2="${WIDTH - MARGIN.right}" y1="${rounded(y)}" y2="${rounded(y)}" stroke="#ddd"/><text x="${MARGIN.left - 8}" y="${rounded(y + 4)}" text-anchor="end">${tick}</text>`;
}

const vertical = (tick: number, { at }: Axis): string =>
  `<text x="${rounded(at(tick))}" y="${HEIGHT - MARGIN.bottom + 18}" text-anchor="middle">${tick}</text>`;

function baselineOf({ name, loss }: { name: string; loss: number }, { at }: Axis): string {
  const y = at(loss);
  return `<line x1="${MARGIN.left}" x2="${WIDTH - MARGIN.right}" y1="${rounded(y)}" y2="${rounded(y)}" stroke="#c33" stroke-dasharray="6 4"/>
<text x="${WIDTH - MARGIN.right}" y="${rounded(y - 6)}" text-anchor="end" fill="#c33">${escaped(name)} ${loss.toFixed(3)}</text>
`;
}

const escaped = (text: string): string =>
  text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
