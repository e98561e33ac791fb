/**
 * Garbage collection on our terms. V8 does not see how large the memory behind a token is until it
 * is told, and reacts late; so outside scopes we count what was handed to the collector, and ask
 * for a collection when it has grown enough.
 */

import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { isMainThread } from 'node:worker_threads';
import type { Tensor } from '../core/tensor.js';
import { loadAddon } from '../native/load.js';

/**
 * Helpers of a parallel young collection would queue for processors on which kernels compute, and
 * everything waits for the last one: V8's own collections as much as ours. V8's flags are the
 * process's, and other threads may be collecting: so it is said once, and not taken back.
 */
const ALONE = '--no-parallel-scavenge';

type Collector = (options?: { type: 'minor' | 'major' }) => void;
let collector: Collector | null = null;

function loadCollector(): Collector {
  collector ??= (globalThis as { gc?: Collector }).gc ?? exposedCollector();
  return collector;
}

/** Another thread that does the same may take the flag back in between. */
const MOST_TRIES = 1000;

function exposedCollector(): Collector {
  for (let i = 0; i < MOST_TRIES; i++) {
    setFlagsFromString('--expose-gc');
    const found = runInNewContext('globalThis.gc') as Collector | undefined;
    setFlagsFromString('--no-expose-gc');
    if (found !== undefined) return found;
  }
  return () => {}; // V8 then collects by itself
}

let alone = false;

function collectYoung(collect: Collector): void {
  if (!alone && isMainThread) setFlagsFromString(ALONE);
  alone = true;
  collect({ type: 'minor' });
}

/**
 * A young collection is asked for after so many storages that hold at least so much: few enough
 * that what they refer to is still in the processor's cache, and that V8's own young collections,
 * which come later as its heap grows, do not matter.
 */
const MINOR_COUNT = 256;
const MINOR_FLOOR_BYTES = 256 * 2 ** 10;
/** Or after so many bytes, times the slack. */
const MINOR_BYTES = 16 * 2 ** 20;
/**
 * An old collection, when what survives young ones has grown by this factor, and by so much times
 * the slack.
 */
const MAJOR_FACTOR = 1.25;
const MAJOR_COUNT = 64;
const MAJOR_BYTES = 32 * 2 ** 20;
/** The share of the time that a kind of collection may take. */
const MAX_SHARE = 0.03;
/** At most 128 MiB before a young and 256 MiB before an old collection. */
const MAX_SLACK = 8;

/**
 * Runs collections of one kind. Where they take more than their share of the time, the slack
 * doubles, and more garbage may gather before the next one: small programs stay small, large ones
 * fast, and both are flat after a few steps.
 */
class Collections {
  slack = 1;
  private last = 0;

  run(collect: () => void): void {
    const start = performance.now();
    collect();
    const end = performance.now();
    if (this.last > 0 && end - start > MAX_SHARE * (end - this.last))
      this.slack = Math.min(this.slack * 2, MAX_SLACK);
    this.last = end;
  }
}

const minor = new Collections();
const major = new Collections();

let turning = false;
let bytesSinceMinor = 0;
let countSinceMinor = 0;
let minorCount = MINOR_COUNT;
let survivors = { count: 0, bytes: 0 };
let afterMajor = survivors;

/** What only the collector can free, of all devices. */
interface TokenCounts {
  count: number;
  bytes: number;
}

let words: Float64Array | undefined;

function readTokens(): TokenCounts {
  const addon = loadAddon();
  addon.tokenCounts();
  words ??= new Float64Array(addon.words);
  return { count: words[0] as number, bytes: words[1] as number };
}

/** Full collection: drops every tensor that nothing refers to. */
export function collectGarbage(): void {
  loadCollector()();
  survivors = readTokens();
  afterMajor = survivors;
  bytesSinceMinor = 0;
  countSinceMinor = 0;
}

/** Counts new storages that no scope owns, and collects when they add up. */
export function addPressure(outputs: readonly Tensor[]): void {
  for (let i = 0; i < outputs.length; i++) {
    const storage = (outputs[i] as Tensor).storage;
    if (storage === null || storage.scope !== null) continue;
    bytesSinceMinor += storage.nbytes;
    countSinceMinor++;
  }
  if (
    bytesSinceMinor > MINOR_FLOOR_BYTES &&
    (countSinceMinor > minorCount || bytesSinceMinor > minorBytes())
  )
    relieve();
}

function minorBytes(): number {
  return MINOR_BYTES * (turning ? MAX_SLACK : minor.slack);
}

/**
 * Notices whether the event loop turns between collections. Then V8 collects by itself in small
 * steps as the bytes that it was told of grow, and ours, which stop everything, wait for as much
 * garbage as is allowed.
 */
function watchTurns(): void {
  turning = false;
  setImmediate(() => {
    turning = true;
  }).unref();
}

function relieve(): void {
  const collect = loadCollector();
  // Some were disposed of by hand, or collected already: wait for as many again.
  const { count, bytes } = readTokens();
  countSinceMinor = count - survivors.count;
  bytesSinceMinor = bytes - survivors.bytes;
  if (countSinceMinor < minorCount * 0.9 && bytesSinceMinor < minorBytes() * 0.9) return;
  // Collections for their number are worth their time: what they find is still in the cache. Those
  // for bytes keep to a share.
  if (countSinceMinor < minorCount) minor.run(() => collectYoung(collect));
  else collectYoung(collect);
  bytesSinceMinor = 0;
  countSinceMinor = 0;
  survivors = readTokens();
  if (hasGrown(survivors)) {
    major.run(collect);
    survivors = readTokens();
    afterMajor = survivors;
  }
  watchTurns();
  // Many survivors make a collection dear: the next one waits until as many new ones are there.
  minorCount = Math.max(MINOR_COUNT, survivors.count);
}

function hasGrown({ count, bytes }: TokenCounts): boolean {
  return (
    bytes > afterMajor.bytes * MAJOR_FACTOR + MAJOR_BYTES * (turning ? MAX_SLACK : major.slack) ||
    count > afterMajor.count * MAJOR_FACTOR + MAJOR_COUNT * major.slack
  );
}
