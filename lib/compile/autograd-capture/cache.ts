/** The captured backward passes of each compiler. */
import type { Tensor } from '../../core/tensor.js';
import type { RunValue } from '../graph/effects.js';
import type { Graph } from '../graph/graph.js';
import type { NumberFamily } from './number-family.js';

/** A backward pass that was captured, or cannot be. */
export interface BackwardEntry {
  readonly structure: readonly unknown[];
  readonly metadata: readonly unknown[];
  /** The plain numbers of the pass; null for those that are inputs. */
  readonly numbers: readonly (number | null)[];
  /** Null for a pass that cannot be captured: the engine runs it. */
  readonly run: ((...inputs: readonly RunValue[]) => readonly RunValue[]) | null;
  /** The numbers of hooks that are inputs of the graph, behind the others. */
  readonly hookNumbers: readonly Tensor[];
  readonly results: readonly number[];
  readonly graph: Graph | null;
  /** Why the engine runs the pass; null if a graph does. */
  readonly reason: string | null;
}

/** The passes of one compiler. */
interface BackwardCache {
  readonly entries: BackwardEntry[];
  /** The graphs, with the metadata of the tensors that they read. */
  readonly families: { readonly metadata: readonly unknown[]; readonly family: NumberFamily }[];
}

let caches = new WeakMap<object, BackwardCache>();

/** The captures of a compiler. */
export function cacheOf(compiler: object): BackwardCache {
  let cache = caches.get(compiler);
  if (cache === undefined) {
    cache = { entries: [], families: [] };
    caches.set(compiler, cache);
  }
  return cache;
}

/** Drops all captures. */
export function resetBackward(): void {
  caches = new WeakMap();
}
