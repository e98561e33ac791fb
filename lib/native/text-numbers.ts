/** Numbers for texts that native code needs repeatedly: each text passes once. */
import type { Addon } from './addon.js';

/**
 * The addon keeps as many at a time. Programs repeat few texts, but the text of a random draw may
 * count draws.
 */
const MOST_TEXTS = 4096;

/** @internal */
export class TextNumbers {
  private readonly addon: Addon;
  private readonly numbers = new Map<string, number>();

  constructor(addon: Addon) {
    this.addon = addon;
    this.restart();
  }

  /**
   * Writes the numbers of the texts of a call into the words from `at` on; they are valid until the
   * next call is written.
   */
  write(words: Float64Array, at: number, first: string, second: string, third: string): void {
    if (this.numbers.size + 3 > MOST_TEXTS) this.restart();
    words[at] = this.numberOf(first);
    words[at + 1] = this.numberOf(second);
    words[at + 2] = this.numberOf(third);
  }

  private numberOf(text: string): number {
    return this.numbers.get(text) ?? this.add(text);
  }

  private add(text: string): number {
    const number = this.numbers.size;
    this.addon.setText(number, text);
    this.numbers.set(text, number);
    return number;
  }

  /** Starts numbering again; a call that was enqueued keeps its texts. */
  private restart(): void {
    this.numbers.clear();
    this.numbers.set('', 0);
  }
}
