/**
 * Runs `local` ranks: asynchronous functions of one process, each with its own devices, streams and
 * random numbers.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { DeviceType } from '../../core/device.js';
import { DistributedError } from '../../core/errors.js';
import { checkFunction, checkNumber, checkTimeout, optionsOf } from '../../core/options.js';
import { currentGenerator, Generator, seedByChance } from '../../core/random.js';
import { RankRuntime } from '../../core/rank-runtime.js';
import { reportUse } from '../../core/unrepeatable.js';
import { writer } from '../../eager/submit.js';
import type { NativeReason } from '../../native/failure.js';
import { ownGpu, withDevices } from '../engines/cuda-engine.js';
import type { BackendName, EngineFactory } from '../engines/engine.js';
import { GlooWorld } from '../engines/gloo-engine.js';
import { streamDone } from '../engines/native-engine.js';
import { LocalRegions, localEngines } from '../engines/shm-engine.js';
import { abortReason } from '../process-group/abort-reason.js';
import { PendingCalls } from '../process-group/diagnosis/deadlock-detector.js';
import { LocalCreationLog } from '../process-group/diagnosis/local-creation-log.js';
import { checkExit, exitReason } from '../process-group/exit-check.js';
import { destroyProcessGroup, enterWorld, leaveGroups } from '../process-group/new-group.js';
import { findContext, type RankContext, runAsRank } from '../process-group/rank-context.js';
import { abortGroups, quietly } from './abort-groups.js';
import { rankEnds } from './await-ranks.js';
import { checkFaults, FaultsOfRank, FreeTurns, type RankFault } from './fault-injection.js';
import { LocalStore, LocalTable } from './local-store.js';
import { RankSchedule, type RankTurn, randomFrom } from './scheduler.js';

/** The program of a rank. */
export type RankFunction<T> = (rank: number, worldSize: number) => T | Promise<T>;

/** @internal */
export interface LocalOptions {
  /** Timeout of collectives and of the store, in milliseconds. */
  readonly timeoutMs: number;
  /**
   * Runs one rank at a time, in an order drawn from the seed, and reports deadlocks immediately.
   * Also seeds the random numbers, unless the program has.
   */
  readonly seed?: number;
  readonly faults?: readonly RankFault[];
  /** The backend of GPU tensors; chosen if left out. */
  readonly deviceBackend?: BackendName;
  /** The devices that the program named backends for, if any; other devices are refused. */
  readonly named?: readonly DeviceType[] | null;
  /** The backend of CPU tensors: `'gloo'` over loopback, or the memory of the process. */
  readonly hostBackend?: BackendName;
  /** Called with every turn, if there is a seed. */
  readonly onTurn?: (turn: RankTurn) => void;
}

interface World {
  readonly size: number;
  readonly table: LocalTable;
  readonly regions: LocalRegions;
  readonly pending: PendingCalls;
  readonly creationLog: LocalCreationLog;
  readonly schedule: RankSchedule | null;
  readonly runtimes: RankRuntime[];
  readonly random: RankRandom;
  /** The gloo connections of each rank, if the backend is gloo. */
  gloo: readonly GlooWorld[];
  /** By rank: aborts all of its groups. */
  readonly aborts: ((reason: NativeReason, failed: number | null) => void)[];
  /** By rank. */
  readonly faults: readonly FaultsOfRank[];
  /** The first failure. */
  first: { readonly rank: number; readonly error: unknown } | null;
}

/** The public function, for errors. */
const OP = 'launch';
/** The limit of groups of one host. */
const MOST_RANKS = 64;
/** Grace period of the other ranks after a failure; a shorter timeout shortens it. */
const GRACE_MS = 5_000;
/** Time for a failed rank to join the groups in which it reports its failure. */
const JOIN_MS = 100;

function checkLocal(worldSize: number, fn: unknown, options: LocalOptions): void {
  checkNumber(OP, 'worldSize', worldSize, { from: 1, to: MOST_RANKS, whole: true });
  checkFunction(OP, 'fn', fn);
  const { timeoutMs, seed, faults } = optionsOf(OP, options);
  checkTimeout(OP, timeoutMs, { from: 1 });
  if (seed !== undefined) checkNumber(OP, 'seed', seed, { from: 0, whole: true });
  if (faults !== undefined) checkFaults(OP, faults, worldSize, seed !== undefined);
}

/** The initial random state of the ranks. */
interface RankRandom {
  /** By rank. */
  readonly generators: readonly Generator[];
  /** Where draws on meshes start, on all ranks. */
  readonly together: { readonly seed: number; readonly offset: number };
}

/**
 * The state of the main program if that is seeded, as in processes, which run the program again.
 * Otherwise random, drawn from the seed of the run if there is one.
 */
function rankRandom(worldSize: number, seed: number | null): RankRandom {
  const program = currentGenerator();
  const ranks = Array.from({ length: worldSize });
  if (program.isSeeded) {
    const together = program.origin();
    return { generators: ranks.map(() => Generator.at(together)), together };
  }
  const chance = seed === null ? Math.random : randomFrom(seed);
  return {
    generators: ranks.map(() => Generator.unseeded(seedByChance(chance))),
    together: { seed: seedByChance(chance), offset: 0 },
  };
}

function newWorld(size: number, { seed, onTurn, timeoutMs, faults = [] }: LocalOptions): World {
  const pending = new PendingCalls(size);
  const random = rankRandom(size, seed ?? null);
  const world: World = {
    size,
    pending,
    creationLog: new LocalCreationLog(size, pending),
    table: new LocalTable(),
    regions: new LocalRegions(size),
    schedule:
      seed === undefined
        ? null
        : new RankSchedule(size, seed, pending, {
            timeoutMs,
            ...(onTurn === undefined ? {} : { onTurn }),
          }),
    runtimes: random.generators.map(
      (generator, rank) => new RankRuntime(`rank ${rank}`, generator),
    ),
    random,
    gloo: [],
    aborts: [],
    // The loss of a rank is reported like the death of a process: in the groups of the rank.
    faults: Array.from(
      { length: size },
      (_, rank) =>
        new FaultsOfRank(rank, faults, () =>
          world.aborts[rank]?.(abortReason(`rank ${rank} was lost`), rank),
        ),
    ),
    first: null,
  };
  return world;
}

function connectByGloo({ runtimes, table, size }: World, timeoutMs: number): Promise<GlooWorld[]> {
  const open = (runtime: RankRuntime, rank: number) =>
    GlooWorld.open({
      op: OP,
      store: new LocalStore(table, runtime, timeoutMs),
      rank,
      worldSize: size,
      address: '127.0.0.1',
      timeoutMs,
    });
  return Promise.all(
    runtimes.map((runtime, rank) => runAsRank(runtime, () => open(runtime, rank))),
  );
}

/**
 * Runs `fn` on every rank; resolves to the results. @throws DistributedError naming the rank that
 * failed first
 */
export async function runLocalRanks<T>(
  worldSize: number,
  fn: RankFunction<T>,
  options: LocalOptions,
): Promise<T[]> {
  reportUse(OP);
  checkLocal(worldSize, fn, options);
  const world = newWorld(worldSize, options);
  if (options.hostBackend === 'gloo' && worldSize > 1)
    world.gloo = await connectByGloo(world, options.timeoutMs);
  const ranks = world.runtimes.map(async (runtime, rank) => {
    try {
      return await runAsRank(runtime, () => runRank(world, rank, fn, options));
    } catch (error) {
      world.first ??= { rank, error };
      throw error;
    }
  });
  const ends = await rankEnds(ranks, () => world.table.ended !== null, graceOf(options));
  const cleanup = Promise.allSettled(ranks).then(() => cleanUp(world));
  if (ends.why === 'ended') await cleanup;
  else abandon(world, ends.open, cleanup);
  if (ends.why === 'idle') throw stuckError(world, ends.open);
  if (world.first !== null)
    throw failureOf(world.first, world.schedule, ends.open, graceOf(options));
  const results = await Promise.all(ranks);
  checkMissed(world.faults.flatMap((each) => each.missed()));
  return results;
}

/**
 * @throws DistributedError for faults that no rank reached: the test that injects them would test
 * nothing
 */
function checkMissed(missed: readonly string[]): void {
  if (missed.length === 0) return;
  const what =
    missed.length === 1
      ? 'no rank reached an injected fault'
      : `no rank reached ${missed.length} injected faults`;
  throw new DistributedError(
    `${OP}: ${what}, and all ranks ended without an error.\n  ${missed.join('\n  ')}`,
    { op: OP, missed },
  );
}

const graceOf = ({ timeoutMs }: LocalOptions): number => Math.min(timeoutMs, GRACE_MS);

/** Frees the world once all ranks have ended; an abandoned rank may run until then. */
function cleanUp(world: World): void {
  for (const gloo of world.gloo) gloo.leave();
  for (const runtime of world.runtimes) closeStreams(runtime);
  world.regions.drop();
}

/** Aborts the groups of ranks that did not end; their later output is ignored. */
function abandon(world: World, open: readonly number[], cleanup: Promise<void>): void {
  cleanup.catch(() => {});
  const reason = `${who(open)} did not end`;
  endWorld(world, abortReason(reason), null);
  world.schedule?.end(new DistributedError(`${OP} is over: ${reason}`, { op: OP, ranks: open }));
}

const who = (ranks: readonly number[]): string =>
  `${ranks.length === 1 ? 'rank' : 'ranks'} ${ranks.join(', ')}`;

/** The error of ranks that await a promise nobody will resolve; Node would exit silently. */
function stuckError({ first }: World, open: readonly number[]): DistributedError {
  const others =
    first?.error instanceof Error ? ` Another rank failed: ${first.error.message}` : '';
  return new DistributedError(
    `${OP}: ${who(open)} awaited a promise that never resolves: nothing else is ` +
      `left to run.${others}`,
    { op: OP, ranks: open },
    first === null ? {} : { cause: first.error },
  );
}

/** Enters the world as a rank, with engines for the devices that it may use. */
function enterAs(world: World, rank: number, options: LocalOptions): RankContext {
  const { size, table, pending, regions } = world;
  const runtime = world.runtimes[rank] as RankRuntime;
  const { timeoutMs, hostBackend, deviceBackend = null, named = null } = options;
  const store = new LocalStore(table, runtime, timeoutMs);
  const gloo = world.gloo[rank];
  const memory = localEngines(regions, timeoutMs);
  const here: EngineFactory = (plan, device) =>
    (gloo === undefined || plan.ranks.length === 1 ? memory : gloo.engines())(plan, device);
  const host = Object.assign(here, {
    backendFor: () => (hostBackend === 'gloo' ? hostBackend : 'shm'),
  });
  const factory = withDevices(host, {
    backend: deviceBackend,
    ranksHere: size,
    sharesProcess: size > 1,
    timeoutMs,
  });
  return enterWorld({
    rank,
    worldSize: size,
    localRank: rank,
    runtime,
    store,
    factory,
    pending,
    creationLog: world.creationLog,
    random: world.random.together,
    named,
  });
}

async function runRank<T>(
  world: World,
  rank: number,
  fn: RankFunction<T>,
  options: LocalOptions,
): Promise<T> {
  const { size, schedule } = world;
  const { timeoutMs, faults = [] } = options;
  const context = enterAs(world, rank, options);
  const { runtime } = context;
  runtime.findCudaIndex = () => ownGpu(rank);
  runtime.timeoutMs = timeoutMs;
  world.aborts[rank] = (reason, failed) => abortGroups(context, reason, failed);
  const ownFaults = world.faults[rank] as FaultsOfRank;
  runtime.turns =
    schedule?.turnsOf(rank, ownFaults) ?? (faults.length > 0 ? new FreeTurns(ownFaults) : null);
  let hasLeft = false;
  const leave = (): void => {
    if (hasLeft) return;
    hasLeft = true;
    runtime.turns = null;
    try {
      if (findContext() === context) destroyProcessGroup();
      else leaveGroups(context.groups);
    } finally {
      schedule?.finish(rank);
    }
  };
  try {
    if (runtime.turns !== null) await runtime.turns.wait('start', null, () => true);
    const result = await fn(rank, size);
    if (ownFaults.lossError !== null) throw ownFaults.lossError;
    leave();
    await checkExit(runtime, OP);
    return result;
  } catch (error) {
    world.first ??= { rank, error };
    // A failure of the cleanup must not hide the error.
    if (ownFaults.lossError === null) await endWorldFor(world, rank, error).catch(() => {});
    throw error;
  } finally {
    quietly(leave);
  }
}

function endWorld(world: World, reason: NativeReason, failed: number | null): void {
  world.aborts.forEach((abort) => {
    abort(reason, failed);
  });
  world.table.end(reason.message);
}

/**
 * Ends the world after a rank failed. The rank's own groups are aborted first, so that their errors
 * name this rank.
 */
async function endWorldFor(world: World, rank: number, error: unknown): Promise<void> {
  const runtime = world.runtimes[rank] as RankRuntime;
  const reason = exitReason(
    runtime,
    rank,
    `rank ${rank} failed: ${error instanceof Error ? error.message : String(error)}`,
    error,
  );
  world.aborts[rank]?.(reason, rank);
  const stream = runtime.devices[0]?.currentStream ?? -1;
  // A group that the rank had not called yet is joined on its stream.
  if (stream >= 0) await Promise.race([streamDone(stream, OP).catch(() => {}), sleep(JOIN_MS)]);
  endWorld(world, reason, rank);
}

function closeStreams(runtime: RankRuntime): void {
  for (const device of runtime.devices)
    if (device !== undefined && device.currentStream >= 0)
      writer.addon.streamDestroy(device.currentStream);
}

function failureOf(
  { rank, error }: { rank: number; error: unknown },
  schedule: RankSchedule | null,
  open: readonly number[],
  graceMs: number,
): DistributedError {
  if (error instanceof DistributedError && error === schedule?.deadlock) return error;
  const text = error instanceof Error ? error.message : String(error);
  const order = schedule === null ? '' : ` (in the order drawn from seed ${schedule.seed})`;
  const behind =
    open.length === 0
      ? ''
      : `\n  ${who(open)} had not ended ${graceMs} ms later, and ` +
        `${open.length === 1 ? 'was' : 'were'} abandoned`;
  const details = {
    rank,
    ...(schedule === null ? {} : { seed: schedule.seed }),
    ...(open.length === 0 ? {} : { leftBehind: open }),
  };
  return new DistributedError(`rank ${rank} failed${order}: ${text}${behind}`, details, {
    cause: error,
  });
}
