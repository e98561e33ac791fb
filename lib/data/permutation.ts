/**
 * A random order of any number of items that is computed position by position: a Feistel network
 * over the next power of four, whose values beyond the length are mapped again until they fit.
 * A list of the order would need 8 bytes an item, and would be drawn up to the position of a
 * resumed run.
 */

/** Four are enough for large halves; halves of one or two bits need more. */
const ROUNDS = 8;

const WORD = 2 ** 32;

export class Permutation {
  private readonly length: number;
  private readonly halfBits: number;
  private readonly keys: Uint32Array;

  /** The order of `length` items that belongs to the seed and the epoch. */
  constructor(length: number, seed: number, epoch: number) {
    this.length = length;
    this.halfBits = Math.max(1, Math.ceil(Math.log2(Math.max(2, length)) / 2));
    const words = [seed % WORD, Math.floor(seed / WORD), epoch % WORD, length % WORD];
    this.keys = Uint32Array.from({ length: ROUNDS }, (_, round) =>
      words.reduce((key, word) => mixed(key ^ word), mixed(round + 1)),
    );
  }

  /** The item at a position. */
  at(position: number): number {
    let item = position;
    do item = this.mapped(item);
    while (item >= this.length);
    return item;
  }

  private mapped(item: number): number {
    const half = 2 ** this.halfBits;
    let left = Math.floor(item / half);
    let right = item - left * half;
    for (let round = 0; round < ROUNDS; round++) {
      const key = this.keys[round] as number;
      const mapped = (left ^ mixed(right ^ key)) & (half - 1);
      left = right;
      right = mapped;
    }
    return left * half + right;
  }
}

/** Spreads each bit of a word over all of them, as the end of MurmurHash3 does. */
function mixed(word: number): number {
  let hash = Math.imul(word ^ (word >>> 16) ^ 0x9e3779b9, 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}

/** Random numbers in [0, 1) that belong to the seed and the epoch. */
export function* uniforms(seed: number, epoch: number): Generator<number, never> {
  const start = mixed(mixed(seed % WORD) ^ mixed(Math.floor(seed / WORD) + 1) ^ epoch);
  for (let count = 0; ; count++) yield mixed(start ^ mixed(count)) / WORD;
}
