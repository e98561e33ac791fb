/**
 * A hash table of records by name or number, in one typed array. A Map would block the event loop
 * when it grows, and its millions of keys would fill the heap.
 */
import { randomInt } from 'node:crypto';

// Drawn for each process, so that no file can be crafted whose names all collide.
let seed = 0;
let factor = 0;

/** Draws them for the first hash: random numbers take longer to load than the rest of the file. */
function draw(): void {
  seed = randomInt(2 ** 32);
  factor = randomInt(2 ** 30) * 2 + 1;
}

/** A hash of bytes. */
export function hashBytes(bytes: Uint8Array, start: number, end: number): number {
  if (factor === 0) draw();
  let hash = seed;
  for (let i = start; i < end; i++) {
    hash = Math.imul(hash ^ (bytes[i] as number), factor);
    hash ^= hash >>> 15;
  }
  return hash >>> 0;
}

/** A hash of a whole number. */
export function hashNumber(value: number): number {
  if (factor === 0) draw();
  let hash = Math.imul(seed ^ (value % 2 ** 32), factor);
  hash = Math.imul(hash ^ (hash >>> 15) ^ Math.floor(value / 2 ** 32), factor);
  return (hash ^ (hash >>> 15)) >>> 0;
}

/** A hash table of fixed size. The system commits only the pages that are written. */
export class RecordTable {
  private readonly slots: Int32Array;

  constructor(most: number) {
    this.slots = new Int32Array(2 ** Math.ceil(Math.log2(2 * most + 2)));
  }

  /** The record with this hash for which `matches` is true, or null. */
  find(hash: number, matches: (record: number) => boolean): number | null {
    const mask = this.slots.length - 1;
    for (let slot = hash & mask; ; slot = (slot + 1) & mask) {
      const held = this.slots[slot] as number;
      if (held === 0) return null;
      if (matches(held - 1)) return held - 1;
    }
  }

  /** Adds a record that is not in the table. */
  add(hash: number, record: number): void {
    const mask = this.slots.length - 1;
    let slot = hash & mask;
    while (this.slots[slot] !== 0) slot = (slot + 1) & mask;
    this.slots[slot] = record + 1;
  }
}
