/**
 * The creation log of ranks of one process: a table that they share, so mismatches are found at
 * once.
 */
import {
  type CreationLog,
  type CreationMismatch,
  type GroupCreation,
  KEPT_CREATIONS,
  mismatchOf,
  type RankProgress,
} from './creation-log.js';
import type { PendingCalls } from './deadlock-detector.js';

interface Published {
  readonly creation: GroupCreation;
  readonly fail: (mismatch: CreationMismatch) => void;
}

/** @internal */
export class LocalCreationLog implements CreationLog {
  private readonly worldSize: number;
  private readonly pending: PendingCalls;
  /** By place: the creations there, until all ranks have published theirs. */
  private readonly places = new Map<string, Published[]>();
  private readonly createdBy: GroupCreation[][];
  /** By rank: its last call before its last creation. */
  private readonly calledBefore: (object | null)[] = [];

  constructor(worldSize: number, pending: PendingCalls) {
    this.worldSize = worldSize;
    this.pending = pending;
    this.createdBy = Array.from({ length: worldSize }, () => []);
  }

  record(creation: GroupCreation): void {
    const { rank } = creation;
    const own = this.createdBy[rank] as GroupCreation[];
    if (own.push(creation) > KEPT_CREATIONS) own.shift();
    this.calledBefore[rank] = this.pending.lastOf(rank);
  }

  publish(creation: GroupCreation, fail: (mismatch: CreationMismatch) => void): void {
    const { place, key } = creation;
    const others = this.places.get(place) ?? [];
    const other = others.find((each) => each.creation.key !== key)?.creation;
    if (other !== undefined)
      for (const each of others)
        each.fail(mismatchOf(each.creation, each.creation.key === key ? other : creation));
    if (others.length + 1 === this.worldSize) this.places.delete(place);
    else this.places.set(place, others);
    others.push({ creation, fail });
    if (other !== undefined) throw mismatchOf(creation, other).error;
  }

  /** Mismatches are found at once. */
  mismatchFound(): null {
    return null;
  }

  progressOf(rank: number): RankProgress {
    const last = this.pending.lastOf(rank);
    const called =
      last === null || last === this.calledBefore[rank]
        ? 'nothing'
        : { op: last.name, where: last.where };
    return { created: this.createdBy[rank] as GroupCreation[], called };
  }

  /** Other ranks may still need its creations. */
  leave(): void {}
}
