/**
 * Record of one `newGroup` or `DeviceMesh` call. All ranks must create the same groups and meshes
 * in the same order; this builds the error when they do not.
 */
import { createHash } from 'node:crypto';
import { type CollectiveDetails, CollectiveError } from '../../../core/errors.js';
import { identify } from '../../../core/unobserved-failures.js';
import type { NativeReason } from '../../../native/failure.js';
import { WORLD } from '../../engines/engine.js';

/**
 * A call of one rank that creates a group or a mesh. Plain data, sent between processes. @internal
 */
export interface GroupCreation {
  /** A rank of the world. */
  readonly rank: number;
  /** Counts the creations of the rank, from 1. */
  readonly number: number;
  /** The program's call, and its place. */
  readonly op: string;
  readonly where: string;
  /** The name of the group for errors: the new group, or the world for a mesh. */
  readonly group: string;
  /** A description of the group or mesh; and a shorter one, to follow that of another rank. */
  readonly what: string;
  readonly short: string;
  /** Creations of several ranks in one place … */
  readonly place: string;
  /** … are the same if their keys are equal. */
  readonly key: string;
  /** What all ranks must do. */
  readonly rule: string;
}

/** Two ranks created different groups or meshes in one place, from the side of one. @internal */
export interface CreationMismatch {
  readonly error: CollectiveError;
  /** The same for ranks that wait in the group. */
  readonly reason: NativeReason;
  /** The other rank, of the world. */
  readonly rank: number;
}

/** Compares the creations of all ranks. @internal */
export interface CreationLog {
  /** Records a creation before it begins. */
  record(creation: GroupCreation): void;
  /**
   * Publishes the creation that was recorded last. Calls `fail` if a mismatch with another rank is
   * found later.
   *
   * @throws CollectiveError if a mismatch is known already
   */
  publish(creation: GroupCreation, fail: (mismatch: CreationMismatch) => void): void;
  /**
   * The mismatch of the creation in a place, or of any creation (null); null if no comparison is
   * pending.
   */
  mismatchFound(place: string | null): Promise<CreationMismatch | null> | null;
  /** How far another rank has got; null if that cannot be known. */
  progressOf(rank: number): RankProgress | Promise<RankProgress | null> | null;
  /** The rank has left its world. */
  leave(): void;
}

/** How far a rank has got. @internal */
export interface RankProgress {
  /** Its last creations, in order. */
  readonly created: readonly GroupCreation[];
  /** Its last collective since then; null if that is not known. */
  readonly called: { readonly op: string; readonly where: string } | 'nothing' | null;
}

/** The number of creations that are kept of each rank. @internal */
export const KEPT_CREATIONS = 16;

/** A hash of the text. @internal */
export const digest = (text: string): string => createHash('sha256').update(text).digest('hex');

/** A short text itself, a long one (a list of thousands of ranks) as a hash. @internal */
export const shortKey = (text: string): string =>
  text.length <= 64 ? text : digest(text).slice(0, 32);

/** All ranks that find the mismatch compute the same id. */
function mismatchId(a: GroupCreation, b: GroupCreation): number {
  const pair = [a, b].map(({ rank, number, key }) => `${rank} ${number} ${key}`).sort();
  return Number.parseInt(digest([a.place, ...pair].join('\n')).slice(0, 13), 16) || 1;
}

/** How errors name a creation. @internal */
export const GROUP_CREATION = 'group creation';

/** `newGroup (group creation 2 of group "world")` @internal */
export const titleOf = ({ op, number }: GroupCreation): string =>
  `${op} (${GROUP_CREATION} ${number} of group "${WORLD}")`;

/** ` at train.ts:9`, or nothing. @internal */
export const placeText = (where: string): string => (where === '' ? '' : ` at ${where}`);

/** The error of the rank of `own` about a different creation of another rank. @internal */
export function mismatchOf(own: GroupCreation, other: GroupCreation): CreationMismatch {
  const aside = other.number === own.number ? '' : ` (its group creation ${other.number})`;
  const say = (reader: string): string =>
    `${titleOf(own)}: rank ${other.rank} created ` +
    `${other.what}${placeText(other.where)}${aside}, ${reader} ` +
    `${own.short}${placeText(own.where)}. ${own.rule}`;
  const calls = [own, other].map(({ rank, op, where }) => ({ rank, op, where }));
  const details: CollectiveDetails = {
    op: own.op,
    group: own.group,
    sequence: own.number,
    ranks: [other.rank],
    calls,
  };
  const error = new CollectiveError(say('this rank'), details);
  const identity = { id: mismatchId(own, other), namesCreations: true };
  identify(error, identity);
  const reason = { ...identity, message: say(`rank ${own.rank}`), ranks: [other.rank], calls };
  return { error, reason, rank: other.rank };
}
