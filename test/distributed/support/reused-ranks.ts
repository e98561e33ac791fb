/** Local ranks that tests reuse, because starting them takes longer than most tests. */
import { setTimeout } from 'node:timers/promises';
import { runLocalRanks } from '../../../lib/distributed/local-ranks/run.js';
import { graphBreak } from '../../../lib/index.js';

export type Job<T> = (rank: number, worldSize: number) => T | Promise<T>;

interface Signal<T> {
  readonly promise: Promise<T>;
  readonly resolve: (value: T) => void;
}

/** A promise that somebody else resolves. */
export function signal<T>(): Signal<T> {
  let resolve!: (value: T) => void;
  const promise = new Promise<T>((fulfil) => {
    resolve = fulfil;
  });
  return { promise, resolve };
}

class Task {
  readonly job: Job<unknown>;
  private readonly outcomes: Signal<PromiseSettledResult<unknown>>[];

  constructor(job: Job<unknown>, ranks: number) {
    this.job = job;
    this.outcomes = Array.from({ length: ranks }, () => signal());
  }

  settle(rank: number, outcome: PromiseSettledResult<unknown>): void {
    this.outcomes[rank]?.resolve(outcome);
  }

  all(): Promise<PromiseSettledResult<unknown>[]> {
    return Promise.all(this.outcomes.map(({ promise }) => promise));
  }
}

/** How long ranks may run on after another one has failed. */
const GRACE_MS = 1000;

/**
 * Runs jobs on the ranks of one world, one after the other. A job that fails on all ranks leaves
 * them as they are; one that fails on some leaves the others waiting for them, so the world is
 * ended and the next job gets a new one.
 */
export class ReusedRanks {
  readonly size: number;
  private readonly timeoutMs: number;
  private world: Promise<unknown> | null = null;
  private next = signal<Task | null>();

  constructor(size: number, timeoutMs = 20_000) {
    this.size = size;
    this.timeoutMs = timeoutMs;
  }

  /** What the ranks return. @throws what the first of them throws */
  run<T>(job: Job<T>): Promise<T[]> {
    graphBreak('work was given to ranks');
    return this.start(job);
  }

  private async start<T>(job: Job<T>): Promise<T[]> {
    this.world ??= runLocalRanks(this.size, (rank, worldSize) => this.loop(rank, worldSize), {
      timeoutMs: this.timeoutMs,
    }).catch(() => {});
    const task = new Task(job, this.size);
    this.advance(task);
    const outcomes = await task.all();
    const failed = outcomes.find((outcome) => outcome.status === 'rejected');
    if (failed !== undefined) throw failed.reason;
    return outcomes.map((outcome) => (outcome as PromiseFulfilledResult<T>).value);
  }

  async stop(): Promise<void> {
    const { world } = this;
    this.world = null;
    this.advance(null);
    await world;
  }

  private advance(task: Task | null): void {
    const { resolve } = this.next;
    this.next = signal();
    resolve(task);
  }

  private async loop(rank: number, worldSize: number): Promise<void> {
    for (let task = await this.next.promise; task !== null; ) {
      const following = this.next.promise;
      const { job } = task;
      const [outcome] = await Promise.allSettled([(async () => job(rank, worldSize))()]);
      task.settle(rank, outcome);
      if (
        outcome.status === 'rejected' &&
        (await Promise.race([task.all(), setTimeout(GRACE_MS, null)])) === null
      ) {
        void this.stop();
        throw outcome.reason;
      }
      task = await following;
    }
  }
}

/** Ranks for the suites of a `describe`, ended after it. */
export function reusedRanks(size: number): ReusedRanks {
  const ranks = new ReusedRanks(size);
  after(() => ranks.stop());
  return ranks;
}
