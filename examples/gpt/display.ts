/** What a run shows: progress bars on a terminal, lines elsewhere, JSON objects for programs. */
import { styleText } from 'node:util';
import cliProgress from 'cli-progress';
import sparkly from 'sparkly';

/** What a rank has done in a step. */
export interface StepReport {
  /** Steps done. */
  readonly done: number;
  readonly loss: number;
  readonly lr: number;
  /** Of all ranks together, since the start. */
  readonly tokensPerSecond: number;
  readonly memoryBytes: number;
  readonly secondsLeft: number;
}

/** Shows the progress of all ranks of a run. */
export interface Display {
  /** Before the first step. */
  begin(description: string, first: number, steps: number): void;
  step(rank: number, report: StepReport): void;
  /** A validation begins, or has ended with a loss in nats a byte. */
  validation(loss: number | null): void;
  /** A message about the end of the run; no progress is shown after it. */
  message(text: string): void;
  end(): void;
}

type Color = 'bold' | 'dim' | 'green' | 'cyan';

/** Colours text where the terminal has colours. */
export function colored(color: Color, text: string): string {
  return process.stdout.isTTY && process.stdout.hasColors() ? styleText(color, text) : text;
}

/** The display that suits the options and the output. */
export function displayFor(json: boolean, ranks: number): Display {
  if (json) return new JsonLines();
  return process.stdout.isTTY ? new Bars(ranks) : new Lines();
}

class JsonLines implements Display {
  begin(): void {}
  step(rank: number, { done, loss, lr, tokensPerSecond, memoryBytes }: StepReport): void {
    if (rank > 0) return;
    console.log(JSON.stringify({ step: done - 1, loss, lr, tokensPerSecond, memoryBytes }));
  }
  validation(): void {}
  message = console.error;
  end(): void {}
}

/** Lines of a log: about twenty of them. */
class Lines implements Display {
  private steps = 0;
  private every = 1;

  begin(description: string, first: number, steps: number): void {
    console.log(description);
    this.steps = steps;
    this.every = Math.max(1, Math.round((steps - first) / 20));
  }

  step(rank: number, { done, loss, tokensPerSecond }: StepReport): void {
    if (rank > 0 || (done % this.every !== 0 && done !== this.steps)) return;
    console.log(
      `step ${done}/${this.steps}: loss ${loss.toFixed(3)}, ${tokensPerSecond.toFixed(0)} tokens/s`,
    );
  }

  validation(loss: number | null): void {
    if (loss !== null) console.log(`validation loss ${loss.toFixed(3)}`);
  }

  message = console.error;
  end(): void {}
}

const COLUMNS = 24;

/** A bar for the run with a sparkline of the loss, and a row for each of several ranks. */
class Bars implements Display {
  private readonly bars = new cliProgress.MultiBar({
    format: `${colored('green', '{bar}')} {value}/{total} ${colored('bold', '{loss}')} ${colored('cyan', '{curve}')} {rate} tokens/s ${colored('dim', '{state}')}`,
    barsize: 20,
    hideCursor: true,
    linewrap: false,
  });
  private readonly ranks: number;
  private readonly rows = new Map<number, cliProgress.SingleBar>();
  private readonly losses: number[] = [];
  private total: cliProgress.SingleBar | null = null;
  private validated = '';

  constructor(ranks: number) {
    this.ranks = ranks;
  }

  begin(description: string, first: number, steps: number): void {
    console.log(description);
    const nothing = { loss: '-', curve: '', rate: '-', state: '' };
    this.total = this.bars.create(steps, first, nothing);
    const format = `  rank {rank}  ${colored('green', '{bar}')} {value}/{total} ${colored('dim', '{memory} MiB')}`;
    for (let rank = 0; this.ranks > 1 && rank < this.ranks; rank++)
      this.rows.set(rank, this.bars.create(steps, first, { rank, memory: '-' }, { format }));
  }

  step(rank: number, report: StepReport): void {
    const { done, loss, tokensPerSecond, memoryBytes, secondsLeft } = report;
    const memory = (memoryBytes / 2 ** 20).toFixed(0);
    this.rows.get(rank)?.update(done, { memory });
    if (rank > 0) return;
    this.losses.push(loss);
    this.total?.update(done, {
      loss: `loss ${loss.toFixed(3)}`,
      curve: sparkly(summary(this.losses, COLUMNS)),
      rate: tokensPerSecond.toFixed(0),
      state: `${memory} MiB, ${secondsLeft.toFixed(0)} s left ${this.validated}`,
    });
  }

  validation(loss: number | null): void {
    if (loss !== null) this.validated = `validation ${loss.toFixed(3)}`;
    this.total?.update({ state: loss === null ? 'validates' : this.validated });
  }

  message(text: string): void {
    this.end();
    console.error(text);
  }

  /** The terminal shows its cursor and wraps lines again. */
  end(): void {
    if (this.total !== null) this.bars.stop();
    this.total = null;
    this.rows.clear();
  }
}

/** Means of as many equal parts of a list as there are columns. */
export function summary(values: readonly number[], columns: number): number[] {
  const parts = Math.min(columns, values.length);
  return Array.from({ length: parts }, (_, i) => {
    const from = Math.floor((i * values.length) / parts);
    const part = values.slice(from, Math.floor(((i + 1) * values.length) / parts));
    return part.reduce((a, b) => a + b, 0) / part.length;
  });
}
