/** Places the intermediate results of a plan in one block of memory, by their lifetimes. */

/** A result: its size, and the commands that use it first and last. */
export interface Lifetime {
  readonly bytes: number;
  readonly first: number;
  readonly last: number;
}

/** The first byte of each result, in the order given, and the size of the block. */
export interface MemoryPlan {
  readonly offsets: readonly number[];
  readonly bytes: number;
}

/** Offsets are multiples of this: of cache lines, and of what vector loads and cuBLASLt expect. */
const ALIGNMENT = 256;

const aligned = (bytes: number): number => Math.ceil(bytes / ALIGNMENT) * ALIGNMENT;

/**
 * Gives each result the lowest place that is free for its lifetime (first fit in the order of first
 * use). Results may share memory if the last command of one comes before the first command of the
 * other.
 */
export function planMemory(lifetimes: readonly Lifetime[]): MemoryPlan {
  const offsets = new Array<number>(lifetimes.length).fill(0);
  const order = lifetimes.map((_, i) => i);
  order.sort((a, b) => (lifetimes[a] as Lifetime).first - (lifetimes[b] as Lifetime).first);
  /** The results in use, by offset. */
  let live: number[] = [];
  let total = 0;
  for (const i of order) {
    const { bytes, first } = lifetimes[i] as Lifetime;
    const size = aligned(bytes);
    if (size === 0) continue;
    live = live.filter((other) => (lifetimes[other] as Lifetime).last >= first);
    let at = 0;
    let place = 0;
    for (; place < live.length; place++) {
      const other = live[place] as number;
      if ((offsets[other] as number) - at >= size) break;
      at = (offsets[other] as number) + aligned((lifetimes[other] as Lifetime).bytes);
    }
    offsets[i] = at;
    live.splice(place, 0, i);
    total = Math.max(total, at + size);
  }
  return { offsets, bytes: total };
}
