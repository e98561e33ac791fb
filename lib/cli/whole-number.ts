/** Options of commands that are whole numbers. */
import { InvalidArgumentError } from 'commander';

export function wholeNumber(from: number, to: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (/^\d+$/.test(text) && value >= from && value <= to) return value;
    throw new InvalidArgumentError(
      /^\d+:\d+$/.test(text)
        ? 'A range of machines (elastic launch) is not supported; give a number.'
        : `Expected a whole number from ${from} to ${to}.`,
    );
  };
}
