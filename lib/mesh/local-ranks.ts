/** Ranks as asynchronous functions of one process: each has devices with streams of its own, and its own random numbers. */
import { DistributedError } from '../core/errors.js';
import { Home } from '../core/home.js';
import { checkFunction, checkNumber, optionsOf } from '../core/options.js';
import { writer } from '../eager/submit.js';
import { ownGpu, withDevices } from './engines/device-engine.js';
import { LocalRegions, localEngines } from './engines/host-engine.js';
import { destroyProcessGroup, enterWorld } from './groups.js';
import { PendingCalls } from './pending-calls.js';
import { findContext, runAsRank } from './rank-context.js';
import { HashStore } from './stores/index.js';

/** What a rank runs. */
export type RankFunction<T> = (rank: number, worldSize: number) => T | Promise<T>;

/** @internal */
export interface LocalOptions {
  readonly timeoutMs: number;
}

interface World {
  readonly size: number;
  readonly store: HashStore;
  readonly regions: LocalRegions;
  readonly pending: PendingCalls;
  readonly homes: Home[];
  /** Ends every group of every rank. */
  readonly aborts: ((reason: string) => void)[];
}

/** As many as the groups of one host take. */
const MOST_RANKS = 64;

function checkLocal(worldSize: number, fn: unknown, options: LocalOptions): void {
  checkNumber('runLocalRanks', 'worldSize', worldSize, { from: 1, to: MOST_RANKS, whole: true });
  checkFunction('runLocalRanks', 'fn', fn);
  const { timeoutMs } = optionsOf('runLocalRanks', options, 'timeoutMs');
  checkNumber('runLocalRanks', 'timeoutMs', timeoutMs, { from: 1 });
}

/** Runs `fn` on every rank; resolves to what they return. @throws DistributedError naming the rank that failed first */
export async function runLocalRanks<T>(worldSize: number, fn: RankFunction<T>, options: LocalOptions): Promise<T[]> {
  checkLocal(worldSize, fn, options);
  const world: World = {
    size: worldSize,
    store: new HashStore(options.timeoutMs),
    regions: new LocalRegions(),
    pending: new PendingCalls(worldSize),
    homes: Array.from({ length: worldSize }, (_, rank) => new Home(`rank ${rank}`)),
    aborts: [],
  };
  let first: { rank: number; error: unknown } | null = null;
  const ranks = world.homes.map(async (home, rank) => {
    try {
      return await runAsRank(home, () => runRank(world, rank, fn, options));
    } catch (error) {
      first ??= { rank, error };
      throw error;
    }
  });
  const results = await Promise.allSettled(ranks);
  for (const home of world.homes) closeStreams(home);
  world.regions.drop();
  if (first !== null) throw failureOf(first);
  return results.map((result) => (result as PromiseFulfilledResult<T>).value);
}

async function runRank<T>(world: World, rank: number, fn: RankFunction<T>, { timeoutMs }: LocalOptions): Promise<T> {
  const { size, store, pending, regions } = world;
  const context = enterWorld({
    rank,
    worldSize: size,
    localRank: rank,
    home: world.homes[rank] as Home,
    store,
    factory: withDevices(localEngines(regions, timeoutMs), { backend: null, ranksHere: size, timeoutMs }),
    pending,
  });
  context.home.findCudaIndex = () => ownGpu(rank);
  world.aborts.push((reason) => {
    for (const group of context.groups) group.abort(reason);
  });
  try {
    return await fn(rank, size);
  } catch (error) {
    for (const abort of world.aborts) abort(`rank ${rank} failed: ${error instanceof Error ? error.message : String(error)}`);
    throw error;
  } finally {
    if (findContext() === context) destroyProcessGroup();
    else for (const group of context.groups) group.leave();
  }
}

function closeStreams(home: Home): void {
  for (const device of home.devices) if (device !== undefined && device.currentStream >= 0) writer.addon.streamDestroy(device.currentStream);
}

function failureOf({ rank, error }: { rank: number; error: unknown }): DistributedError {
  const text = error instanceof Error ? error.message : String(error);
  return new DistributedError(`rank ${rank} failed: ${text}`, { rank }, { cause: error });
}
