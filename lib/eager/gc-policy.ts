/**
 * Decides when garbage is collected. V8 reacts late to memory outside of its heap. So this file
 * counts the storages that only the collector can free, and requests a collection when they have
 * grown enough.
 */

import { getHeapSpaceStatistics } from 'node:v8';
import type { Storage } from '../core/storage.js';
import type { Tensor } from '../core/tensor.js';
import { addonOrStandIn } from '../native/load.js';
import { type Collector, collector, keepNewObjectsYoung } from './collector.js';

/**
 * A young collection runs after this many storages of at least this many bytes. The count is small
 * enough that the garbage is still in the processor's cache, and that V8's own young collections,
 * which come later as its heap grows, do not matter.
 */
const MINOR_COUNT = 256;
const MINOR_FLOOR_BYTES = 256 * 2 ** 10;
/** A young collection also runs after this many bytes, times the slack. */
const MINOR_BYTES = 2 ** 20;
/** Or after this share of all bytes, so that large programs make tens of collections a step. */
const MINOR_SHARE = 0.03125;
/** Where only full collections are offered, one runs after so many storages: each takes longer. */
const FULL_COUNT = 2 ** 15;
/**
 * A full collection runs when the survivors of young collections have grown by this factor and
 * count, or by this amount or share of what the program needs; each times the slack, by how much
 * the last one is too short ago for its cost.
 */
const MAJOR_FACTOR = 1.25;
const MAJOR_COUNT = 64;
const MAJOR_BYTES = 32 * 2 ** 20;
const MAJOR_SHARE = 0.015625;
/**
 * What graphs saved is no garbage, unless they were dropped without backward. So it counts alone: a
 * full collection runs when it is this many times what the last one left of it.
 */
const SAVED_FACTOR = 2;
const SAVED_BYTES = 32 * 2 ** 20;
/** The collections that tell how much a program needs. */
const MOST_WINDOW = 64;
/**
 * By which share a step exceeds that before a young collection: what is alive where a program needs
 * most would be in two of them, and become old.
 */
const SPARE_SHARE = 0.015625;
/** How many young collections a full one waits for the next graph. */
const MOST_WAITS = 16;
/** By how much a collection may seem to take longer than the one before. */
const MAX_GROWTH = 1.25;
/** The maximal share of the time for a kind of collection. */
const MAX_SHARE = 0.03;
/** At most 128 MiB before a young and 256 MiB or an eighth before a full collection. */
const MAX_MINOR_SLACK = 128;
const MAX_MAJOR_SLACK = 8;

/** Collections of one kind, and what they cost. */
class Collections {
  private last = 0;
  private cost = Number.POSITIVE_INFINITY;

  /** Returns the part of the time since the last one ended that this one took. */
  run(collect: () => void): number {
    const start = performance.now();
    collect();
    const end = performance.now();
    // One that took much longer than the last has waited for a processor.
    this.cost = Math.min(end - start, this.cost * MAX_GROWTH);
    const share = this.last > 0 ? this.cost / (end - this.last) : MAX_SHARE;
    this.last = end;
    return share;
  }

  /** How many times its share of the time one would take now. */
  get excess(): number {
    return this.last === 0 ? 0 : this.cost / ((performance.now() - this.last) * MAX_SHARE);
  }
}

/**
 * Young collections. If they take more than their share of the time, the slack doubles, and more
 * garbage gathers before the next one. So small programs stay small, large programs fast, and the
 * memory of both is flat after a few steps.
 */
class YoungCollections extends Collections {
  slack = 1;

  override run(collect: () => void): number {
    const share = super.run(collect);
    if (share > MAX_SHARE) this.slack = Math.min(this.slack * 2, MAX_MINOR_SLACK);
    else if (share < MAX_SHARE / 2) this.slack = Math.max(this.slack / 2, 1);
    return share;
  }
}

const minor = new YoungCollections();
const major = new Collections();

/** The most bytes that young collections have left, of the last ones. */
class RecentMost {
  value = 0;
  private ofWindow = 0;
  private count = 0;

  add(bytes: number): void {
    this.ofWindow = Math.max(this.ofWindow, bytes);
    this.value = Math.max(this.value, bytes);
    if (++this.count % MOST_WINDOW > 0) return;
    this.value = this.ofWindow;
    this.ofWindow = 0;
  }

  /** So many bytes were garbage in each of these collections. */
  subtract(bytes: number): void {
    this.value = Math.max(this.value - bytes, 0);
    this.ofWindow = Math.max(this.ofWindow - bytes, 0);
  }

  forget(): void {
    this.value = 0;
    this.ofWindow = 0;
  }
}

const most = new RecentMost();
let bytesSinceMinor = 0;
let countSinceMinor = 0;
let minorCount = MINOR_COUNT;
let minorBytes = MINOR_BYTES;
let survivors: TokenCounts = { count: 0, bytes: 0, saved: 0 };
let afterMajor = survivors;
let savedLimit = SAVED_BYTES;
/** Whether a graph was seen that keeps memory, and then that its backward pass has ended. */
let graph: 'none' | 'saving' | 'ended' = 'none';
/**
 * A full collection in the midst of a step makes the tensors of the step old, so that the next step
 * needs one again. One that is due then waits until the next step's graph begins. A program that
 * never runs backward ends no graph: there it does not wait long.
 */
let waits = 0;
/** The bytes when the last graph began, after a collection. */
let atBegin = 0;

/** Storages that only the collector can free, and what graphs saved of them, of all devices. */
interface TokenCounts {
  count: number;
  bytes: number;
  /** Bytes; they are not in the others. */
  saved: number;
}

let words: Float64Array | undefined;

function readTokens(): TokenCounts {
  const addon = addonOrStandIn();
  addon.tokenCounts();
  words ??= new Float64Array(addon.words);
  return { count: words[0] as number, bytes: words[1] as number, saved: words[2] as number };
}

/** Full collection: drops every tensor that nothing refers to. */
export function collectGarbage(): void {
  collector().full();
  savedLimit = SAVED_BYTES;
  measureAll();
  most.forget();
  bytesSinceMinor = 0;
  countSinceMinor = 0;
}

function measureAll(): void {
  survivors = readTokens();
  afterMajor = survivors;
  atBegin = survivors.bytes;
  savedLimit = Math.max(savedLimit, survivors.saved * SAVED_FACTOR);
}

function runMajor(): void {
  major.run(collector().full);
  measureAll();
}

/** How much more than the least may wait for a full collection. */
const majorSlack = (): number => Math.min(Math.max(major.excess, 1), MAX_MAJOR_SLACK);

/** A backward pass has let its graph go: what the step made is garbage when the next one begins. */
export function endPass(): void {
  // In scopes nothing else asks, and what the program dropped when it built its model would stay.
  if (graph === 'none' && readTokens().bytes > afterMajor.bytes + leastGrowth()) {
    runMajor();
  }
  graph = graph === 'saving' ? 'ended' : 'none';
}

/** Counts new storages that no scope owns, and collects when they add up. */
export function addPressure(outputs: readonly Tensor[]): void {
  for (let i = 0; i < outputs.length; i++) count((outputs[i] as Tensor).storage);
  if (isMuch()) relieve();
}

/** Counts a storage that was allocated outside of a command. */
export function addAllocated(storage: Storage): void {
  count(storage);
  if (isMuch()) relieve();
}

/** Whether a storage was made: the first one prepares the engine, a program without any does not. */
let isPrepared = false;

function count(storage: Storage | null): void {
  if (!isPrepared) {
    keepNewObjectsYoung();
    isPrepared = true;
  }
  if (storage === null || storage.scope !== null) return;
  bytesSinceMinor += storage.nbytes;
  countSinceMinor++;
}

/** Counts a storage that a graph let go, and that still has a token. */
export function addUnsaved(bytes: number): void {
  bytesSinceMinor += bytes;
  countSinceMinor++;
  if (isMuch()) relieve();
}

let usedBefore = 0;

/**
 * Collects young objects if V8 would do that by itself in the midst of the step, where it copies
 * all that the step has recorded until then. Between steps there is little to copy.
 */
export function collectBeforeStep(): void {
  const { young } = collector();
  if (young === null) return;
  const space = getHeapSpaceStatistics().find(({ space_name }) => space_name === 'new_space');
  if (space === undefined) return;
  const { space_used_size: used, space_available_size: available } = space;
  // This step will need as much as the last one.
  const needed = used - (used < usedBefore ? 0 : usedBefore);
  usedBefore = used;
  if (needed <= available) return;
  young();
  usedBefore = 0;
}

/** After a backward pass, the next step's graph may begin at any op. */
const isMuch = (): boolean =>
  bytesSinceMinor > MINOR_FLOOR_BYTES &&
  (countSinceMinor > minorCount || bytesSinceMinor > minorBytes || graph === 'ended');

function minorLimit(): number {
  const slack = turning ? MAX_MINOR_SLACK : minor.slack;
  return Math.max(MINOR_BYTES * slack, (survivors.bytes + survivors.saved) * MINOR_SHARE);
}

let turning = false;

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
  const { count, bytes, saved } = readTokens();
  countSinceMinor = count - survivors.count;
  bytesSinceMinor = bytes - survivors.bytes;
  const begins = graph === 'ended' && saved > 0;
  if (saved > 0) graph = 'saving';
  if (begins) waits = 0;
  if (saved > savedLimit + SAVED_BYTES * (majorSlack() - 1)) {
    runMajor();
  } else if (
    countSinceMinor < minorCount * 0.9 &&
    (begins ? bytes - atBegin < MINOR_BYTES * minor.slack : isHarmless(bytes + saved))
  ) {
    minorBytes = Math.max(bytesSinceMinor, 0) + minorLimit();
    return;
  } else if (collect.young === null) relieveFully(collect);
  else relieveYoung(collect.young, begins);
  watchTurns();
  most.add(survivors.bytes + survivors.saved);
  bytesSinceMinor = 0;
  countSinceMinor = 0;
  minorBytes = minorLimit();
}

/** Until the program has as much as it needs later, garbage does no harm. */
const isHarmless = (total: number): boolean =>
  bytesSinceMinor < minorLimit() * 0.9 || total < most.value * (1 + SPARE_SHARE);

function relieveYoung(young: () => void, begins: boolean): void {
  // Collections by count are worth their time, because the garbage is still in the cache.
  // Collections by bytes keep to their share.
  if (countSinceMinor < minorCount) minor.run(young);
  else young();
  survivors = readTokens();
  const isInStep = !begins && (survivors.saved > 0 || graph === 'ended');
  if (graph === 'ended') graph = 'none';
  if (hasGrown(survivors) && !(isInStep && ++waits <= MOST_WAITS)) {
    const { bytes } = survivors;
    const carried = Math.max(atBegin - afterMajor.bytes, 0);
    runMajor();
    // The last step had it from its beginning, so recent collections have left it.
    most.subtract(Math.min(carried, bytes - survivors.bytes));
  } else if (begins) atBegin = survivors.bytes;
  // Many survivors make a collection expensive: the next one waits for as many new storages.
  minorCount = Math.max(MINOR_COUNT, survivors.count);
}

function relieveFully({ full }: Collector): void {
  minor.run(full);
  measureAll();
  minorCount = Math.max(FULL_COUNT, survivors.count);
}

/** How many times the floors of a full collection its garbage may have. */
const slackOfFloors = (): number => (turning ? MAX_MAJOR_SLACK : majorSlack());

/** The bytes by which survivors grow before a full collection. */
const leastGrowth = (): number =>
  Math.max(MAJOR_BYTES * slackOfFloors(), most.value * MAJOR_SHARE * majorSlack());

const hasGrown = ({ count, bytes }: TokenCounts): boolean =>
  bytes > afterMajor.bytes + leastGrowth() ||
  count > afterMajor.count * MAJOR_FACTOR + MAJOR_COUNT * slackOfFloors();
