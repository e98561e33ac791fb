/** Numbers for texts that native code is told again and again: each goes over once. */
import type { Addon } from './addon.js';

/**
 * As many as the addon keeps at a time. Programs have few, but what a call is for may say how many
 * numbers were drawn before.
 */
const MOST_TEXTS = 4096;

/** @internal */
export class TextNumbers {
  private readonly addon: Addon;
  private readonly numbers = new Map<string, number>();

  constructor(addon: Addon) {
    this.addon = addon;
    this.forget();
  }

  /**
   * The numbers of the texts of a call, into the words from `at` on; they hold until the next call
   * is written.
   */
  write(words: Float64Array, at: number, first: string, second: string, third: string): void {
    if (this.numbers.size + 3 > MOST_TEXTS) this.forget();
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

  /** Numbers are given out anew; a call that was enqueued keeps its texts. */
  private forget(): void {
    this.numbers.clear();
    this.numbers.set('', 0);
  }
}
