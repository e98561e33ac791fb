/**
 * Finds the world that this process is a rank of: its rank and size, the store, and what the
 * rendezvous agrees on.
 */
import { TimeoutError } from '../../core/errors.js';
import { currentGenerator } from '../../core/random.js';
import type { Agreement } from '../engines/engine.js';
import { FileStore, HashStore, PrefixStore, type Store, TCPStore } from '../stores/index.js';
import {
  checkPlace,
  missing,
  type RankPlace,
  readMaster,
  readRankEnvironment,
} from './environment.js';
import type { ReadOptions } from './init-options.js';
import { rendezvous, storeOfRun } from './rendezvous.js';
import {
  environmentStoreText,
  type Keeper,
  type StoreText,
  storeFailure,
} from './start-failure.js';

/** @internal */
export interface World {
  readonly place: RankPlace;
  readonly agreement: Agreement;
  readonly store: Store;
  /** The address of the rendezvous; null for a world of one rank. */
  readonly where: string | null;
  /** The store's host; null if the store has no address. */
  readonly host: string | null;
  /** Whether this process serves the store. */
  readonly keeps: boolean;
  /** The process that serves the store; null if the program gave the store, or nobody serves it. */
  readonly keeper: Keeper;
  readonly storeText: StoreText;
}

/**
 * By address, how many worlds this process has been a rank of. A process that starts again needs a
 * new number, which is equal on all ranks because all start equally often.
 */
const worldsAt = new Map<string, number>();
/** By address, the stores that this process opened, for a process that starts again. */
const stores = new Map<string, Store>();

/** Called once this process is a rank of the world. @internal */
export function countWorld({ where }: World): void {
  if (where !== null) worldsAt.set(where, numberAt(where) + 1);
}

const numberAt = (where: string): number => worldsAt.get(where) ?? 0;

/** @throws ArgumentError, DistributedError, StoreError, TimeoutError @internal */
export async function findWorld(options: ReadOptions, backends: string): Promise<World> {
  const place = placeOf(options);
  const { rank, worldSize } = place;
  checkPlace(rank, worldSize);
  if (worldSize === 1 && options.store === null) return singleRankWorld(place);
  const { timeoutMs } = options;
  const { where, base, keeps, keeper, storeText } = openStore(options, place);
  const run = storeOfRun(base, process.env['TORCHELASTIC_RESTART_COUNT'] ?? 0);
  const store = new PrefixStore(String(numberAt(where)), run);
  const launcher = options.rank === null && hasLauncher() ? run : null;
  store.setTimeout(timeoutMs);
  try {
    const agreement = await rendezvous(store, place, backends, timeoutMs, {
      keeper: keeps,
      launcher,
      storeText,
    });
    // All ranks have the file open; without its name the next run gets a new one.
    if (stores.get(where) === base && base instanceof FileStore && rank === 0) await base.unlink();
    const host = base instanceof TCPStore ? base.host : null;
    return { place, store, where, host, agreement, keeps, keeper, storeText };
  } catch (error) {
    if (stores.delete(where)) await closeFailed(base, error);
    throw storeFailure(error, place, where, timeoutMs, storeText, keeper);
  }
}

function singleRankWorld(place: RankPlace): World {
  return {
    place: { ...place, localRank: place.localRank ?? 0 },
    agreement: {
      hosts: [''],
      hostNames: [''],
      pids: [process.pid],
      run: '',
      token: 0,
      random: currentGenerator().origin(),
    },
    store: new HashStore(),
    where: null,
    host: null,
    keeps: false,
    keeper: null,
    storeText: environmentStoreText,
  };
}

/** Closes the store of a failed rendezvous; errors of closing must not hide the failure. */
async function closeFailed(store: Store, error: unknown): Promise<void> {
  // A rank that comes too late must not find one that has given up.
  if (store instanceof FileStore && error instanceof TimeoutError)
    await store.unlink().catch(() => {});
  await store.close().catch(() => {});
}

function placeOf({ rank, worldSize }: ReadOptions): RankPlace {
  if (rank !== null && worldSize !== null)
    return {
      rank,
      worldSize,
      localRank: null,
      ...readMaster(),
      setBy: 'torchrun and `npx shardwise run`',
    };
  return (
    readRankEnvironment() ?? {
      rank: 0,
      worldSize: 1,
      localRank: 0,
      masterAddr: null,
      masterPort: null,
      setBy: '',
    }
  );
}

/**
 * Whether a launcher of this library serves the store, so that rank 0 may end before the others.
 */
const hasLauncher = (): boolean => process.env['SHARDWISE_LAUNCHER_STORE'] === '1';

type OpenedStore = Pick<World, 'keeps' | 'keeper' | 'storeText'> & {
  readonly where: string;
  readonly base: Store;
};

function openStore(options: ReadOptions, place: RankPlace): OpenedStore {
  const { store, initMethod } = options;
  if (store !== null) return givenStore(store);
  if (initMethod?.startsWith('file:')) return fileStore(initMethod, options, place);
  return tcpStore(options, place);
}

function givenStore(store: Store): OpenedStore {
  const file = store instanceof FileStore ? store.path : null;
  return {
    where: 'the store that was given',
    base: store,
    keeps: store instanceof TCPStore && store.isServer,
    keeper: null,
    storeText: {
      same: file === null ? 'store' : `file ${file}`,
      each: file === null ? 'a store' : 'a file',
      file,
    },
  };
}

function fileStore(
  initMethod: string,
  { timeoutMs }: ReadOptions,
  { worldSize }: RankPlace,
): OpenedStore {
  const file = decodeURIComponent(new URL(initMethod).pathname);
  return {
    where: file,
    base: opened(file, () => new FileStore(file, worldSize, { timeoutMs })),
    keeps: false,
    keeper: null,
    storeText: { same: `file ${file}`, each: 'a file', file },
  };
}

function tcpStore(
  { initMethod, timeoutMs }: ReadOptions,
  { rank, masterAddr, masterPort, setBy }: RankPlace,
): OpenedStore {
  const named = /^tcp:\/\/(.+):(\d+)$/.exec(initMethod ?? '');
  const [host, port] =
    named === null
      ? [masterAddr, masterPort]
      : [(named[1] as string).replace(/^\[(.*)\]$/, '$1'), Number(named[2])];
  if (host === null || port === null)
    throw missing(
      [host === null ? 'MASTER_ADDR' : '', port === null ? 'MASTER_PORT' : ''].filter(Boolean),
      setBy,
    );
  const isServer = rank === 0 && !hasLauncher();
  const where = `${host}:${port}`;
  const storeText =
    named === null
      ? environmentStoreText
      : { same: `initMethod tcp://${where}`, each: 'a port', file: null };
  return {
    where,
    base: opened(where, () => new TCPStore(host, port, { isServer, timeoutMs })),
    keeps: isServer,
    keeper: hasLauncher() ? 'the launcher' : 'rank 0',
    storeText,
  };
}

function opened(address: string, open: () => Store): Store {
  const found = stores.get(address) ?? open();
  stores.set(address, found);
  return found;
}
