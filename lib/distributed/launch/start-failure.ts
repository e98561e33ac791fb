/**
 * Why a start failed after the ranks had met, as the first rank that gives up says it. With rank 0
 * its store goes: without this the others would only see that a connection was lost, and not
 * because of whom.
 */
import { PrefixStore, type Store } from '../stores/index.js';

/** For the others to read why, before the store goes. */
const LAST_WORDS_MS = 500;

/** @internal */
export interface StartFailure {
  readonly rank: number;
  readonly text: string;
}

/** @internal */
export class StartWatch {
  private readonly store: Store;
  private readonly place: { readonly rank: number; readonly worldSize: number };
  private first: StartFailure | null = null;

  /** Listens from now on, behind the program; of a store that cannot do that nothing is heard. */
  constructor(
    store: Store,
    place: { readonly rank: number; readonly worldSize: number },
    timeoutMs: number,
  ) {
    this.place = place;
    this.store = new PrefixStore('start', store);
    const quiet = this.store.quietly();
    if (quiet === null) return;
    quiet.setTimeout(timeoutMs);
    this.listen(quiet).catch(() => {}); // the store has gone, or nobody has failed in time
  }

  /** What the first rank that gave up has said, if this one has heard of it. */
  get failure(): StartFailure | null {
    return this.first;
  }

  /**
   * Says why this rank gives up. Rank 0, which keeps the store, stays until others may have read
   * it.
   */
  async tell(error: unknown): Promise<void> {
    const { store } = this;
    const said: StartFailure = {
      rank: this.place.rank,
      text: error instanceof Error ? error.message : String(error),
    };
    try {
      await store.compareSet('failure', '', JSON.stringify(said));
      if (this.place.rank === 0) await store.wait(['heard by others'], LAST_WORDS_MS);
    } catch {
      // Nobody is left who could read it.
    }
  }

  private async listen(store: Store): Promise<void> {
    this.first = JSON.parse(String(await store.get('failure'))) as StartFailure;
    // All but who keeps the store, and who may have died.
    const heard = await store.add('heard', this.place.rank === 0 ? 0 : 1);
    if (heard >= Math.max(1, this.place.worldSize - 2)) await store.set('heard by others', '');
  }
}
