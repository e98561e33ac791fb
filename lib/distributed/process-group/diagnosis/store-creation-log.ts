/**
 * Publishes each group creation to the store so that other processes can detect mismatches. Never
 * blocks and never keeps the process alive.
 */
import { LONGEST_TIMEOUT_MS } from '../../../core/options.js';
import { PrefixStore, type Store } from '../../stores/index.js';
import {
  type CreationLog,
  type CreationMismatch,
  type GroupCreation,
  KEPT_CREATIONS,
  mismatchOf,
  type RankProgress,
} from './creation-log.js';

/** The key of the n-th mismatch. */
const mismatchKey = (n: number): string => `mismatch ${n}`;
/** The last creations whose groups still fail on a mismatch, which is found within milliseconds. */
const OPEN_CREATIONS = 256;

type Pair = readonly [first: GroupCreation, second: GroupCreation];

/** @internal */
export class StoreCreationLog implements CreationLog {
  private readonly store: Store;
  private readonly created: GroupCreation[] = [];
  /** By place. */
  private readonly open = new Map<
    string,
    { readonly creation: GroupCreation; readonly fail: (mismatch: CreationMismatch) => void }
  >();
  /** All mismatches, by place. */
  private readonly found = new Map<string, Pair>();
  /**
   * What comparisons of this rank's creations have found, or will if they are under way, by place.
   */
  private readonly comparisons = new Map<string, Promise<CreationMismatch | null>>();
  private isListening = false;
  /** The number of published mismatches that this rank has read. */
  private observed = 0;
  private hasLeft = false;

  private constructor(store: Store) {
    this.store = store;
  }

  /** Null for a store that cannot wait in the background. */
  static over(store: Store): StoreCreationLog | null {
    const quiet = store.quietly();
    return quiet === null ? null : new StoreCreationLog(new PrefixStore('made', quiet));
  }

  record(creation: GroupCreation): void {
    if (this.created.push(creation) > KEPT_CREATIONS) this.created.shift();
    // The store may close before the program ends: then nothing is published, here and below.
    this.store.set(keyOf(creation.rank), JSON.stringify(this.created)).catch(() => {});
  }

  publish(creation: GroupCreation, fail: (mismatch: CreationMismatch) => void): void {
    const { place } = creation;
    const comparing = this.compare(creation).catch(() => null);
    this.comparisons.set(place, comparing);
    void comparing.then((mismatch) => {
      if (mismatch === null) this.comparisons.delete(place);
    });
    if (!this.isListening) this.listen().catch(() => {});
    const mismatch = this.mismatchWith(creation);
    if (mismatch !== null) throw mismatch.error;
    this.open.set(place, { creation, fail });
    if (this.open.size > OPEN_CREATIONS) this.open.delete(this.open.keys().next().value as string);
  }

  mismatchFound(place: string | null): Promise<CreationMismatch | null> | null {
    if (place !== null) return this.findIn(place);
    if (this.comparisons.size === 0) return null;
    return Promise.all(this.comparisons.values()).then(
      (all) => all.find((each) => each !== null) ?? null,
    );
  }

  /** Another rank may have read a mismatch and given up before this one reads it. */
  private async findIn(place: string): Promise<CreationMismatch | null> {
    const compared = await this.comparisons.get(place);
    if (compared) return compared;
    for (let n = this.observed; !this.hasLeft && (await this.store.check([mismatchKey(n)])); n++)
      await this.read(n);
    const own = this.open.get(place);
    return own === undefined ? null : this.mismatchWith(own.creation);
  }

  async progressOf(rank: number): Promise<RankProgress | null> {
    const key = keyOf(rank);
    const created = (await this.store.check([key]))
      ? (JSON.parse(String(await this.store.get(key))) as GroupCreation[])
      : [];
    return { created, called: null };
  }

  leave(): void {
    this.hasLeft = true;
    this.open.clear();
  }

  /** The first creation in a place is the reference that the other ranks compare with. */
  private async compare(creation: GroupCreation): Promise<CreationMismatch | null> {
    const first = JSON.parse(
      String(await this.store.compareSet(creation.place, '', JSON.stringify(creation))),
    ) as GroupCreation;
    if (first.key === creation.key) return null;
    await this.publishMismatch(JSON.stringify([first, creation]));
    return mismatchOf(creation, first);
  }

  /** Uses the first free key. */
  private async publishMismatch(pair: string): Promise<void> {
    for (let n = 0; String(await this.store.compareSet(mismatchKey(n), '', pair)) !== pair; n++);
  }

  private async listen(): Promise<void> {
    this.isListening = true;
    for (let n = 0; !this.hasLeft; n++) {
      await this.store.wait([mismatchKey(n)], LONGEST_TIMEOUT_MS);
      await this.read(n);
    }
  }

  /** Counts each mismatch once, even if several callers read it. */
  private async read(n: number): Promise<void> {
    const pair = JSON.parse(String(await this.store.get(mismatchKey(n)))) as Pair;
    if (this.hasLeft || n !== this.observed) return;
    this.observed++;
    const { place } = pair[0];
    if (!this.found.has(place)) this.found.set(place, pair);
    const own = this.open.get(place);
    const mismatch = own === undefined ? null : this.mismatchWith(own.creation);
    if (mismatch !== null) own?.fail(mismatch);
  }

  /** The mismatch with a creation, among those that were read so far. */
  private mismatchWith(creation: GroupCreation): CreationMismatch | null {
    const [first, second] = this.found.get(creation.place) ?? [];
    const other = first?.key === creation.key ? second : first;
    return other === undefined ? null : mismatchOf(creation, other);
  }
}

const keyOf = (rank: number): string => `by ${rank}`;
