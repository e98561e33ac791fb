/**
 * Explains a start that failed after the rendezvous. The first rank that gives up publishes its
 * error: if that is rank 0, its store closes, and the others would only see a lost connection.
 */
import { DistributedError, StoreError, TimeoutError } from '../../core/errors.js';
import { PrefixStore, type Store } from '../stores/index.js';

const OP = 'initProcessGroup';
/** Time for the others to read the error, before the store closes. */
const LAST_WORDS_MS = 500;

/** The first failure of a start. @internal */
export interface StartFailure {
  readonly rank: number;
  readonly text: string;
}

/** Publishes this rank's failure and listens for that of others. @internal */
export class StartFailures {
  private readonly store: Store;
  private readonly place: { readonly rank: number; readonly worldSize: number };
  private failure: StartFailure | null = null;

  /** Listens in the background from now on, if the store can. */
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
    this.listen(quiet).catch(() => {}); // the store has closed, or no rank has failed in time
  }

  /** The first failure that this rank has received; null without one. */
  get first(): StartFailure | null {
    return this.failure;
  }

  /** Publishes why this rank gives up. Rank 0, which serves the store, waits for readers. */
  async publish(error: unknown): Promise<void> {
    const { store } = this;
    const failure: StartFailure = {
      rank: this.place.rank,
      text: error instanceof Error ? error.message : String(error),
    };
    try {
      await store.compareSet('failure', '', JSON.stringify(failure));
      if (this.place.rank === 0) await store.wait(['read by others'], LAST_WORDS_MS);
    } catch {
      // No rank is left to read it.
    }
  }

  private async listen(store: Store): Promise<void> {
    this.failure = JSON.parse(String(await store.get('failure'))) as StartFailure;
    // All ranks but rank 0, which serves the store, and one that may have died.
    const readers = await store.add('read', this.place.rank === 0 ? 0 : 1);
    if (readers >= Math.max(1, this.place.worldSize - 2)) await store.set('read by others', '');
  }
}

/** How errors describe the store that the ranks were given. @internal */
export interface StoreText {
  /** What all ranks need to have in common. */
  readonly same: string;
  /** What two runs need one each of. */
  readonly each: string;
  /** A file that an earlier run may have left. */
  readonly file: string | null;
}

/** @internal */
export const environmentStoreText: StoreText = {
  same: 'MASTER_ADDR and MASTER_PORT',
  each: 'a MASTER_PORT',
  file: null,
};

/** The process that serves a store, for errors. @internal */
export type Keeper = 'rank 0' | 'the launcher' | null;

/** Rewrites an error of the store during the start as the program sees it. @internal */
export function storeFailure(
  error: unknown,
  place: { rank: number; worldSize: number },
  where: string,
  timeoutMs: number,
  storeText: StoreText,
  keeper: Keeper,
  first: StartFailure | null = null,
): unknown {
  if (place.rank === 0 && keeper === 'rank 0') return error;
  const here = { op: OP, rank: place.rank, worldSize: place.worldSize };
  if (error instanceof StoreError && error.details['disconnected'] === true) {
    const who = keeper ?? 'the process that served the store';
    const why =
      first === null
        ? `The last output of ${who} has the cause.`
        : `Rank ${first.rank} gave up first: ${first.text}`;
    return new DistributedError(
      `${OP}: ${who} has ended, or has left, while the ranks were starting, and its store at ` +
        `${where} with it (this is rank ${place.rank} of ${place.worldSize}). ${why}`,
      { ...here, ranks: first !== null ? [first.rank] : keeper === 'rank 0' ? [0] : [] },
      { cause: error },
    );
  }
  if (
    !(error instanceof TimeoutError) ||
    error.details['missing'] !== undefined ||
    keeper !== 'rank 0'
  )
    return error;
  return new TimeoutError(
    `${OP}: rank ${place.rank} of ${place.worldSize} found no store at ${where} within ` +
      `${timeoutMs} ms. Rank 0 serves it: was it started, with the same ${storeText.same}?`,
    { ...here, missing: [0], missingCount: 1, timeoutMs },
    { cause: error },
  );
}
