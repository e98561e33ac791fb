/**
 * Faults that tests put into ranks that share a process: one is late, one is lost, two values come
 * in another order.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { ArgumentError, DistributedError } from '../../core/errors.js';
import type { TurnTaker } from '../../core/home.js';
import { checkNumber, checkOneOf, optionsOf, unexpected } from '../../core/options.js';
import { collectiveNames } from '../process-group/collective-names.js';

/** A fault of one rank at one place of its program. */
export interface RankFault {
  /** The rank that the fault hits. */
  readonly rank: number;
  /**
   * The how-manieth wait of the rank, 0 its start; or a call of a collective by its name, the first
   * unless `call` counts from 1.
   */
  readonly at: number | { readonly collective: string; readonly call?: number };
  /**
   * - `delay`: the rank does not go on for a while, from this wait or the next one behind this
   *   call.
   * - `lose`: the rank ends here, as a process that dies: what it calls throws, and its groups fail
   *   on the other ranks.
   * - `reorder`: what is waited for here comes after what is waited for next, if both wait at the
   *   same time.
   */
  readonly kind: 'delay' | 'lose' | 'reorder';
  /** Of a delay in an order drawn from a seed: how many turns others have meanwhile. */
  readonly turns?: number;
  /** Of a delay without a seed: how long it is, in milliseconds. */
  readonly ms?: number;
}

/** @throws ArgumentError */
export function checkFaults(
  op: string,
  faults: readonly RankFault[],
  worldSize: number,
  seeded: boolean,
): void {
  if (!Array.isArray(faults)) throw unexpected(op, 'faults', 'a list of faults', faults);
  for (const fault of faults) {
    const { rank, at, kind, turns, ms } = optionsOf(op, fault, 'rank at kind turns ms');
    checkNumber(op, 'the rank of a fault', rank, { from: 0, to: worldSize - 1, whole: true });
    checkOneOf(op, 'the kind of a fault', kind, ['delay', 'lose', 'reorder']);
    if (typeof at === 'object') {
      const { collective, call = 1 } = optionsOf(op, at, 'collective call');
      checkOneOf(op, 'the collective of a fault', collective, collectiveNames);
      checkNumber(op, 'the call of a fault', call, { from: 1, whole: true });
      if (kind === 'reorder')
        throw new ArgumentError(
          `${op}: a fault reorders waits: expected its place to be the number of one`,
          { op, fault },
        );
    } else checkNumber(op, 'the place of a fault', at, { from: 0, whole: true });
    const [used, unused, name] = seeded ? [turns, ms, 'turns'] : [ms, turns, 'ms'];
    if (unused !== undefined || (kind === 'delay') !== (used !== undefined)) {
      throw new ArgumentError(
        `${op}: a delay ${seeded ? 'in an order drawn from a seed' : 'without a seed'} takes ${name}, other faults nothing`,
        { op, fault },
      );
    }
    if (used !== undefined) checkNumber(op, `${name} of a fault`, used, { from: 1, whole: seeded });
  }
}

/** The faults of one rank: counts its calls and waits, and says which comes now. @internal */
export class FaultsOfRank {
  private readonly faults: readonly RankFault[];
  private readonly rank: number;
  private readonly onLost: () => void;
  private readonly calls = new Map<string, number>();
  private waits = 0;
  private readonly met = new Set<RankFault>();
  /** Set from then on. */
  lost: DistributedError | null = null;

  constructor(rank: number, faults: readonly RankFault[], onLost: () => void) {
    this.rank = rank;
    this.faults = faults.filter((fault) => fault.rank === rank);
    this.onLost = onLost;
  }

  /** @throws DistributedError where the rank is lost */
  atCall(name: string): RankFault | undefined {
    if (this.lost !== null) throw this.lost;
    if (this.faults.length === 0) return undefined;
    const count = (this.calls.get(name) ?? 0) + 1;
    this.calls.set(name, count);
    return this.found(
      name,
      ({ at }) => typeof at === 'object' && at.collective === name && (at.call ?? 1) === count,
    );
  }

  /** @throws DistributedError where the rank is lost */
  atWait(what: string): RankFault | undefined {
    if (this.lost !== null) throw this.lost;
    const number = this.waits++;
    return this.found(what, ({ at }) => at === number);
  }

  /** Those whose place the rank never came to, in words. */
  missed(): string[] {
    return this.faults
      .filter((fault) => !this.met.has(fault))
      .map(({ kind, at }) => {
        if (typeof at === 'number')
          return `${kind} of rank ${this.rank} at its wait ${at}: it had ${this.waits}, from 0`;
        const { collective, call = 1 } = at;
        return `${kind} of rank ${this.rank} at its call ${call} of ${collective}: it made ${this.calls.get(collective) ?? 0}`;
      });
  }

  private found(what: string, matches: (fault: RankFault) => boolean): RankFault | undefined {
    const fault = this.faults.find((each) => matches(each) && !this.met.has(each));
    if (fault !== undefined) this.met.add(fault);
    if (fault?.kind !== 'lose') return fault;
    this.lost = new DistributedError(
      `${what}: rank ${this.rank} was lost here, by a fault that was asked for`,
      { op: what, rank: this.rank, fault },
    );
    this.onLost();
    throw this.lost;
  }
}

/** Faults in ranks that run as they come. @internal */
export class FreeTurns implements TurnTaker {
  readonly ordered = false;
  private readonly faults: FaultsOfRank;
  private delay = 0;
  private waiting = 0;
  private readonly held: (() => void)[] = [];

  constructor(faults: FaultsOfRank) {
    this.faults = faults;
  }

  call(name: string): void {
    this.delay += this.faults.atCall(name)?.ms ?? 0;
  }

  mark(): () => boolean {
    return () => true;
  }

  async wait<T>(what: string, value: Promise<T> | null): Promise<T> {
    value?.catch(() => {}); // it may be left behind
    const fault = this.faults.atWait(what);
    const delay = this.delay + (fault?.ms ?? 0);
    this.delay = 0;
    this.waiting++;
    try {
      if (delay > 0) await sleep(delay);
      return await (value as Promise<T>);
    } finally {
      this.waiting--;
      if (fault?.kind === 'reorder' && this.waiting > 0)
        await new Promise<void>((resolve) => this.held.push(resolve));
      // Behind what this wait's own program does with its value.
      else for (const release of this.held.splice(0)) setImmediate(release);
    }
  }
}
