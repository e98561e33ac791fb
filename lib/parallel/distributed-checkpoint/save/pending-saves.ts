/** Saves in the background: at most one at a time, and no failure goes unseen. */
import { CheckpointError } from '../../../index.js';
import type { Ranks } from '../ranks.js';

/** A save that goes on while the program does. */
export class PendingSave {
  private readonly done: Promise<void>;
  private failure: Error | null = null;
  private isReported = false;

  /** @internal */
  constructor(done: Promise<void>) {
    this.done = done;
    done.catch((error: Error) => {
      this.failure = error;
    });
  }

  /**
   * Resolves when the checkpoint is complete on the disk. A program that ends before has the
   * checkpoint before.
   *
   * @throws CheckpointError if a rank could not write; CollectiveError if a rank has died, or is not
   * done `timeoutMs` of the process group after this one
   */
  async wait(): Promise<void> {
    this.isReported = true;
    await this.done;
  }

  /** Waits until it is over, whether it has failed or not. @internal */
  async over(): Promise<void> {
    await this.done.catch(() => {});
  }

  /** Waits, and returns a failure that nobody has seen. @internal */
  async settled(): Promise<Error | null> {
    await this.over();
    if (this.failure === null || this.isReported) return null;
    this.isReported = true;
    return new CheckpointError(
      `the save before failed, and nobody waited for it: ${this.failure.message}`,
      {},
      { cause: this.failure },
    );
  }
}

/** The last save of each rank. */
const last = new WeakMap<object, PendingSave>();

/** Waits for the save before; returns its failure if nobody has seen it. */
export async function earlierSave(ranks: Ranks): Promise<Error | null> {
  return (await last.get(ranks.key)?.settled()) ?? null;
}

/** Waits until the save before is over. */
export async function afterEarlierSave(ranks: Ranks): Promise<void> {
  await last.get(ranks.key)?.over();
}

/** Makes a save the one that the next waits for. */
export function inBackground(ranks: Ranks, done: Promise<void>): PendingSave {
  const pending = new PendingSave(done);
  last.set(ranks.key, pending);
  return pending;
}
