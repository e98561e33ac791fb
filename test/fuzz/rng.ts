/** Repeatable random choices. Seed and number identify a case, so each can run again alone. */

/** A small generator (mulberry32) with the choices that fuzzing makes. */
export class Rng {
  private state: number;

  constructor(seed: number, index = 0) {
    this.state = Math.imul(seed ^ 0x9e3779b9, 0x85ebca6b) ^ Math.imul(index + 1, 0xc2b2ae35);
  }

  /** In [0, 1). */
  unit(): number {
    this.state = (this.state + 0x6d2b79f5) | 0;
    let t = Math.imul(this.state ^ (this.state >>> 15), 1 | this.state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  }

  /** An integer in [low, high]. */
  int(low: number, high: number): number {
    return low + Math.floor(this.unit() * (high - low + 1));
  }

  chance(probability: number): boolean {
    return this.unit() < probability;
  }

  pick<T>(list: readonly T[]): T {
    return list[this.int(0, list.length - 1)] as T;
  }

  /** One of the entries, with the first member as weight. */
  weighted<T extends readonly [number, ...unknown[]]>(entries: readonly T[]): T {
    let left = this.unit() * entries.reduce((sum, [weight]) => sum + weight, 0);
    return entries.find(([weight]) => (left -= weight) < 0) ?? (entries[0] as T);
  }

  list<T>(length: number, make: (i: number) => T): T[] {
    return Array.from({ length }, (_, i) => make(i));
  }
}

/** A case that found a bug. */
export class Finding extends Error {}

/** Text of an error for a report: class, message and first frames. */
export function describeError(error: unknown): string {
  return error instanceof Error ? (error.stack ?? String(error)) : String(error);
}
