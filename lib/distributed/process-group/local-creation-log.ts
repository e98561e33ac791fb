/** What ranks of one process make, as the others see it: at once, in a table that they share. */
import {
  type Difference,
  differenceOf,
  KEPT_MAKINGS,
  type Making,
  type MakingBoard,
  type Standing,
} from './creation-log.js';
import type { PendingCalls } from './deadlock-detector.js';

interface Made {
  readonly making: Making;
  readonly fail: (difference: Difference) => void;
}

/** @internal */
export class LocalBoard implements MakingBoard {
  private readonly worldSize: number;
  private readonly pending: PendingCalls;
  /** By place: who has made what there, until all ranks have. */
  private readonly places = new Map<string, Made[]>();
  private readonly madeBy: Making[][];
  /** By rank: what it had called last before its last making. */
  private readonly calledBefore: (object | null)[] = [];

  constructor(worldSize: number, pending: PendingCalls) {
    this.worldSize = worldSize;
    this.pending = pending;
    this.madeBy = Array.from({ length: worldSize }, () => []);
  }

  record(making: Making): void {
    const { rank } = making;
    const own = this.madeBy[rank] as Making[];
    if (own.push(making) > KEPT_MAKINGS) own.shift();
    this.calledBefore[rank] = this.pending.lastOf(rank);
  }

  announce(making: Making, fail: (difference: Difference) => void): void {
    const { place, key } = making;
    const others = this.places.get(place) ?? [];
    const other = others.find((each) => each.making.key !== key)?.making;
    if (other !== undefined)
      for (const each of others)
        each.fail(differenceOf(each.making, each.making.key === key ? other : making));
    if (others.length + 1 === this.worldSize) this.places.delete(place);
    else this.places.set(place, others);
    others.push({ making, fail });
    if (other !== undefined) throw differenceOf(making, other).error;
  }

  /** All are found at once. */
  differenceFound(): null {
    return null;
  }

  standingOf(rank: number): Standing {
    const last = this.pending.lastOf(rank);
    const called =
      last === null || last === this.calledBefore[rank]
        ? 'nothing'
        : { op: last.name, where: last.where };
    return { made: this.madeBy[rank] as Making[], called };
  }

  /** The others still hear what it has made. */
  leave(): void {}
}
