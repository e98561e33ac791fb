/**
 * Rendezvous: turns processes into one world. Each rank publishes who it is through the store; then
 * all ranks get the same list of members, or the same error.
 */
import { randomBytes } from 'node:crypto';
import { readFileSync, readlinkSync, statSync } from 'node:fs';
import { hostname } from 'node:os';
import { DistributedError, TimeoutError } from '../../core/errors.js';
import { currentGenerator } from '../../core/random.js';
import type { Agreement } from '../engines/engine.js';
import { isRunning } from '../engines/shm-segments.js';
import { PrefixStore, type Store } from '../stores/index.js';
import { environmentStoreText, type StoreText } from './start-failure.js';

const OP = 'initProcessGroup';
/** Time for the other ranks to read why a world failed, before its store closes. */
const LAST_WORDS_MS = 1_000;

/** What a rank publishes about itself. */
interface Member {
  readonly rank: number;
  readonly worldSize: number;
  /** Equal for ranks that reach the same shared memory. */
  readonly host: string;
  readonly hostName: string;
  readonly pid: number;
  readonly backend: string;
  /** The state of its random numbers. */
  readonly random: Agreement['random'];
}

type Outcome =
  | { readonly members: readonly Member[]; readonly run: string; readonly token: number }
  | Failure;

/** Why there will be no world. */
interface Failure {
  readonly error: string;
  /** The ranks that did not come, if the reason is a timeout. */
  readonly absent?: Absent;
  /** Number of ranks that will read the failure; absent if unknown. */
  readonly present?: number;
}

/** Ranks that did not come. */
interface Absent {
  /** The first of them, at most {@link NAMED_RANKS}, because the world may have any size. */
  readonly ranks: readonly number[];
  readonly count: number;
}

const NAMED_RANKS = 16;

/** @internal */
export interface RendezvousOptions {
  /** Whether this process serves the store. It then waits until the others have read a failure. */
  readonly keeper: boolean;
  /** The run's store, in which a launcher of this library publishes which ranks have ended. */
  readonly launcher: Store | null;
  /** How errors describe the store; by default as that of the environment. */
  readonly storeText?: StoreText;
}

/** A rank's number and the size of its world. */
interface Place {
  readonly rank: number;
  readonly worldSize: number;
}

/**
 * The part of a store that one attempt of a run uses; each of its worlds has a number. @internal
 */
export const storeOfRun = (store: Store, attempt: number | string): Store =>
  new PrefixStore(`shardwise/${attempt}`, store);

/**
 * Waits for all ranks of the world and returns what they know about each other.
 *
 * @throws TimeoutError naming the ranks that did not come, DistributedError if the ranks do not fit
 * together
 */
export async function rendezvous(
  store: Store,
  place: Place,
  backend: string,
  timeoutMs: number,
  { keeper, launcher, storeText = environmentStoreText }: RendezvousOptions,
): Promise<Agreement> {
  const deadline = Date.now() + timeoutMs;
  try {
    await register(store, place, backend, storeText);
    if (launcher !== null) await checkEndedRanks(store, launcher);
    const outcome = await agree(store, place, { deadline, timeoutMs }, storeText);
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
    if (keeper && !isAlone(error, place.worldSize)) await waitUntilRead(store, LAST_WORDS_MS);
    throw error;
  }
}

/**
 * Waits until all ranks know the outcome of the rendezvous, or the time is over. Called by the
 * process that serves the store, before it may end. @internal
 */
export async function waitUntilRead(store: Store, ms: number): Promise<void> {
  await store.wait(['all read'], ms).catch(() => {});
}

/** Whether no other rank has come. */
const isAlone = (error: unknown, worldSize: number): boolean =>
  error instanceof TimeoutError && error.details['missingCount'] === worldSize - 1;

function failureOf(
  { error, absent }: Failure,
  place: Place,
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

interface Deadline {
  readonly deadline: number;
  readonly timeoutMs: number;
}

/** The last rank to come decides the outcome; all ranks wait for it and count as readers. */
async function agree(
  store: Store,
  place: Place,
  deadline: Deadline,
  storeText: StoreText,
): Promise<Outcome> {
  const { worldSize } = place;
  if ((await store.add('come', 1)) === worldSize)
    await store.compareSet('outcome', '', JSON.stringify(await decide(store, storeText)));
  const outcome = await outcomeOf(store, place, deadline, storeText);
  const readers = 'error' in outcome ? (outcome.present ?? worldSize) : worldSize;
  if ((await store.add('read', 1)) >= readers) await store.set('all read', '');
  return outcome;
}

/** Takes the rank's number and publishes its member; a conflict becomes the outcome of all. */
async function register(
  store: Store,
  { rank, worldSize }: Place,
  backend: string,
  storeText: StoreText,
): Promise<void> {
  const own: Member = {
    rank,
    worldSize,
    host: ownHost(),
    hostName: hostname(),
    pid: process.pid,
    backend,
    random: currentGenerator().origin(),
  };
  const agreed = Number((await store.compareSet('world size', '', String(worldSize))).toString());
  if (agreed !== worldSize) {
    await refuse(
      store,
      earlierRunText(await membersOf(store), storeText) ??
        `rank ${rank} (process ${own.pid} on ${own.hostName}) has a world of ${worldSize} ranks, ` +
          `others one of ${agreed}. All need the same WORLD_SIZE.`,
    );
  }
  if ((await store.add(`rank ${rank}`, 1)) > 1) {
    const first = JSON.parse((await store.get(`member ${rank}`)).toString()) as Member;
    const { each, file } = storeText;
    await refuse(
      store,
      earlierRunText([first], storeText) ??
        `rank ${rank} was taken twice: by process ${first.pid} on ${first.hostName} and by ` +
          `process ${own.pid} on ${own.hostName}. Each process needs a RANK of its own; two runs ` +
          `need ${each} ` +
          `each${file === null ? '' : `: if ${file} is of an earlier run, remove it`}.`,
    );
  }
  await store.set(`member ${rank}`, JSON.stringify(own));
  await store.append(PRESENT, `${rank} `);
}

/** Key of the list of registered ranks, so that nobody has to query each possible rank. */
const PRESENT = 'present';

async function presentRanks(store: Store): Promise<number[]> {
  if (!(await store.check([PRESENT]))) return [];
  const ranks = String(await store.get(PRESENT))
    .trim()
    .split(' ')
    .map(Number);
  return [...new Set(ranks)].sort((a, b) => a - b);
}

/** The registered members, by rank. */
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

/** The error of a world that is not complete within a time. */
function absentText(
  { ranks, count }: Absent,
  worldSize: number,
  { same }: StoreText,
): (withinTime: string) => string {
  if (count === 0)
    return (withinTime) =>
      `all ${worldSize} ranks came, and the last of them did not start the world ${withinTime}: ` +
      'it has ended, or it is stopped.';
  const more = count > ranks.length ? ` and ${count - ranks.length} more` : '';
  return (withinTime) =>
    `rank ${ranks.join(', ')}${more} of ${worldSize} did not come ${withinTime}. ` +
    `${count === 1 ? 'Was it' : 'Were they'} started, with the same ${same}?`;
}

/** The error of a file with a dead member, which is left from an earlier run; null without one. */
function earlierRunText(members: readonly Member[], { file }: StoreText): string | null {
  if (file === null) return null;
  const host = ownHost();
  const dead = members.find((member) => member.host === host && !isRunning(member.pid));
  return dead === undefined
    ? null
    : `${file} is of an earlier run: remove it, or name another one. In it rank ${dead.rank} is ` +
        `process ${dead.pid}, which has ended.`;
}

/**
 * Publishes the error as the outcome, unless the world is complete, so that nobody waits for it.
 */
async function refuse(store: Store, error: string): Promise<never> {
  await store.compareSet('outcome', '', JSON.stringify({ error } satisfies Outcome));
  throw new DistributedError(`${OP}: ${error}`, { op: OP });
}

/** Key under which the launcher publishes the ranks that have ended without an error. */
const ENDED = 'ended';
const endedEarlyText = (rank: number): string =>
  `rank ${rank} has ended, with exit code 0, before it called ${OP}: the others would wait ` +
  `forever. Does every rank call ${OP}?`;

/** @throws DistributedError if a rank has ended before it came */
async function checkEndedRanks(store: Store, launcher: Store): Promise<void> {
  if (!(await launcher.check([ENDED]))) return;
  for (const rank of String(await launcher.get(ENDED))
    .trim()
    .split(' ')
    .map(Number)) {
    if (!(await store.check([`member ${rank}`]))) await refuse(store, endedEarlyText(rank));
  }
}

/**
 * Publishes that a rank has ended without an error: worlds that it has not joined will never be
 * complete. Called by the launcher. @internal
 */
export async function publishEnd(run: Store, rank: number, worldSize: number): Promise<void> {
  await run.append(ENDED, `${rank} `); // first, so that ranks that come from now on see it
  for (let world = 0; ; world++) {
    const store = new PrefixStore(String(world), run);
    if (!(await store.check(['world size'])) || Number(await store.get('world size')) !== worldSize)
      return;
    if (!(await store.check([`member ${rank}`])))
      await store.compareSet(
        'outcome',
        '',
        JSON.stringify({ error: endedEarlyText(rank) } satisfies Outcome),
      );
  }
}

/** The outcome once all ranks have come. */
async function decide(store: Store, storeText: StoreText): Promise<Outcome> {
  const members = await membersOf(store);
  const earlier = earlierRunText(members, storeText);
  if (earlier !== null) return { error: earlier };
  const [first] = members as [Member];
  const other = members.find((m) => m.backend !== first.backend);
  if (other !== undefined)
    return {
      error:
        `rank 0 was given the backend ${first.backend}, rank ${other.rank} ${other.backend}. All ` +
        'ranks need the same.',
    };
  return { members, run: randomBytes(6).toString('hex'), token: randomBytes(6).readUIntLE(0, 6) };
}

/**
 * Waits for the outcome. The first rank that times out publishes a failure for all: without it
 * there is no world, and rank 0 may close the store.
 */
async function outcomeOf(
  store: Store,
  { rank, worldSize }: Place,
  { deadline, timeoutMs }: Deadline,
  storeText: StoreText,
): Promise<Outcome> {
  try {
    await store.wait(['outcome'], Math.max(1, deadline - Date.now()));
  } catch (error) {
    if (!(error instanceof TimeoutError)) throw error;
    const present = await presentRanks(store);
    const absent = absentFrom(present, worldSize);
    const text = absentText(absent, worldSize, storeText);
    const failure = (reporter: string): Failure => ({
      error: text(`within ${timeoutMs} ms (${reporter})`),
      absent,
      present: present.length,
    });
    const forOthers = JSON.stringify(failure(`by rank ${rank}, which has given up`));
    const agreed = String(await store.compareSet('outcome', '', forOthers));
    return agreed === forOthers ? failure(`this is rank ${rank}`) : (JSON.parse(agreed) as Outcome);
  }
  return JSON.parse((await store.get('outcome')).toString()) as Outcome;
}

/**
 * A text that is equal for ranks with the same shared memory: they have the same kernel, pid
 * namespace, /dev/shm and user.
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
