/** What ranks print, with their numbers in front, and what they said last. */
import type { Readable, Writable } from 'node:stream';

const LAST_LINES = 20;
/** A line that does not end is printed in parts, rather than kept. */
const LONGEST_LINE = 1 << 16;

/**
 * Copies the lines of `from` to `to`, each behind the rank's number; resolves at its end. The last
 * lines are kept.
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
      // A slow reader of ours slows the rank down.
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
