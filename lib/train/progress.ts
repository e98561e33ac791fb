/** What a run shows: progress bars on a terminal, lines of a log elsewhere, JSON for programs. */
import { checkFlag, checkNumber, optionsOf } from '../core/options.js';
import { flatMetrics, type MetricsWriter, type StepMetrics } from './metrics.js';
import { ProgressBars } from './progress-bars.js';

/** The extent of a run. */
export interface ProgressRange {
  /** Steps done before. 0 by default. */
  first?: number;
  /** Steps in all. */
  steps: number;
}

/** Shows the progress of a run, as a writer of the metrics of its ranks. */
export interface Progress extends MetricsWriter {
  /** Before the first step: a line about the run. */
  begin(description: string, range: ProgressRange): void;
  /** A validation begins, or has ended with a loss. */
  validation(loss: number | null): void;
  /** A message about the end of the run; no progress is shown after it. */
  message(text: string): void;
}

/** Options of {@link progress}. */
export interface ProgressOptions {
  /** Ranks of this process, of which each gets a row. 1 by default. */
  ranks?: number;
  /** Whether each step of the first rank is a JSON object on a line. False by default. */
  json?: boolean;
}

/**
 * Shows a run: bars with a curve of the loss on a terminal, about twenty lines elsewhere, or JSON.
 * Pass it to `TrainMetrics` as a writer. The cursor and line wrap of a terminal are restored by
 * `close()` and by `message(text)`, also where Ctrl-C ends a run.
 *
 * @throws ArgumentError for bad options
 * @example
 * const shown = progress({ json: true });
 * shown.begin('a small model', { steps: 100 });
 * await using metrics = new TrainMetrics({ writers: [shown] });
 */
export function progress(options: ProgressOptions = {}): Progress {
  const { ranks = 1, json = false } = optionsOf('progress', options, 'ranks json');
  checkNumber('progress', 'ranks', ranks, { from: 1, whole: true });
  checkFlag('progress', 'json', json);
  if (json) return new JsonLines();
  return process.stdout.isTTY ? new ProgressBars(ranks) : new Lines();
}

/** What displays without bars have in common. */
abstract class Printed implements Progress {
  abstract begin(description: string, range: ProgressRange): void;
  abstract write(metrics: StepMetrics): void;
  abstract validation(loss: number | null): void;

  message(text: string): void {
    console.error(text);
  }

  close(): void {}
}

class JsonLines extends Printed {
  begin(): void {}

  write(metrics: StepMetrics): void {
    if (metrics.rank === 0) console.log(JSON.stringify(flatMetrics(metrics)));
  }

  validation(): void {}
}

/** Lines of a log: about twenty of them. */
class Lines extends Printed {
  private steps = 0;
  private every = 1;

  begin(description: string, { first = 0, steps }: ProgressRange): void {
    console.log(description);
    this.steps = steps;
    this.every = Math.max(1, Math.round((steps - first) / 20));
  }

  write({ step, rank, loss, tokensPerSecond }: StepMetrics): void {
    if (rank > 0 || (step % this.every !== 0 && step !== this.steps)) return;
    const parts = [
      ...(loss === undefined ? [] : [`loss ${loss.toFixed(3)}`]),
      ...(tokensPerSecond === undefined ? [] : [`${tokensPerSecond.toFixed(0)} tokens/s`]),
    ];
    console.log(`step ${step}/${this.steps}: ${parts.join(', ')}`);
  }

  validation(loss: number | null): void {
    if (loss !== null) console.log(`validation loss ${loss.toFixed(3)}`);
  }
}
