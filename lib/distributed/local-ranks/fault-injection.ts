/** Injects faults into `local` ranks: delays, losses of ranks, and reordered results. */
import { setTimeout as sleep } from 'node:timers/promises';
import { ArgumentError, DistributedError } from '../../core/errors.js';
import { checkNumber, checkOneOf, optionsOf, unexpected } from '../../core/options.js';
import type { TurnTaker } from '../../core/rank-runtime.js';
import { collectiveNames } from '../process-group/collectives.js';

/** A fault of one rank at one point of its program. */
export interface RankFault {
  /** The rank that the fault hits. */
  readonly rank: number;
  /**
   * The n-th wait of the rank, where 0 is its start; or the n-th `call` of a collective, by default
   * the first, counted from 1.
   */
  readonly at: number | { readonly collective: string; readonly call?: number };
  /**
   * - `delay`: the rank pauses at this wait, or at the first wait after this call.
   * - `lose`: the rank ends here like a process that dies. Its later calls throw, and its groups
   *   fail on the other ranks.
   * - `reorder`: this wait resolves after the rank's next wait, if both are open at the same time.
   */
  readonly kind: 'delay' | 'lose' | 'reorder';
  /** Length of a delay with a seed, in turns of other ranks. */
  readonly turns?: number;
  /** Length of a delay without a seed, in milliseconds. */
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
          `${op}: a fault of kind 'reorder' needs the number of a wait as 'at', got a collective`,
          { op, fault },
        );
    } else checkNumber(op, 'the wait of a fault', at, { from: 0, whole: true });
    const [used, unused, name] = seeded ? [turns, ms, 'turns'] : [ms, turns, 'ms'];
    if (unused !== undefined || (kind === 'delay') !== (used !== undefined)) {
      throw new ArgumentError(
        `${op}: a delay ${seeded ? 'with a seed' : 'without a seed'} takes '${name}'; other ` +
          "faults take neither 'turns' nor 'ms'",
        { op, fault },
      );
    }
    if (used !== undefined) checkNumber(op, `${name} of a fault`, used, { from: 1, whole: seeded });
  }
}

/** The faults of one rank. Counts its calls and waits, and finds the fault for each. @internal */
export class FaultsOfRank {
  private readonly faults: readonly RankFault[];
  private readonly rank: number;
  private readonly onLoss: () => void;
  private readonly calls = new Map<string, number>();
  private waits = 0;
  private readonly injected = new Set<RankFault>();
  /** The error of all calls after the rank was lost. */
  lossError: DistributedError | null = null;

  constructor(rank: number, faults: readonly RankFault[], onLoss: () => void) {
    this.rank = rank;
    this.faults = faults.filter((fault) => fault.rank === rank);
    this.onLoss = onLoss;
  }

  /** @throws DistributedError once the rank is lost */
  atCall(name: string): RankFault | undefined {
    if (this.lossError !== null) throw this.lossError;
    if (this.faults.length === 0) return undefined;
    const count = (this.calls.get(name) ?? 0) + 1;
    this.calls.set(name, count);
    return this.found(
      name,
      ({ at }) => typeof at === 'object' && at.collective === name && (at.call ?? 1) === count,
    );
  }

  /** @throws DistributedError once the rank is lost */
  atWait(what: string): RankFault | undefined {
    if (this.lossError !== null) throw this.lossError;
    const number = this.waits++;
    return this.found(what, ({ at }) => at === number);
  }

  /** Describes the faults whose wait or call the rank never reached. */
  missed(): string[] {
    return this.faults
      .filter((fault) => !this.injected.has(fault))
      .map(({ kind, at }) => {
        if (typeof at === 'number')
          return `${kind} of rank ${this.rank} at its wait ${at}: it had ${this.waits}, from 0`;
        const { collective, call = 1 } = at;
        return (
          `${kind} of rank ${this.rank} at its call ${call} of ${collective}: it made ` +
          `${this.calls.get(collective) ?? 0}`
        );
      });
  }

  private found(what: string, matches: (fault: RankFault) => boolean): RankFault | undefined {
    const fault = this.faults.find((each) => matches(each) && !this.injected.has(each));
    if (fault !== undefined) this.injected.add(fault);
    if (fault?.kind !== 'lose') return fault;
    this.lossError = new DistributedError(
      `${what}: rank ${this.rank} was lost here by an injected fault`,
      { op: what, rank: this.rank, fault },
    );
    this.onLoss();
    throw this.lossError;
  }
}

/** Injects faults without a seed, in the order in which ranks run anyway. @internal */
export class FreeTurns implements TurnTaker {
  readonly ordered = false;
  private readonly faults: FaultsOfRank;
  private delay = 0;
  private waiting = 0;
  private readonly reordered: (() => void)[] = [];

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
    value?.catch(() => {}); // the rank may never await it
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
        await new Promise<void>((resolve) => this.reordered.push(resolve));
      // Later than what the rank does with this value.
      else for (const release of this.reordered.splice(0)) setImmediate(release);
    }
  }
}
