/** The captured backward passes of each compiler. */
import type { RunValue } from '../graph/effects.js';
import type { Graph } from '../graph/graph.js';

/** A backward pass that was captured, or cannot be. */
export interface BackwardEntry {
  readonly structure: readonly unknown[];
  readonly metadata: readonly unknown[];
  /** Null for a pass that cannot be captured: the engine runs it. */
  readonly run: ((...inputs: readonly RunValue[]) => readonly RunValue[]) | null;
  readonly results: readonly number[];
  readonly graph: Graph | null;
  /** Why the engine runs the pass; null if a graph does. */
  readonly reason: string | null;
}

let caches = new WeakMap<object, BackwardEntry[]>();

/** The captures of a compiler. */
export function entriesOf(compiler: object): BackwardEntry[] {
  let entries = caches.get(compiler);
  if (entries === undefined) {
    entries = [];
    caches.set(compiler, entries);
  }
  return entries;
}

/** Drops all captures. */
export function resetBackward(): void {
  caches = new WeakMap();
}
