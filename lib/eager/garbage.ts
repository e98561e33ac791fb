/**
 * Garbage collection on our terms. V8 does not see how large the memory behind a token is until it is told, and reacts late;
 * so outside scopes we count what was handed to the collector, and ask for a collection when it has grown enough.
 */

import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import type { Tensor } from '../core/tensor.js';

type Collector = (options?: { type: 'minor' | 'major' }) => void;
let collector: Collector | null = null;

function loadCollector(): Collector {
  if (collector === null) {
    const exposed = (globalThis as { gc?: Collector }).gc;
    if (exposed) collector = exposed;
    else {
      setFlagsFromString('--expose-gc');
      collector = runInNewContext('gc') as Collector;
      setFlagsFromString('--no-expose-gc');
    }
  }
  return collector;
}

/** A young collection is asked for after so many bytes were left to the collector: a compromise of peak memory and time. */
const MINOR_BYTES = 64 * 2 ** 20;
const MINOR_COUNT = 20_000;
/** An old collection, when what survives young ones has grown by this factor and this much. */
const MAJOR_FACTOR = 1.5;
const MAJOR_BYTES = 256 * 2 ** 20;

let bytesSinceMinor = 0;
let countSinceMinor = 0;
let liveAfterMajor = 0;
let liveTokenBytes: () => number = () => 0;

/** @internal how many bytes only the collector can free, of all devices */
export function installTokenBytes(read: () => number): void {
  liveTokenBytes = read;
}

/** Full collection: drops every tensor that nothing refers to. */
export function collectGarbage(): void {
  loadCollector()();
  liveAfterMajor = liveTokenBytes();
  bytesSinceMinor = 0;
  countSinceMinor = 0;
}

/** Counts new storages that no scope owns, and collects when they add up. */
export function notePressure(outputs: readonly Tensor[]): void {
  for (let i = 0; i < outputs.length; i++) {
    const storage = (outputs[i] as Tensor).storage;
    if (storage === null || storage.scope !== null) continue;
    bytesSinceMinor += storage.nbytes;
    countSinceMinor++;
  }
  if (bytesSinceMinor > MINOR_BYTES || countSinceMinor > MINOR_COUNT) relieve();
}

function relieve(): void {
  const collect = loadCollector();
  const manySmall = bytesSinceMinor <= MINOR_BYTES;
  bytesSinceMinor = 0;
  countSinceMinor = 0;
  // Young objects in such numbers make V8 scavenge by itself.
  if (manySmall) return;
  collect({ type: 'minor' });
  const live = liveTokenBytes();
  if (live > liveAfterMajor * MAJOR_FACTOR + MAJOR_BYTES) {
    collect();
    liveAfterMajor = liveTokenBytes();
  }
}
