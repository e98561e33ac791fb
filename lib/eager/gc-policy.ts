/**
 * Decides when garbage is collected. V8 reacts late to memory outside of its heap. So this file
 * counts the storages that only the collector can free, and requests a collection when they have
 * grown enough.
 */

import type { Tensor } from '../core/tensor.js';
import { addonOrStandIn } from '../native/load.js';
import { type Collector, collector } from './collector.js';

/**
 * A young collection runs after this many storages of at least this many bytes. The count is small
 * enough that the garbage is still in the processor's cache, and that V8's own young collections,
 * which come later as its heap grows, do not matter.
 */
const MINOR_COUNT = 256;
const MINOR_FLOOR_BYTES = 256 * 2 ** 10;
/** A young collection also runs after this many bytes, times the slack. */
const MINOR_BYTES = 16 * 2 ** 20;
/** Where only full collections are offered, one runs after so many storages: each takes longer. */
const FULL_COUNT = 2 ** 15;
/**
 * An old collection runs when the survivors of young collections have grown by this factor, and by
 * this much times the slack.
 */
const MAJOR_FACTOR = 1.25;
const MAJOR_COUNT = 64;
const MAJOR_BYTES = 32 * 2 ** 20;
/** The maximal share of the time for a kind of collection. */
const MAX_SHARE = 0.03;
/** At most 128 MiB before a young and 256 MiB before an old collection. */
const MAX_SLACK = 8;

/**
 * Runs collections of one kind. If they take more than their share of the time, the slack doubles,
 * and more garbage gathers before the next one. So small programs stay small, large programs fast,
 * and the memory of both is flat after a few steps.
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

/** Storages that only the collector can free, of all devices. */
interface TokenCounts {
  count: number;
  bytes: number;
}

let words: Float64Array | undefined;

function readTokens(): TokenCounts {
  const addon = addonOrStandIn();
  addon.tokenCounts();
  words ??= new Float64Array(addon.words);
  return { count: words[0] as number, bytes: words[1] as number };
}

/** Full collection: drops every tensor that nothing refers to. */
export function collectGarbage(): void {
  collector().full();
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
 * Detects whether the event loop turns between collections. V8 then collects in small steps as the
 * reported bytes grow, and our collections, which pause the program, use the maximal slack.
 */
function watchTurns(): void {
  turning = false;
  setImmediate(() => {
    turning = true;
  }).unref();
}

function relieve(): void {
  const collect = collector();
  // Some storages were disposed or collected already: wait for as many again.
  const { count, bytes } = readTokens();
  countSinceMinor = count - survivors.count;
  bytesSinceMinor = bytes - survivors.bytes;
  if (countSinceMinor < minorCount * 0.9 && bytesSinceMinor < minorBytes() * 0.9) return;
  if (collect.young === null) relieveFully(collect);
  else relieveYoung(collect, collect.young);
  bytesSinceMinor = 0;
  countSinceMinor = 0;
  watchTurns();
}

function relieveYoung({ full }: Collector, young: () => void): void {
  // Collections by count are worth their time, because the garbage is still in the cache.
  // Collections by bytes keep to their share.
  if (countSinceMinor < minorCount) minor.run(young);
  else young();
  survivors = readTokens();
  if (hasGrown(survivors)) {
    major.run(full);
    survivors = readTokens();
    afterMajor = survivors;
  }
  // Many survivors make a collection expensive: the next one waits for as many new storages.
  minorCount = Math.max(MINOR_COUNT, survivors.count);
}

function relieveFully({ full }: Collector): void {
  minor.run(full);
  survivors = readTokens();
  afterMajor = survivors;
  minorCount = Math.max(FULL_COUNT, survivors.count);
}

function hasGrown({ count, bytes }: TokenCounts): boolean {
  return (
    bytes > afterMajor.bytes * MAJOR_FACTOR + MAJOR_BYTES * (turning ? MAX_SLACK : major.slack) ||
    count > afterMajor.count * MAJOR_FACTOR + MAJOR_COUNT * major.slack
  );
}
