/**
 * Why a group is not complete: what this rank made it by, and where the ranks stand that have not
 * come to it.
 */
import { type CollectiveDetails, CollectiveError } from '../../core/errors.js';
import { WORLD } from '../engines/engine.js';
import {
  type Difference,
  GROUP_MAKING,
  type Making,
  type MakingBoard,
  placeText,
  type Standing,
  titleOf,
} from './creation-log.js';
import type { RankContext } from './rank-context.js';

/** A store that does not answer within this is gone. */
const ANSWER_MS = 1500;
/** Of so many ranks it is told where they stand. */
const TOLD_RANKS = 4;

/** An error of a group that has never been complete. */
interface Missed {
  readonly error: CollectiveError;
  /** What made the group; null for that of all ranks. */
  readonly making: Making | null;
  /** The ranks that have not come and have not said where they are. */
  readonly silent: readonly number[];
}

function missedIn(context: RankContext, error: unknown): Missed | null {
  if (!(error instanceof CollectiveError) || isDifference(error)) return null;
  const { group, sequence = 0, ranks = [], calls = [] } = error.details;
  const silent = ranks.filter(
    (rank) =>
      rank !== context.rank && !calls.some((call) => call.rank === rank && call.where !== ''),
  );
  // Behind its first call a group is complete.
  if (silent.length === 0 || (group !== WORLD && sequence > 1)) return null;
  const making =
    group === WORLD
      ? null
      : ([...context.groups].findLast((each) => each.name === group)?.making ?? null);
  return { error, making, silent };
}

/**
 * The error of a collective, with what is known of groups and meshes that are not made alike, and
 * of ranks that are missed in a group which they may never have made; null where there is nothing
 * to add.
 *
 * @internal
 */
export function withStandings(context: RankContext, failure: unknown): Promise<unknown> | null {
  const { board } = context;
  const missed = board === null ? null : missedIn(context, failure);
  if (board === null || missed === null) return null;
  const { error, making, silent } = missed;
  const difference = board.differenceFound(making?.place ?? null);
  if (difference === null && making === null) return null;
  return inTime(async () => {
    const found = await difference;
    if (found !== null) addDifference(error, found);
    else if (making !== null)
      addStandings(
        error,
        making,
        await Promise.all(silent.slice(0, TOLD_RANKS).map((rank) => standingOf(board, rank))),
      );
  }).then(() => error);
}

/** As {@link withStandings}, where nobody can be asked: what this rank has made. @internal */
export function addOwnMaking(context: RankContext, failure: unknown): void {
  const missed = missedIn(context, failure);
  if (missed?.making) addStandings(missed.error, missed.making, []);
}

/** What it says is said already. */
const isDifference = ({ message }: Error): boolean => message.includes(GROUP_MAKING);

async function standingOf(
  board: MakingBoard,
  rank: number,
): Promise<[rank: number, Standing] | null> {
  const standing = await board.standingOf(rank);
  return standing === null ? null : [rank, standing];
}

/** A question that may stay without an answer. */
async function inTime(ask: () => Promise<void>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, ANSWER_MS);
  });
  await Promise.race([ask().catch(() => {}), late]);
  clearTimeout(timer);
}

function addDifference(error: CollectiveError, { error: { message, details } }: Difference): void {
  const own = error.details.calls ?? [];
  add(error, message, [
    ...own,
    ...(details.calls ?? []).filter(({ rank }) => !own.some((call) => call.rank === rank)),
  ]);
}

function addStandings(
  error: CollectiveError,
  making: Making,
  standings: readonly ([rank: number, Standing] | null)[],
): void {
  const known = standings.filter((each) => each !== null);
  const where = [
    `this rank made ${making.what} by ${titleOf(making)}${placeText(making.where)}`,
    ...known.map(([rank, standing]) => describe(rank, making, standing)),
  ];
  const calls = known.flatMap(([rank, { called, made }]) => {
    const last = called === null || called === 'nothing' ? made.at(-1) : called;
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
}

const sameOf = ({ place, key }: Making, { made }: Standing): Making | undefined =>
  made.findLast((each) => each.place === place && each.key === key);

function describe(rank: number, making: Making, standing: Standing): string {
  const { called } = standing;
  const same = sameOf(making, standing);
  const last = standing.made.at(-1);
  const behind =
    called === 'nothing'
      ? `, and has called nothing${last === undefined ? '' : ' since'}`
      : called === null
        ? ''
        : `, its last call was ${called.op}${placeText(called.where)}`;
  const by = ({ op, number, where }: Making): string =>
    `${op} (${GROUP_MAKING} ${number})${placeText(where)}`;
  const made =
    same !== undefined
      ? `made it as well, by ${by(same)}`
      : last === undefined
        ? 'made no group'
        : `not made it, its last was ${by(last)}`;
  return `rank ${rank} has ${made}${behind}`;
}
