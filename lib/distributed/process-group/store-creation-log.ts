/**
 * What ranks that are processes make, as the others hear of it through their store: nobody waits
 * for that, nor stays alive for it.
 */
import { LONGEST_TIMEOUT_MS } from '../../core/options.js';
import { PrefixStore, type Store } from '../stores/index.js';
import {
  type Difference,
  differenceOf,
  KEPT_MAKINGS,
  type Making,
  type MakingBoard,
  type Standing,
} from './creation-log.js';

/** Where the two are that were found to differ as the n-th. */
const differenceKey = (n: number): string => `difference ${n}`;
/** Makings whose groups still hear of a difference: it is found within milliseconds. */
const OPEN_MAKINGS = 256;

type Pair = readonly [first: Making, second: Making];

/** @internal */
export class StoreBoard implements MakingBoard {
  private readonly store: Store;
  private readonly made: Making[] = [];
  /** By place. */
  private readonly open = new Map<
    string,
    { readonly making: Making; readonly fail: (difference: Difference) => void }
  >();
  /** All that were found to differ, by place. */
  private readonly found = new Map<string, Pair>();
  /**
   * What comparisons of this rank's makings have found, or will if they are under way, by place.
   */
  private readonly comparisons = new Map<string, Promise<Difference | null>>();
  private isListening = false;
  /** So many of the differences that were told. */
  private heard = 0;
  private hasLeft = false;

  private constructor(store: Store) {
    this.store = store;
  }

  /** Null for a store that cannot wait behind the program. */
  static over(store: Store): StoreBoard | null {
    const quiet = store.quietly();
    return quiet === null ? null : new StoreBoard(new PrefixStore('made', quiet));
  }

  record(making: Making): void {
    if (this.made.push(making) > KEPT_MAKINGS) this.made.shift();
    // The store may be gone before the program is done: then nobody hears of anything, here and
    // below.
    this.store.set(keyOf(making.rank), JSON.stringify(this.made)).catch(() => {});
  }

  announce(making: Making, fail: (difference: Difference) => void): void {
    const { place } = making;
    const comparing = this.compare(making).catch(() => null);
    this.comparisons.set(place, comparing);
    void comparing.then((difference) => {
      if (difference === null) this.comparisons.delete(place);
    });
    if (!this.isListening) this.listen().catch(() => {});
    const told = this.toldOf(making);
    if (told !== null) throw told.error;
    this.open.set(place, { making, fail });
    if (this.open.size > OPEN_MAKINGS) this.open.delete(this.open.keys().next().value as string);
  }

  differenceFound(place: string | null): Promise<Difference | null> | null {
    if (place !== null) return this.findIn(place);
    if (this.comparisons.size === 0) return null;
    return Promise.all(this.comparisons.values()).then(
      (all) => all.find((each) => each !== null) ?? null,
    );
  }

  /** Another rank may have heard of a difference and given up before this one hears of it. */
  private async findIn(place: string): Promise<Difference | null> {
    const compared = await this.comparisons.get(place);
    if (compared) return compared;
    for (let n = this.heard; !this.hasLeft && (await this.store.check([differenceKey(n)])); n++)
      await this.hear(n);
    const own = this.open.get(place);
    return own === undefined ? null : this.toldOf(own.making);
  }

  async standingOf(rank: number): Promise<Standing | null> {
    const key = keyOf(rank);
    const made = (await this.store.check([key]))
      ? (JSON.parse(String(await this.store.get(key))) as Making[])
      : [];
    return { made, called: null };
  }

  leave(): void {
    this.hasLeft = true;
    this.open.clear();
  }

  /** The first that makes something in a place says what: the others compare theirs with it. */
  private async compare(making: Making): Promise<Difference | null> {
    const first = JSON.parse(
      String(await this.store.compareSet(making.place, '', JSON.stringify(making))),
    ) as Making;
    if (first.key === making.key) return null;
    await this.tell(JSON.stringify([first, making]));
    return differenceOf(making, first);
  }

  /** In the first place that is free. */
  private async tell(pair: string): Promise<void> {
    for (let n = 0; String(await this.store.compareSet(differenceKey(n), '', pair)) !== pair; n++);
  }

  private async listen(): Promise<void> {
    this.isListening = true;
    for (let n = 0; !this.hasLeft; n++) {
      await this.store.wait([differenceKey(n)], LONGEST_TIMEOUT_MS);
      await this.hear(n);
    }
  }

  /** Once each, though several may ask at a time. */
  private async hear(n: number): Promise<void> {
    const pair = JSON.parse(String(await this.store.get(differenceKey(n)))) as Pair;
    if (this.hasLeft || n !== this.heard) return;
    this.heard++;
    const { place } = pair[0];
    if (!this.found.has(place)) this.found.set(place, pair);
    const own = this.open.get(place);
    const told = own === undefined ? null : this.toldOf(own.making);
    if (told !== null) own?.fail(told);
  }

  /** Of what others have told so far. */
  private toldOf(making: Making): Difference | null {
    const [first, second] = this.found.get(making.place) ?? [];
    const other = first?.key === making.key ? second : first;
    return other === undefined ? null : differenceOf(making, other);
  }
}

const keyOf = (rank: number): string => `by ${rank}`;
