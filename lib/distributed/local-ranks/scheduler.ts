/**
 * Schedules `local` ranks in an order drawn from a seed. One rank's JavaScript runs at a time,
 * until it waits for the library or returns. The next rank is drawn among those whose value does
 * not depend on another rank's JavaScript. So the order depends on the seed alone: races and
 * deadlocks can be reproduced, and a deadlock is detected immediately.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { callSite } from '../../core/call-site.js';
import { DistributedError } from '../../core/errors.js';
import type { TurnTaker } from '../../core/rank-runtime.js';
import type { PendingCalls } from '../process-group/diagnosis/deadlock-detector.js';
import type { FaultsOfRank } from './fault-injection.js';

/** One turn of a rank: its number, and the wait that it continues after. */
export interface RankTurn {
  readonly turn: number;
  readonly rank: number;
  readonly what: string;
}

interface Wait {
  readonly rank: number;
  readonly what: string;
  readonly where: string;
  readonly value: Promise<unknown> | null;
  readonly isReady: () => boolean;
  /** Whether the value comes from outside the library, or times out. */
  readonly isOutside: boolean;
  /** Whether the rank's next wait resolves first (a `reorder` fault). */
  yields: boolean;
  isSettled: boolean;
  readonly resume: (value: unknown) => void;
  readonly fail: (error: unknown) => void;
}

/** Time for the calls of a failed group to fail. */
const FAILURE_MS = 100;

interface ScheduleOptions {
  /** Longest turn of a rank. */
  readonly timeoutMs: number;
  readonly onTurn?: (turn: RankTurn) => void;
}

/** @internal */
export class RankSchedule {
  readonly seed: number;
  /** Set when no rank could continue. */
  deadlock: DistributedError | null = null;
  private readonly waits: Wait[][];
  private readonly done: boolean[];
  private readonly delays: number[];
  private readonly pending: PendingCalls;
  private readonly onTurn: (turn: RankTurn) => void;
  private readonly random: () => number;
  private active: number | null = null;
  private turn = 0;
  private isChoosing = false;
  private isPoked = false;
  private over: Error | null = null;
  private readonly timeoutMs: number;
  private away: NodeJS.Timeout | undefined;

  constructor(
    worldSize: number,
    seed: number,
    pending: PendingCalls,
    { timeoutMs, onTurn = () => {} }: ScheduleOptions,
  ) {
    this.seed = seed;
    this.pending = pending;
    this.timeoutMs = timeoutMs;
    this.onTurn = onTurn;
    this.random = randomFrom(seed);
    this.waits = Array.from({ length: worldSize }, () => []);
    this.done = Array.from({ length: worldSize }, () => false);
    this.delays = Array.from({ length: worldSize }, () => 0);
  }

  /** The interface for one rank. */
  turnsOf(rank: number, faults: FaultsOfRank): TurnTaker {
    return {
      ordered: true,
      call: (name) => this.postpone(rank, faults.atCall(name)?.turns),
      mark: () => this.pending.mark(rank),
      wait: async (what, value, isReady = this.pending.mark(rank)) => {
        value?.catch(() => {}); // the rank may never await it
        const fault = faults.atWait(what);
        this.postpone(rank, fault?.turns);
        return this.park(rank, what, value, isReady, fault?.kind === 'reorder');
      },
    };
  }

  /** Called when the rank has returned or failed. */
  finish(rank: number): void {
    this.done[rank] = true;
    (this.waits[rank] as Wait[]).length = 0;
    this.poke();
  }

  /** Ends the schedule: current and later waits throw the error. */
  end(error: Error): void {
    this.over = error;
    for (const list of this.waits) for (const wait of list.splice(0)) wait.fail(error);
  }

  private postpone(rank: number, turns = 0): void {
    this.delays[rank] = (this.delays[rank] as number) + turns;
  }

  private park<T>(
    rank: number,
    what: string,
    value: Promise<T> | null,
    isReady: (() => boolean) | 'outside',
    yields: boolean,
  ): Promise<T> {
    if (this.over !== null) return Promise.reject(this.over);
    return new Promise<T>((resolve, reject) => {
      const isOutside = isReady === 'outside';
      const wait: Wait = {
        rank,
        what,
        where: callSite(),
        value,
        isReady: isOutside ? () => wait.isSettled : isReady,
        isOutside,
        yields,
        isSettled: false,
        resume: resolve as (value: unknown) => void,
        fail: reject,
      };
      const settle = (): void => {
        wait.isSettled = true;
      };
      value?.then(settle, settle);
      (this.waits[rank] as Wait[]).push(wait);
      this.poke();
    });
  }

  /** Fails the waits of all ranks, because the active rank may never return from its own wait. */
  private endTurn(rank: number): void {
    const error = new DistributedError(
      `rank ${rank} has had its turn for ${this.timeoutMs} ms, and awaits something outside this ` +
        'library, such as a timer or its own promise. With a seed no other rank runs meanwhile.',
      { seed: this.seed, ranks: [rank] },
    );
    for (const list of this.waits) {
      for (const wait of list.splice(0)) {
        // A failure of the wait itself is the better explanation.
        if (wait.isSettled) Promise.resolve(wait.value).then(() => wait.fail(error), wait.fail);
        else wait.fail(error);
      }
    }
  }

  /** Chooses the next rank once all code that runs now has reached its next wait. */
  private poke(): void {
    if (this.isPoked) return;
    this.isPoked = true;
    setImmediate(() => {
      this.isPoked = false;
      void this.goOn();
    });
  }

  private isParked(rank: number): boolean {
    return this.done[rank] === true || (this.waits[rank] as Wait[]).length > 0;
  }

  private async goOn(): Promise<void> {
    // A rank that awaits something else, such as a timer, keeps its turn. At the start all ranks
    // have a turn.
    const running =
      this.active !== null ? [this.active] : this.turn === 0 ? [...this.waits.keys()] : [];
    if (this.isChoosing || running.some((rank) => !this.isParked(rank))) return;
    this.active = null;
    clearTimeout(this.away);
    if (this.waits.every((list) => list.length === 0)) return;
    this.isChoosing = true;
    const chosen = this.draw((wait) => wait.isReady()) ?? (await this.drawFailed());
    if (chosen === null) this.endAll();
    else await this.resume(chosen);
    this.isChoosing = false;
    this.poke();
  }

  private draw(canGoOn: (wait: Wait) => boolean): Wait | null {
    const ready = this.waits.flatMap((list) => {
      const [first, second] = list.filter(canGoOn);
      const chosen = first?.yields === true ? (second ?? first) : first;
      return chosen === undefined ? [] : [chosen];
    });
    if (ready.length === 0) return null;
    for (;;) {
      const awake = ready.filter(({ rank }) => (this.delays[rank] as number) <= 0);
      for (const { rank } of ready)
        this.delays[rank] = Math.max(0, (this.delays[rank] as number) - 1);
      if (awake.length > 0) return awake[Math.floor(this.random() * awake.length)] as Wait;
    }
  }

  /**
   * Draws among waits that have failed: calls of failed groups fail on their own, within
   * {@link FAILURE_MS}. Values from outside the library may take longer.
   */
  private async drawFailed(): Promise<Wait | null> {
    const waits = this.waits.flat();
    const settled = waits.flatMap(({ value }) => (value === null ? [] : [value.catch(() => {})]));
    await Promise.race(
      waits.some(({ isOutside }) => isOutside) ? settled : [...settled, sleep(FAILURE_MS)],
    );
    await sleep(1); // other waits may fail with it
    return this.draw((wait) => wait.value !== null && wait.isSettled);
  }

  private async resume(wait: Wait): Promise<void> {
    const [outcome] = await Promise.allSettled([wait.value]);
    const list = this.waits[wait.rank] as Wait[];
    const at = list.indexOf(wait);
    if (at < 0) return; // the rank has ended
    list.splice(at, 1);
    for (const passed of list.slice(0, at)) passed.yields = false;
    this.active = wait.rank;
    this.away = setTimeout(() => this.endTurn(wait.rank), this.timeoutMs).unref();
    this.onTurn({ turn: this.turn++, rank: wait.rank, what: wait.what });
    if (outcome.status === 'fulfilled') wait.resume(outcome.value);
    else wait.fail(outcome.reason);
  }

  private endAll(): void {
    const lines = this.waits.map((list, rank) => {
      const [wait] = list;
      if (wait === undefined)
        return this.done[rank]
          ? `rank ${rank} has returned`
          : `rank ${rank} awaits something outside this library`;
      const behind = wait.value === null ? null : this.pending.describe(rank);
      const where = wait.where === '' ? '' : ` at ${wait.where}`;
      return `rank ${rank} waits in ${wait.what}${where}${behind === null ? '' : `: ${behind}`}`;
    });
    const error = new DistributedError(
      `deadlock: no rank can continue, in the order drawn from seed ${this.seed}.\n  ` +
        `${lines.join('\n  ')}`,
      { seed: this.seed, turn: this.turn },
    );
    this.deadlock ??= error;
    this.turn++;
    for (const list of this.waits) for (const wait of list.splice(0)) wait.fail(error);
  }
}

/** A generator of numbers from 0 to 1 (mulberry32). @internal */
export function randomFrom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}
