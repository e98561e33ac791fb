/** What the JavaScript engine offers to collect garbage, in Node, Bun and Deno. */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { isMainThread } from 'node:worker_threads';

/** Collects garbage now. */
export interface Collector {
  /**
   * Collects young objects only, in a fraction of a millisecond; null where that is not offered.
   */
  readonly young: (() => void) | null;
  /** Collects everything. */
  readonly full: () => void;
}

type Gc = (options?: { type: 'minor' | 'major' }) => void;
type Global = { gc?: Gc; Bun?: { gc(synchronously: boolean): void } };

/**
 * Helper threads of a parallel young collection would queue for processors that run kernels, and
 * the collection waits for the last helper. V8's flags are those of the process, and other threads
 * may be collecting, so the flag is set once and never reset.
 */
const ALONE = '--no-parallel-scavenge';

/**
 * V8 learns where objects survive its young collections, as those of graphs do until backward, and
 * makes the later ones old at once. Those wait for a full collection, and young ones keep what they
 * refer to: a step's graph would outlive the step.
 */
const YOUNG_FIRST = '--no-allocation-site-pretenuring';

/** Makes the engine free the graph of a step in young collections. Called once, before there is one. */
export function keepNewObjectsYoung(): void {
  if ((globalThis as Global).Bun === undefined) setFlagsFromString(YOUNG_FIRST);
}

/** Another thread may reset the flag in between. */
const MOST_TRIES = 1000;

let found: Collector | null = null;

/** The collector of this thread. */
export function collector(): Collector {
  found ??= findCollector();
  return found;
}

function findCollector(): Collector {
  const { Bun, gc } = globalThis as Global;
  if (Bun !== undefined) return { young: null, full: () => Bun.gc(true) };
  const collect = gc ?? exposedGc();
  // Deno's function collects everything, whatever it is asked for.
  if (process.versions['deno'] !== undefined) return { young: null, full: () => collect() };
  let alone = false;
  const young = (): void => {
    if (!alone && isMainThread) setFlagsFromString(ALONE);
    alone = true;
    collect({ type: 'minor' });
  };
  return { young, full: () => collect() };
}

function exposedGc(): Gc {
  for (let i = 0; i < MOST_TRIES; i++) {
    setFlagsFromString('--expose-gc');
    const exposed = runInNewContext('globalThis.gc') as Gc | undefined;
    setFlagsFromString('--no-expose-gc');
    if (exposed !== undefined) return exposed;
  }
  return () => {}; // V8 then collects by itself
}
