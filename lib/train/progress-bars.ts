/** Progress bars: one for the run with a curve of the loss, and a row for each of several ranks. */
import { styleText } from 'node:util';
import cliProgress from 'cli-progress';
import { sparkline } from './curves.js';
import type { StepMetrics } from './metrics.js';
import type { Progress, ProgressRange } from './progress.js';

type Color = 'bold' | 'dim' | 'green' | 'cyan';

/** Colours text where the terminal has colours. */
const colored = (color: Color, text: string): string =>
  process.stdout.hasColors() ? styleText(color, text) : text;

const mebibytes = (bytes: number): string => (bytes / 2 ** 20).toFixed(0);

const sumOf = (events: readonly StepMetrics[], of: (event: StepMetrics) => number): number =>
  events.reduce((sum, each) => sum + of(each), 0);

/** Steps whose mean is shown: single ones differ. */
const RECENT_STEPS = 50;

export class ProgressBars implements Progress {
  private readonly bars = new cliProgress.MultiBar({
    format: `${colored('green', '{bar}')} {value}/{total} ${colored('bold', '{loss}')} ${colored('cyan', '{curve}')} {rate} tokens/s ${colored('dim', '{state}')}`,
    barsize: 20,
    hideCursor: true,
    linewrap: false,
  });
  private readonly ranks: number;
  private readonly rows = new Map<number, cliProgress.SingleBar>();
  private readonly losses: number[] = [];
  private readonly recent: StepMetrics[] = [];
  private total: cliProgress.SingleBar | null = null;
  private steps = 0;
  private validated = '';

  constructor(ranks: number) {
    this.ranks = ranks;
  }

  begin(description: string, { first = 0, steps }: ProgressRange): void {
    console.log(description);
    this.steps = steps;
    const nothing = { loss: '-', curve: '', rate: '-', state: '' };
    this.total = this.bars.create(steps, first, nothing);
    const format = `  rank {rank}  ${colored('green', '{bar}')} {value}/{total} ${colored('dim', '{memory} MiB')}`;
    for (let rank = 0; this.ranks > 1 && rank < this.ranks; rank++)
      this.rows.set(rank, this.bars.create(steps, first, { rank, memory: '-' }, { format }));
  }

  write(metrics: StepMetrics): void {
    const { step, rank, loss, allocatedBytes } = metrics;
    const memory = mebibytes(allocatedBytes);
    this.rows.get(rank)?.update(step, { memory });
    if (rank > 0) return;
    if (loss !== undefined) this.losses.push(loss);
    this.recent.push(metrics);
    if (this.recent.length > RECENT_STEPS) this.recent.shift();
    const seconds = sumOf(this.recent, (each) => each.secondsPerStep);
    const tokens = sumOf(this.recent, (each) => each.secondsPerStep * (each.tokensPerSecond ?? 0));
    const left = ((this.steps - step) * seconds) / this.recent.length;
    this.total?.update(step, {
      loss: loss === undefined ? '' : `loss ${loss.toFixed(3)}`,
      curve: sparkline(this.losses),
      rate: (tokens / seconds).toFixed(0),
      state: `${memory} MiB, ${left.toFixed(0)} s left ${this.validated}`,
    });
  }

  validation(loss: number | null): void {
    if (loss !== null) this.validated = `validation ${loss.toFixed(3)}`;
    this.total?.update({ state: loss === null ? 'validates' : this.validated });
  }

  message(text: string): void {
    this.close();
    console.error(text);
  }

  /** The terminal shows its cursor and wraps lines again. */
  close(): void {
    if (this.total !== null) this.bars.stop();
    this.total = null;
    this.rows.clear();
  }
}
