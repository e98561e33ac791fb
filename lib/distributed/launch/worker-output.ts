/** Copies the output of ranks, each line with its rank in front, and keeps the last lines. */
import type { Readable, Writable } from 'node:stream';

const LAST_LINES = 20;
/** A longer line is printed in several chunks, to bound memory. */
const LONGEST_LINE = 1 << 16;

/**
 * Copies the lines of `from` to `to`, each after the label. `ended` resolves at the end of `from`.
 */
export class RankOutput {
  readonly lastLines: string[] = [];
  readonly ended: Promise<void>;
  private readonly label: string;
  private readonly to: Writable;
  private rest = '';

  /** @param label - before each line; empty for none */
  constructor(from: Readable, to: Writable, label: string) {
    this.label = label;
    this.to = to;
    from.setEncoding('utf8');
    from.on('data', (text: string) => {
      // A slow reader of this process's output slows down the rank.
      if (this.take(text)) return;
      from.pause();
      to.once('drain', () => from.resume());
    });
    this.ended = new Promise((resolve) => {
      from.once('close', () => {
        if (this.rest !== '') this.line(this.rest, '\n');
        this.rest = '';
        resolve();
      });
    });
  }

  private take(text: string): boolean {
    const lines = (this.rest + text).split('\n');
    this.rest = lines.pop() as string;
    let more = true;
    for (const line of lines) more = this.line(line, '\n');
    if (this.rest.length > LONGEST_LINE) {
      more = this.line(this.rest, '');
      this.rest = '';
    }
    return more;
  }

  private line(line: string, end: string): boolean {
    this.lastLines.push(line);
    if (this.lastLines.length > LAST_LINES) this.lastLines.shift();
    return this.to.write(`${this.label}${line}${end}`);
  }
}
