/** What ranks that are processes make, as the others hear of it through their store: nobody waits for that, nor stays alive for it. */
import type { Home } from '../core/home.js';
import { type Difference, differenceOf, KEPT_MAKINGS, type Making, type MakingBoard, type Standing } from './makings.js';
import { PrefixStore, type Store } from './stores/index.js';

/** Of the two that were found to differ first. */
const DIFFERENCE = 'difference';
/** As long as a program may run. */
const FOR_EVER_MS = 2_000_000_000;
/** Makings whose groups still hear of a difference: it is found within milliseconds. */
const OPEN_MAKINGS = 256;

/** @internal */
export class StoreBoard implements MakingBoard {
  private readonly store: Store;
  private readonly home: Home;
  private readonly made: Making[] = [];
  /** By place. */
  private readonly open = new Map<string, { readonly making: Making; readonly fail: (difference: Difference) => void }>();
  private found: readonly [Making, Making] | null = null;
  /** What comparisons of this rank's makings have found, or will if they are under way. */
  private comparing: Promise<Difference | null> | null = null;
  private isListening = false;
  private hasLeft = false;

  private constructor(store: Store, home: Home) {
    this.store = store;
    this.home = home;
  }

  /** Null for a store that cannot wait behind the program. */
  static over(store: Store, home: Home): StoreBoard | null {
    const quiet = store.quietly();
    return quiet === null ? null : new StoreBoard(new PrefixStore('made', quiet), home);
  }

  record(making: Making): void {
    if (this.made.push(making) > KEPT_MAKINGS) this.made.shift();
    // The store may be gone before the program is done: then nobody hears of anything, here and below.
    this.store.set(keyOf(making.rank), JSON.stringify(this.made)).catch(() => {});
  }

  announce(making: Making, fail: (difference: Difference) => void): void {
    const comparing = Promise.all([this.comparing, this.compare(making).catch(() => null)]).then(([before, now]) => before ?? now);
    this.comparing = comparing;
    void comparing.then((difference) => {
      if (difference === null && this.comparing === comparing) this.comparing = null;
    });
    if (!this.isListening) this.listen().catch(() => {});
    const other = this.found === null ? null : this.otherThan(making, this.found);
    if (other !== null) throw differenceOf(making, other).error;
    this.open.set(making.place, { making, fail });
    if (this.open.size > OPEN_MAKINGS) this.open.delete(this.open.keys().next().value as string);
  }

  differenceFound(): Promise<Difference | null> | null {
    return this.comparing;
  }

  async standingOf(rank: number): Promise<Standing | null> {
    const key = keyOf(rank);
    const made = (await this.store.check([key])) ? (JSON.parse(String(await this.store.get(key))) as Making[]) : [];
    return { made, called: null };
  }

  leave(): void {
    this.hasLeft = true;
    this.open.clear();
  }

  /** The first that makes something in a place says what: the others compare theirs with it. */
  private async compare(making: Making): Promise<Difference | null> {
    const first = JSON.parse(String(await this.store.compareSet(making.place, '', JSON.stringify(making)))) as Making;
    if (first.key === making.key) return null;
    await this.store.compareSet(DIFFERENCE, '', JSON.stringify([first, making]));
    return differenceOf(making, first);
  }

  private async listen(): Promise<void> {
    this.isListening = true;
    await this.store.wait([DIFFERENCE], FOR_EVER_MS);
    this.found = JSON.parse(String(await this.store.get(DIFFERENCE))) as [Making, Making];
    if (this.hasLeft) return;
    const own = this.open.get(this.found[0].place);
    const other = own === undefined ? null : this.otherThan(own.making, this.found);
    if (own === undefined || other === null) return;
    const difference = differenceOf(own.making, other);
    own.fail(difference);
    // A stream that waits for others to join a group hears nothing: who waits for it does.
    this.home.giveUpWaiting(difference.error);
  }

  private otherThan({ place, key }: Making, [first, second]: readonly [Making, Making]): Making | null {
    if (first.place !== place) return null;
    return first.key === key ? second : first;
  }
}

const keyOf = (rank: number): string => `by ${rank}`;
