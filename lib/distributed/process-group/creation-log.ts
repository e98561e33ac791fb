/**
 * What all ranks of a world make alike, its groups and meshes: each such call as a record, and what
 * ranks hear that have made different ones.
 */
import { createHash } from 'node:crypto';
import { type CollectiveDetails, CollectiveError } from '../../core/errors.js';
import { factsOf } from '../../eager/collective-failure.js';
import { WORLD } from '../engines/engine.js';

/**
 * A call of one rank that makes a group or a mesh. Plain data, which processes tell each other.
 * @internal
 */
export interface Making {
  /** Of the world. */
  readonly rank: number;
  /** Counts the rank's calls that make groups, from 1. */
  readonly number: number;
  /** What the program called, and where. */
  readonly op: string;
  readonly where: string;
  /** What errors call the group: the one that is made, or that of all ranks, who make the mesh. */
  readonly group: string;
  /** What is made, in words; and shorter, behind another's of the same place. */
  readonly what: string;
  readonly short: string;
  /** Ranks that make something in one place … */
  readonly place: string;
  /** … make the same if this is equal. */
  readonly key: string;
  /** What all ranks have to do. */
  readonly rule: string;
}

/** Two ranks have made different things in one place, as one of them hears of it. @internal */
export interface Difference {
  readonly error: CollectiveError;
  /**
   * The same for ranks that wait in a group of it, with what programs read of it behind the words.
   */
  readonly reason: string;
  /** The other one, of the world. */
  readonly rank: number;
}

/** Where ranks see what the others make. @internal */
export interface MakingBoard {
  /** This rank is about to make something. */
  record(making: Making): void;
  /**
   * It makes what it has recorded last. Where that is found later to differ from another rank's,
   * `fail` is called.
   *
   * @throws CollectiveError where another rank is known to have made something else in its place
   */
  announce(making: Making, fail: (difference: Difference) => void): void;
  /**
   * What is found of the making in a place, or of any (null), that others may have made
   * differently; null where none is looked at.
   */
  differenceFound(place: string | null): Promise<Difference | null> | null;
  /** Where another rank stands; null where that cannot be known. */
  standingOf(rank: number): Standing | Promise<Standing | null> | null;
  /** The rank has left its world. */
  leave(): void;
}

/** Where a rank stands. @internal */
export interface Standing {
  /** Its last makings, in their order. */
  readonly made: readonly Making[];
  /** Its last collective since then; null where that is not known. */
  readonly called: { readonly op: string; readonly where: string } | 'nothing' | null;
}

/** So many makings of a rank are kept. @internal */
export const KEPT_MAKINGS = 16;

/** A number that only the text has. @internal */
export const digest = (text: string): string => createHash('sha256').update(text).digest('hex');

/**
 * Of a text, or of one as long as a list of thousands of ranks its number: each rank sends it.
 * @internal
 */
export const shortKey = (text: string): string =>
  text.length <= 64 ? text : digest(text).slice(0, 32);

/** What errors name the number of a making by. @internal */
export const GROUP_MAKING = 'group-making call';

/** `newGroup (group-making call 2 of group "world")` @internal */
export const titleOf = ({ op, number }: Making): string =>
  `${op} (${GROUP_MAKING} ${number} of group "${WORLD}")`;

/** ` at train.ts:9`, or nothing. @internal */
export const placeText = (where: string): string => (where === '' ? '' : ` at ${where}`);

/** What `own` rank hears of what another one has made. @internal */
export function differenceOf(own: Making, other: Making): Difference {
  const aside = other.number === own.number ? '' : ` (its group-making call ${other.number})`;
  const say = (reader: string): string =>
    `${titleOf(own)}: rank ${other.rank} has made ${other.what}${placeText(other.where)}${aside}, ${reader} ${own.short}${placeText(own.where)}. ${own.rule}`;
  const calls = [own, other].map(({ rank, op, where }) => ({ rank, op, where }));
  const details: CollectiveDetails = {
    op: own.op,
    group: own.group,
    sequence: own.number,
    ranks: [other.rank],
    calls,
  };
  return {
    error: new CollectiveError(say('this rank'), details),
    reason: say(`rank ${own.rank}`) + factsOf(details),
    rank: other.rank,
  };
}
