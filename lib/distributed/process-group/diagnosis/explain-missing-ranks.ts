/**
 * Explains a timeout: which call created the group here, and how far the missing ranks have got.
 */
import { type CollectiveDetails, CollectiveError } from '../../../core/errors.js';
import { identify, identityOf, newFailureId } from '../../../core/unobserved-failures.js';
import { WORLD } from '../../engines/engine.js';
import type { RankContext } from '../rank-context.js';
import {
  type CreationLog,
  type CreationMismatch,
  GROUP_CREATION,
  type GroupCreation,
  placeText,
  type RankProgress,
  titleOf,
} from './creation-log.js';

/** A store that does not answer within this time is gone. */
const ANSWER_MS = 1500;
/** The progress of at most so many ranks is shown. */
const SHOWN_RANKS = 4;

/** An error of a group that was never complete. */
interface Missed {
  readonly error: CollectiveError;
  /** The call that created the group; null for the world. */
  readonly creation: GroupCreation | null;
  /** The missing ranks whose last call is unknown. */
  readonly silent: readonly number[];
}

function missedIn(context: RankContext, error: unknown): Missed | null {
  if (!(error instanceof CollectiveError) || identityOf(error)?.namesCreations) return null;
  const { group, sequence = 0, ranks = [], calls = [] } = error.details;
  const silent = ranks.filter(
    (rank) =>
      rank !== context.rank && !calls.some((call) => call.rank === rank && call.where !== ''),
  );
  // After its first call a group is complete.
  if (silent.length === 0 || (group !== WORLD && sequence > 1)) return null;
  const creation =
    group === WORLD
      ? null
      : ([...context.groups].findLast((each) => each.name === group)?.creation ?? null);
  return { error, creation, silent };
}

/**
 * Adds to the error of a collective what is known of mismatched groups and meshes, and of ranks
 * that may never have created the group; null if there is nothing to add.
 *
 * @internal
 */
export function explainMissingRanks(
  context: RankContext,
  failure: unknown,
): Promise<unknown> | null {
  const { creationLog } = context;
  const missed = creationLog === null ? null : missedIn(context, failure);
  if (creationLog === null || missed === null) return null;
  const { error, creation, silent } = missed;
  const mismatch = creationLog.mismatchFound(creation?.place ?? null);
  if (mismatch === null && creation === null) return null;
  return inTime(async () => {
    const found = await mismatch;
    if (found !== null) addMismatch(error, found);
    else if (creation !== null)
      addProgress(
        error,
        creation,
        await Promise.all(
          silent.slice(0, SHOWN_RANKS).map((rank) => progressOf(creationLog, rank)),
        ),
      );
  }).then(() => error);
}

/** Adds what this rank created, where other ranks cannot be asked. @internal */
export function addOwnCreation(context: RankContext, failure: unknown): void {
  const missed = missedIn(context, failure);
  if (missed?.creation) addProgress(missed.error, missed.creation, []);
}

async function progressOf(
  creationLog: CreationLog,
  rank: number,
): Promise<[rank: number, RankProgress] | null> {
  const progress = await creationLog.progressOf(rank);
  return progress === null ? null : [rank, progress];
}

/** Gives up after {@link ANSWER_MS}. */
async function inTime(ask: () => Promise<void>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, ANSWER_MS);
  });
  await Promise.race([ask().catch(() => {}), late]);
  clearTimeout(timer);
}

function addMismatch(
  error: CollectiveError,
  { error: { message, details } }: CreationMismatch,
): void {
  const own = error.details.calls ?? [];
  add(error, message, [
    ...own,
    ...(details.calls ?? []).filter(({ rank }) => !own.some((call) => call.rank === rank)),
  ]);
}

function addProgress(
  error: CollectiveError,
  creation: GroupCreation,
  progress: readonly ([rank: number, RankProgress] | null)[],
): void {
  const known = progress.filter((each) => each !== null);
  const where = [
    `this rank created ${creation.what} by ${titleOf(creation)}${placeText(creation.where)}`,
    ...known.map(([rank, progress]) => describe(rank, creation, progress)),
  ];
  const calls = known.flatMap(([rank, { called, created }]) => {
    const last = called === null || called === 'nothing' ? created.at(-1) : called;
    return last === undefined ? [] : [{ rank, op: last.op, where: last.where }];
  });
  add(error, where.join('; '), [
    ...(error.details.calls ?? []).filter(({ where }) => where !== ''),
    ...calls,
  ]);
}

function add(error: CollectiveError, text: string, calls: CollectiveDetails['calls']): void {
  error.message = `${error.message}\n  ${text}`;
  Object.assign(error.details, { calls });
  identify(error, { id: identityOf(error)?.id ?? newFailureId(), namesCreations: true });
}

const sameOf = (
  { place, key }: GroupCreation,
  { created }: RankProgress,
): GroupCreation | undefined =>
  created.findLast((each) => each.place === place && each.key === key);

function describe(rank: number, creation: GroupCreation, progress: RankProgress): string {
  const { called } = progress;
  const same = sameOf(creation, progress);
  const last = progress.created.at(-1);
  const behind =
    called === 'nothing'
      ? `, and has called nothing${last === undefined ? '' : ' since'}`
      : called === null
        ? ''
        : `, its last call was ${called.op}${placeText(called.where)}`;
  const by = ({ op, number, where }: GroupCreation): string =>
    `${op} (${GROUP_CREATION} ${number})${placeText(where)}`;
  const created =
    same !== undefined
      ? `created it too, by ${by(same)}`
      : last === undefined
        ? 'created no group'
        : `has not created it, its last creation was ${by(last)}`;
  return `rank ${rank} ${created}${behind}`;
}
