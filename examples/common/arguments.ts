/** What the command lines of the examples have in common. */
import { InvalidArgumentError } from 'commander';
import { cuda, type DeviceName } from '../../lib/index.js';

/** An error that is printed in one line, without a stack. */
export class UserError extends Error {}

/** A whole number from `least`. */
export function count(least: number): (value: string) => number {
  return (value) => {
    const n = value.trim() === '' ? Number.NaN : Number(value);
    if (!Number.isSafeInteger(n) || n < least)
      throw new InvalidArgumentError(`expected a whole number from ${least}`);
    return n;
  };
}

/** A number above 0. */
export function rate(value: string): number {
  const n = Number(value);
  if (!Number.isFinite(n) || n <= 0) throw new InvalidArgumentError('expected a number above 0');
  return n;
}

/** A device that is there. */
export function deviceName(value: string): DeviceName {
  if (value === 'cpu') return value;
  const match = /^cuda(?::(\d{1,3}))?$/.exec(value);
  if (match === null) throw new InvalidArgumentError("expected 'cpu', 'cuda' or such as 'cuda:1'");
  const missing = cuda.whyUnavailable();
  if (missing !== null) throw new InvalidArgumentError(`CUDA is not available: ${missing.reason}`);
  if (Number(match[1] ?? 0) >= cuda.deviceCount())
    throw new InvalidArgumentError(`there are ${cuda.deviceCount()} CUDA devices, counted from 0`);
  return value as DeviceName;
}
