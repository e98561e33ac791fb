/** Colours of what the examples print. */
import { styleText } from 'node:util';

/** Colours text where the terminal has colours. */
export function colored(color: 'bold' | 'cyan', text: string): string {
  return process.stdout.isTTY && process.stdout.hasColors() ? styleText(color, text) : text;
}
