/** Loaders of numbers, and what they give. */
import { DataLoader, type DataLoaderOptions } from '../../lib/data/index.js';

export const upTo = (length: number): number[] => Array.from({ length }, (_, i) => i);
export const sorted = (numbers: readonly number[]): number[] => [...numbers].sort((a, b) => a - b);
const asList = (samples: number[]): number[] => samples;

/** A stream of the same numbers as an array of them. */
export const streamOf = (length: number) =>
  async function* () {
    for (let i = 0; i < length; i++) yield i;
  };

export type Options = DataLoaderOptions<number, number[]>;
export type Loader = DataLoader<number, number[]>;

export const loaderOf = (
  samples: number[] | (() => AsyncIterable<number>),
  options: Options,
): Loader => new DataLoader<number, number[]>(samples, { collateFn: asList, ...options });

export async function all<T>(batches: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const batch of batches) found.push(batch);
  return found;
}

/** The first batches of a loader; it is then left as after a break. */
export async function some<T>(batches: AsyncIterable<T>, count: number): Promise<T[]> {
  const found: T[] = [];
  for await (const batch of batches) {
    found.push(batch);
    if (found.length === count) break;
  }
  return found;
}
