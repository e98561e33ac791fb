/** The captured backward passes of each rank, whichever compilers they were captured for. */
import { currentRuntime, type RankRuntime } from '../../core/rank-runtime.js';
import type { Tensor } from '../../core/tensor.js';
import type { BackwardGraph } from './backward-graph.js';
import type { NumberFamily } from './number-family.js';
import { WeakLists } from './weak-lists.js';

/** A backward pass that was captured, or cannot be. */
export interface BackwardEntry {
  readonly structure: readonly unknown[];
  readonly metadata: readonly unknown[];
  /** The plain numbers of the pass; null for those that are inputs. */
  readonly numbers: readonly (number | null)[];
  /** Null for a pass that cannot be captured: the engine runs it. */
  readonly graph: BackwardGraph | null;
  /** The numbers of hooks that are inputs of the graph, behind the others. */
  readonly hookNumbers: readonly Tensor[];
  readonly results: readonly number[];
  /** Why the engine runs the pass; null if a graph does. */
  readonly reason: string | null;
}

/** Graphs of passes whose tensors have this metadata. */
interface FamilyEntry {
  readonly metadata: readonly unknown[];
  readonly family: NumberFamily;
}

/**
 * The passes of a rank. They go with the hooks, tensors and other objects that passes are compared
 * by, so that a model that the program drops leaves nothing.
 */
interface BackwardCache {
  /** By the objects of structures. */
  readonly entries: WeakLists<BackwardEntry>;
  /** By the constants of graphs. */
  readonly families: WeakLists<FamilyEntry>;
}

/** Captures kept for the same objects; the oldest goes. */
const MAX_CAPTURES = 64;

let caches = new WeakMap<RankRuntime, BackwardCache>();

/** The captures of this rank. */
export function backwardCache(): BackwardCache {
  const rank = currentRuntime();
  let cache = caches.get(rank);
  if (cache === undefined) {
    cache = { entries: new WeakLists(), families: new WeakLists() };
    caches.set(rank, cache);
  }
  return cache;
}

/** Adds a capture or a family; the oldest goes if there are too many. */
export function keep<T>(list: T[], item: T): void {
  if (list.length === MAX_CAPTURES) list.shift();
  list.push(item);
}

/** Drops all captures. */
export function resetBackward(): void {
  caches = new WeakMap();
}
