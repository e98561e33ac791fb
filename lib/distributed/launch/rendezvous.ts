/**
 * How processes become one world: each says through a store who it is, and all get the same list
 * back or the same error.
 */
import { randomBytes } from 'node:crypto';
import { readFileSync, readlinkSync, statSync } from 'node:fs';
import { hostname } from 'node:os';
import { ArgumentError, DistributedError, StoreError, TimeoutError } from '../../core/errors.js';
import { currentGenerator } from '../../core/random.js';
import { isRunning } from '../engines/shm-segments.js';
import { PrefixStore, type Store } from '../stores/index.js';
import type { StartFailure } from './start-failure.js';

const OP = 'initProcessGroup';
/** For others to read why a world failed, before its store goes. */
const LAST_WORDS_MS = 1_000;

/** What a rank says of itself. */
interface Member {
  readonly rank: number;
  readonly worldSize: number;
  /** Equal where ranks reach the same shared memory. */
  readonly host: string;
  readonly hostName: string;
  readonly pid: number;
  readonly backend: string;
  /** Where its random numbers stand. */
  readonly random: { readonly seed: number; readonly offset: number };
}

/** What all ranks of a world know of each other. @internal */
export interface Agreement {
  /** By rank; equal where ranks reach the same shared memory. */
  readonly hosts: readonly string[];
  readonly hostNames: readonly string[];
  readonly pids: readonly number[];
  /** Tells the run from others, in names. */
  readonly run: string;
  /** The same, as a number. */
  readonly token: number;
  /** Where draws on meshes start: as rank 0's. */
  readonly random: Member['random'];
}

type Outcome =
  | { readonly members: readonly Member[]; readonly run: string; readonly token: number }
  | Failure;

/** Why there will be no world. */
interface Failure {
  readonly error: string;
  /** Of ranks that did not come in time. */
  readonly absent?: Absent;
  /** How many ranks are there to read it; left out where that is not known. */
  readonly present?: number;
}

/** Ranks that did not come. */
interface Absent {
  /** The first of them, at most {@link NAMED_RANKS}: the world may be of any size. */
  readonly ranks: readonly number[];
  readonly count: number;
}

const NAMED_RANKS = 16;

/** What a process knows of the store. @internal */
export interface MeetingPlace {
  /** Whether it keeps the store: then it stays until the others have read why there is no world. */
  readonly keeper: boolean;
  /** Of the run: where a launcher of ours says which ranks have ended. */
  readonly launcher: Store | null;
  /** The environment's, if left out. */
  readonly told?: Told;
}

/** How the ranks were told where to meet, for errors. @internal */
export interface Told {
  /** What all have to have the same. */
  readonly same: string;
  /** What two runs have to have one each of. */
  readonly each: string;
  /** What an earlier run may have left behind. */
  readonly file: string | null;
}

/** @internal */
export const byEnvironment: Told = {
  same: 'MASTER_ADDR and MASTER_PORT',
  each: 'a MASTER_PORT',
  file: null,
};

/**
 * What ranks of one attempt have in common; the worlds that they make one after another are parts
 * of it, by number. @internal
 */
export const storeOfRun = (store: Store, attempt: number | string): Store =>
  new PrefixStore(`shardwise/${attempt}`, store);

/**
 * Meets the other ranks.
 *
 * @throws TimeoutError naming the ranks that did not come, DistributedError where ranks do not fit
 * together
 */
export async function meetRanks(
  store: Store,
  place: { rank: number; worldSize: number },
  backend: string,
  timeoutMs: number,
  { keeper, launcher, told = byEnvironment }: MeetingPlace,
): Promise<Agreement> {
  const deadline = Date.now() + timeoutMs;
  try {
    const outcome = await exchange(store, place, backend, { deadline, timeoutMs }, launcher, told);
    if ('error' in outcome) throw failureOf(outcome, place, timeoutMs);
    const { members, run, token } = outcome;
    const { random } = members[0] as Member;
    return {
      hosts: members.map((m) => m.host),
      hostNames: members.map((m) => m.hostName),
      pids: members.map((m) => m.pid),
      run,
      token,
      random,
    };
  } catch (error) {
    // Unless nobody is there to read why.
    if (keeper && !isAlone(error, place.worldSize)) await untilAllHaveRead(store, LAST_WORDS_MS);
    throw error;
  }
}

/**
 * By who keeps the store, before it may go: until all know what came of the meeting, or the time is
 * over. Who has died by now is missed elsewhere. @internal
 */
export async function untilAllHaveRead(store: Store, ms: number): Promise<void> {
  await store.wait(['all read'], ms).catch(() => {});
}

/** Whether no other rank has come. */
const isAlone = (error: unknown, worldSize: number): boolean =>
  error instanceof TimeoutError && error.details['missingCount'] === worldSize - 1;

function failureOf(
  { error, absent }: Failure,
  place: { rank: number; worldSize: number },
  timeoutMs: number,
): DistributedError | TimeoutError {
  if (absent === undefined) return new DistributedError(`${OP}: ${error}`, { op: OP, ...place });
  return new TimeoutError(`${OP}: ${error}`, {
    op: OP,
    ...place,
    missing: absent.ranks,
    missingCount: absent.count,
    timeoutMs,
  });
}

interface Patience {
  readonly deadline: number;
  readonly timeoutMs: number;
}

async function exchange(
  store: Store,
  { rank, worldSize }: { rank: number; worldSize: number },
  backend: string,
  patience: Patience,
  launcher: Store | null,
  told: Told,
): Promise<Outcome> {
  await claim(
    store,
    {
      rank,
      worldSize,
      host: ownHost(),
      hostName: hostname(),
      pid: process.pid,
      backend,
      random: currentGenerator().origin(),
    },
    told,
  );
  if (launcher !== null) await missEnded(store, launcher);
  if ((await store.add('come', 1)) === worldSize)
    await store.compareSet('outcome', '', JSON.stringify(await settle(store, told)));
  const outcome = await outcomeOf(store, { rank, worldSize }, patience, told);
  const readers = 'error' in outcome ? (outcome.present ?? worldSize) : worldSize;
  if ((await store.add('read', 1)) >= readers) await store.set('all read', '');
  return outcome;
}

/** Takes the rank's number and says who has it; what cannot go on becomes the outcome of all. */
async function claim(store: Store, own: Member, told: Told): Promise<void> {
  const { rank, worldSize } = own;
  const agreed = Number((await store.compareSet('world size', '', String(worldSize))).toString());
  if (agreed !== worldSize) {
    await refuse(
      store,
      ofEarlierRun(await membersOf(store), told) ??
        `rank ${rank} (process ${own.pid} on ${own.hostName}) has a world of ${worldSize} ranks, others one of ${agreed}. All need the same WORLD_SIZE.`,
    );
  }
  if ((await store.add(`rank ${rank}`, 1)) > 1) {
    const first = JSON.parse((await store.get(`member ${rank}`)).toString()) as Member;
    await refuse(
      store,
      ofEarlierRun([first], told) ??
        `rank ${rank} was taken twice: by process ${first.pid} on ${first.hostName} and by process ${own.pid} on ${own.hostName}. Each process needs a RANK of its own; two runs need ${told.each} each${told.file === null ? '' : `: if ${told.file} is of an earlier run, remove it`}.`,
    );
  }
  await store.set(`member ${rank}`, JSON.stringify(own));
  await store.append(PRESENT, `${rank} `);
}

/**
 * The ranks that have said who they are, one after another: so that nothing has to be asked of each
 * that there could be.
 */
const PRESENT = 'present';

async function presentRanks(store: Store): Promise<number[]> {
  if (!(await store.check([PRESENT]))) return [];
  const ranks = String(await store.get(PRESENT))
    .trim()
    .split(' ')
    .map(Number);
  return [...new Set(ranks)].sort((a, b) => a - b);
}

/** Those that have said who they are, by rank. */
async function membersOf(store: Store): Promise<Member[]> {
  const ranks = await presentRanks(store);
  return (await store.multiGet(ranks.map((rank) => `member ${rank}`))).map(
    (text) => JSON.parse(text.toString()) as Member,
  );
}

function absentFrom(present: readonly number[], worldSize: number): Absent {
  const here = new Set(present);
  const ranks: number[] = [];
  for (let rank = 0; rank < worldSize && ranks.length < NAMED_RANKS; rank++)
    if (!here.has(rank)) ranks.push(rank);
  return { ranks, count: worldSize - here.size };
}

/** Says so of a file in which somebody stands who has died: only a file outlives its run. */
function ofEarlierRun(members: readonly Member[], { file }: Told): string | null {
  if (file === null) return null;
  const host = ownHost();
  const dead = members.find((member) => member.host === host && !isRunning(member.pid));
  return dead === undefined
    ? null
    : `${file} is of an earlier run: remove it, or name another one. In it rank ${dead.rank} is process ${dead.pid}, which has ended.`;
}

/**
 * Nobody shall wait for a world that cannot become complete; one that is complete already stays.
 */
async function refuse(store: Store, error: string): Promise<never> {
  await store.compareSet('outcome', '', JSON.stringify({ error } satisfies Outcome));
  throw new DistributedError(`${OP}: ${error}`, { op: OP });
}

/**
 * Ranks that have ended without an error, by the launcher: that the others come too late to know,
 * and those that wait are told of.
 */
const ENDED = 'ended';
const neverComes = (rank: number): string =>
  `rank ${rank} has ended, with exit code 0, before it came here: the others would wait for it in vain. Does every rank call ${OP}?`;

/** Looks whether a rank that has not come has ended before. */
async function missEnded(store: Store, launcher: Store): Promise<void> {
  if (!(await launcher.check([ENDED]))) return;
  for (const rank of String(await launcher.get(ENDED))
    .trim()
    .split(' ')
    .map(Number)) {
    if (!(await store.check([`member ${rank}`]))) await refuse(store, neverComes(rank));
  }
}

/**
 * By the launcher, of a rank that has ended without an error: worlds that it has not come to will
 * never be complete. @internal
 */
export async function announceEnd(run: Store, rank: number, worldSize: number): Promise<void> {
  await run.append(ENDED, `${rank} `); // first: who comes from now on sees it
  for (let world = 0; ; world++) {
    const store = new PrefixStore(String(world), run);
    if (!(await store.check(['world size'])) || Number(await store.get('world size')) !== worldSize)
      return;
    if (!(await store.check([`member ${rank}`])))
      await store.compareSet(
        'outcome',
        '',
        JSON.stringify({ error: neverComes(rank) } satisfies Outcome),
      );
  }
}

/** By the last that comes. */
async function settle(store: Store, told: Told): Promise<Outcome> {
  const members = await membersOf(store);
  const earlier = ofEarlierRun(members, told);
  if (earlier !== null) return { error: earlier };
  const [first] = members as [Member];
  const other = members.find((m) => m.backend !== first.backend);
  if (other !== undefined)
    return {
      error: `rank 0 was given the backend ${first.backend}, rank ${other.rank} ${other.backend}. All ranks need the same.`,
    };
  return { members, run: randomBytes(6).toString('hex'), token: randomBytes(6).readUIntLE(0, 6) };
}

/**
 * Waits for it. One whose time is over first says so for all: without it there will be no world,
 * and rank 0 may take the store along.
 */
async function outcomeOf(
  store: Store,
  { rank, worldSize }: { rank: number; worldSize: number },
  { deadline, timeoutMs }: Patience,
  told: Told,
): Promise<Outcome> {
  try {
    await store.wait(['outcome'], Math.max(1, deadline - Date.now()));
  } catch (error) {
    if (!(error instanceof TimeoutError)) throw error;
    const present = await presentRanks(store);
    const absent = absentFrom(present, worldSize);
    const more =
      absent.count > absent.ranks.length ? ` and ${absent.count - absent.ranks.length} more` : '';
    const said = (whose: string): Failure => ({
      error: `rank ${absent.ranks.join(', ')}${more} of ${worldSize} did not come within ${timeoutMs} ms (${whose}). ${absent.count === 1 ? 'Was it' : 'Were they'} started, with the same ${told.same}?`,
      absent,
      present: present.length,
    });
    const forOthers = JSON.stringify(said(`by rank ${rank}, which has given up`));
    const agreed = String(await store.compareSet('outcome', '', forOthers));
    return agreed === forOthers ? said(`this is rank ${rank}`) : (JSON.parse(agreed) as Outcome);
  }
  return JSON.parse((await store.get('outcome')).toString()) as Outcome;
}

/**
 * Ranks reach the same shared memory if they have the same kernel, see each other as processes, and
 * have the same /dev/shm and user.
 */
function ownHost(): string {
  const parts = [
    () => readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim(),
    () => readlinkSync('/proc/self/ns/pid'),
    () => String(statSync('/dev/shm').dev),
  ];
  const read = parts.map((part) => {
    try {
      return part();
    } catch {
      return hostname();
    }
  });
  return [...read, process.getuid?.() ?? ''].join(' ');
}

/** @throws ArgumentError unless the rank is of the world */
export function checkPlace(rank: number, worldSize: number): void {
  const bad = (value: number, from: number): boolean =>
    !Number.isSafeInteger(value) || value < from;
  if (bad(worldSize, 1))
    throw new ArgumentError(
      `${OP}: expected worldSize to be a whole number from 1, got ${worldSize}`,
      { op: OP, argument: 'worldSize', value: worldSize },
    );
  if (bad(rank, 0) || rank >= worldSize) {
    throw new ArgumentError(
      `${OP}: expected a rank from 0 to ${worldSize - 1}, because the world has ${worldSize} ${worldSize === 1 ? 'rank' : 'ranks'}, got ${rank}`,
      {
        op: OP,
        argument: 'rank',
        value: rank,
        worldSize,
      },
    );
  }
}

/** Who keeps a store, for errors. @internal */
export type Keeper = 'rank 0' | 'the launcher' | null;

/**
 * What went wrong with the store while the ranks were starting, said as the program sees it.
 * @internal
 */
export function storeFailure(
  error: unknown,
  place: { rank: number; worldSize: number },
  where: string,
  timeoutMs: number,
  told: Told,
  keeper: Keeper,
  first: StartFailure | null = null,
): unknown {
  if (place.rank === 0 && keeper === 'rank 0') return error;
  const here = { op: OP, rank: place.rank, worldSize: place.worldSize };
  if (error instanceof StoreError && error.details['lost'] === true) {
    const who = keeper ?? 'the process that kept the store';
    const why =
      first === null
        ? `What ${who} has said last is the cause.`
        : `Rank ${first.rank} gave up first: ${first.text}`;
    return new DistributedError(
      `${OP}: ${who} has ended, or has left, while the ranks were starting, and its store at ${where} with it (this is rank ${place.rank} of ${place.worldSize}). ${why}`,
      { ...here, ranks: first !== null ? [first.rank] : keeper === 'rank 0' ? [0] : [] },
      { cause: error },
    );
  }
  if (
    !(error instanceof TimeoutError) ||
    error.details['missing'] !== undefined ||
    keeper !== 'rank 0'
  )
    return error;
  return new TimeoutError(
    `${OP}: rank ${place.rank} of ${place.worldSize} found no store at ${where} within ${timeoutMs} ms. Rank 0 keeps it: was it started, with the same ${told.same}?`,
    { ...here, missing: [0], missingCount: 1, timeoutMs },
    { cause: error },
  );
}
