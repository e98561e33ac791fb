/** Ranks that are processes: joining their world, and leaving it when the process ends. */
import { type Device, device, deviceByCode } from '../../core/device.js';
import { ArgumentError, DeviceError, DistributedError, TimeoutError } from '../../core/errors.js';
import { currentHome, processHome } from '../../core/home.js';
import { checkNumber, checkTimeout, kindOf, unexpected, withDefaults } from '../../core/options.js';
import { currentGenerator } from '../../core/random.js';
import { writer } from '../../eager/submit.js';
import { ownGpu } from '../engines/cuda-engine.js';
import {
  type Backends,
  chooseEngines,
  movesCpuTensors,
  namedDevices,
  parseBackend,
} from '../engines/select.js';
import { removeStaleSegments } from '../engines/shm-segments.js';
import { lastFailures, withLastCall } from '../process-group/exit-check.js';
import { destroyProcessGroup, enterWorld } from '../process-group/new-group.js';
import type { ProcessGroup } from '../process-group/process-group.js';
import { findContext } from '../process-group/rank-context.js';
import { StoreBoard } from '../process-group/store-creation-log.js';
import { FileStore, HashStore, PrefixStore, Store, TCPStore } from '../stores/index.js';
import { missing, type RankPlace, readMaster, readRankEnvironment } from './environment.js';
import { enterFakeWorld } from './fake-world.js';
import {
  type Agreement,
  byEnvironment,
  checkPlace,
  type Keeper,
  meetRanks,
  storeFailure,
  storeOfRun,
  type Told,
  untilAllHaveRead,
} from './rendezvous.js';
import { StartWatch } from './start-failure.js';

const OP = 'initProcessGroup';
/** PyTorch's half an hour. */
export const DEFAULT_TIMEOUT_MS = 1_800_000;

/** Options of {@link initProcessGroup}. */
export interface InitOptions {
  /**
   * Where the ranks find each other; needs `rank` and `worldSize`, unless the environment has them.
   * By default a {@link TCPStore} on MASTER_ADDR:MASTER_PORT.
   */
  store?: Store | null;
  /** This process's number, from 0. By default the environment's. */
  rank?: number | null;
  /** How many processes there are. By default the environment's. */
  worldSize?: number | null;
  /** How long ranks wait for each other, here and in every collective. Half an hour by default. */
  timeoutMs?: number | null;
  /**
   * What `cuda` means for this rank, such as 1 or `'cuda:1'`. By default its number among the ranks
   * of its machine.
   */
  deviceId?: number | string | Device | null;
  /**
   * `'env://'` (the default), `'tcp://host:port'` or `'file:///path'`, instead of a store. The file
   * is removed when all ranks have come.
   */
  initMethod?: string | null;
}

let starting = false;
/**
 * How often this process has been a rank of worlds that met there: all ranks begin anew equally
 * often.
 */
const times = new Map<string, number>();
/** That this process opened: by address, for one that begins anew. */
const stores = new Map<string, Store>();
/** Of a process that `launch` made to run one function. */
let launched = false;

/**
 * Makes this process one of the ranks of a program. Rank and number of ranks are taken from the
 * options, else from the environment (of torchrun, `npx shardwise run`, Slurm, Open MPI or PMI),
 * else the process is the only rank and opens no connection. Resolves when all ranks have come. In
 * a rank that `launch` made for a function, where all is set up, it changes nothing.
 *
 * @param backend - `'shm'`, `'gloo'`, or one for each kind of device such as
 * `'cpu:gloo,cuda:nccl'`; chosen for each device if left out. `'fake'`: one
 *   rank of a world of any size without peers, for plans and tests
 * @throws ArgumentError for options and variables that are none, DistributedError for a process
 * that is a rank already, for an environment
 *   with half of a rank's variables, for `'nccl'` alone where GPUs or NCCL are missing, and for ranks that do not fit together, TimeoutError naming the ranks that did not come, StoreError
 * @see PyTorch `torch.distributed.init_process_group`
 */
export function initProcessGroup(backend?: string, options?: InitOptions): Promise<void>;
/**
 * The same with options alone: the backend is SHARDWISE_BACKEND's of the environment, else chosen
 * for each device. @throws as above
 */
export function initProcessGroup(options: InitOptions): Promise<void>;
export async function initProcessGroup(
  first?: string | InitOptions,
  second?: InitOptions,
): Promise<void> {
  const [backend, options = {}] =
    isOptions(first) && second === undefined
      ? [undefined, first]
      : [first as string | undefined, second];
  const backends = parseBackend(OP, backend ?? process.env['SHARDWISE_BACKEND']);
  const read = readOptions(options);
  if (Object.values(backends).includes('fake')) return enterFake(read);
  if (currentHome() !== processHome || launched) return checkLaunched();
  if (starting || findContext() !== null) {
    throw new DistributedError(
      `${OP}: this process is rank ${findContext()?.rank ?? read.rank ?? '…'} already. Call it once, or destroyProcessGroup() in between.`,
      { op: OP },
    );
  }
  starting = true;
  try {
    const found = await findWorld(read, JSON.stringify(backends));
    const { store, place, where, keeps, keeper, told } = found;
    const deadline = Date.now() + read.timeoutMs;
    const watch = keeper === 'rank 0' ? new StartWatch(store, place, read.timeoutMs) : null;
    try {
      await enter(found, backends, read);
      // most have joined by now, so they have
      if (keeps) await untilAllHaveRead(store, Math.max(1, deadline - Date.now()));
    } catch (error) {
      await watch?.tell(error);
      throw storeFailure(error, place, where ?? '', read.timeoutMs, told, keeper, watch?.failure);
    }
  } finally {
    starting = false;
  }
}

/** Makes this process a rank of the world that it has found. */
async function enter(
  { place, agreement, store, where, host }: World,
  backends: Backends,
  { timeoutMs, deviceId }: ReadOptions,
): Promise<void> {
  const { rank, worldSize } = place;
  const localRank =
    place.localRank ??
    agreement.hosts.slice(0, rank).filter((host) => host === agreement.hosts[rank]).length;
  const engines = await chooseEngines(OP, backends, { agreement, rank, store, host, timeoutMs });
  const { world } = enterWorld({
    rank,
    worldSize,
    localRank,
    home: processHome,
    store,
    factory: engines.make,
    pending: null,
    board: worldSize === 1 ? null : StoreBoard.over(store),
    random: agreement.random,
    named: namedDevices(backends),
    leaveEngines: engines.leave,
  });
  processHome.findCudaIndex = () => deviceId ?? ownGpu(localRank);
  leaveAtExit();
  if (where !== null) times.set(where, numberAt(where) + 1);
  if (movesCpuTensors(backends) && worldSize > 1) await joined(world);
}

/** An object, and no store or other thing of a class. */
const isOptions = (value: unknown): value is InitOptions =>
  typeof value === 'object' &&
  value !== null &&
  !Array.isArray(value) &&
  kindOf(value) === 'an object';

/** No peers: rank and world size have to be given, nobody is met. */
function enterFake({ rank, worldSize, store }: ReadOptions): void {
  checkPlace(rank ?? 0, worldSize ?? 1);
  enterFakeWorld({ rank: rank ?? 0, worldSize: worldSize ?? 1, store });
}

/**
 * From here on the ranks know each other's processes: one that dies is missed at once, whatever it
 * was going to call.
 */
async function joined(world: ProcessGroup): Promise<void> {
  removeStaleSegments();
  try {
    await world.finished();
  } catch (error) {
    destroyProcessGroup();
    throw error;
  }
}

/**
 * Whether programs of several ranks can be run: always. @see PyTorch
 * `torch.distributed.is_available`
 */
export function isAvailable(): boolean {
  return true;
}

/** From now on `initProcessGroup` is what it is in any rank of `launch`. @internal */
export function setLaunched(): void {
  launched = true;
}

function checkLaunched(): void {
  if (findContext() !== null) return;
  throw new DistributedError(
    `${OP}: this rank has left its world by destroyProcessGroup(), and a rank that launch() made cannot begin anew`,
    { op: OP },
  );
}

interface ReadOptions {
  readonly store: Store | null;
  readonly rank: number | null;
  readonly worldSize: number | null;
  readonly timeoutMs: number;
  readonly deviceId: number | null;
  readonly initMethod: string | null;
}

function readOptions(options: InitOptions): ReadOptions {
  const defaults: Required<InitOptions> = {
    store: null,
    rank: null,
    worldSize: null,
    timeoutMs: null,
    deviceId: null,
    initMethod: null,
  };
  const given = withDefaults<Required<InitOptions>>(OP, defaults, options);
  const { store, rank, worldSize, deviceId, initMethod } = given;
  const timeoutMs =
    given.timeoutMs ?? Number(process.env['SHARDWISE_TIMEOUT_MS'] ?? DEFAULT_TIMEOUT_MS);
  checkTimeout(OP, timeoutMs, { from: 1, whole: true });
  if (store !== null && !(store instanceof Store)) throw unexpected(OP, 'store', 'a store', store);
  if (
    initMethod !== null &&
    (typeof initMethod !== 'string' ||
      !/^(env:\/\/$|tcp:\/\/[^/]+:\d+$|file:\/\/\/.)/.test(initMethod))
  ) {
    throw unexpected(OP, 'initMethod', `'env://', 'tcp://host:port' or 'file:///path'`, initMethod);
  }
  if (store !== null && initMethod !== null)
    throw new ArgumentError(
      `${OP}: a store and an initMethod say the same thing in two ways; give one of them`,
      { op: OP },
    );
  if ((rank === null) !== (worldSize === null)) {
    throw new ArgumentError(
      `${OP}: rank and worldSize go together, only ${rank === null ? 'worldSize' : 'rank'} was given`,
      { op: OP, rank, worldSize },
    );
  }
  return { store, rank, worldSize, timeoutMs, deviceId: deviceIndex(deviceId), initMethod };
}

function deviceIndex(deviceId: number | string | Device | null): number | null {
  if (deviceId === null) return null;
  if (typeof deviceId === 'number') {
    checkNumber(OP, 'deviceId', deviceId, { from: 0, to: 999, whole: true });
    return deviceId;
  }
  const found = device(deviceId as `cuda:${number}`);
  if (found.type !== 'cuda')
    throw new DeviceError(`${OP}: expected deviceId to be a GPU such as 'cuda:1', got ${found}`, {
      op: OP,
      device: String(found),
    });
  return found.index;
}

interface World {
  readonly place: RankPlace;
  readonly agreement: Agreement;
  readonly store: Store;
  /** Where the ranks have met; null for one that meets nobody. */
  readonly where: string | null;
  /** Where the store is; null for one that is no address. */
  readonly host: string | null;
  /** Whether this process keeps it. */
  readonly keeps: boolean;
  /** Who keeps it; null for one that was given, or that nobody keeps. */
  readonly keeper: Keeper;
  readonly told: Told;
}

const numberAt = (where: string): number => times.get(where) ?? 0;

async function findWorld(options: ReadOptions, backends: string): Promise<World> {
  const place = placeOf(options);
  const { rank, worldSize } = place;
  checkPlace(rank, worldSize);
  if (worldSize === 1 && options.store === null) {
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
      told: byEnvironment,
    };
  }
  const { timeoutMs } = options;
  const { where, base, keeps, keeper, told } = openStore(options, place);
  const run = storeOfRun(base, process.env['TORCHELASTIC_RESTART_COUNT'] ?? 0);
  const store = new PrefixStore(String(numberAt(where)), run);
  const launcher = options.rank === null && hasLauncher() ? run : null;
  store.setTimeout(timeoutMs);
  try {
    const agreement = await meetRanks(store, place, backends, timeoutMs, {
      keeper: keeps,
      launcher,
      told,
    });
    // All have it open: the next run shall not find them there.
    if (stores.get(where) === base && base instanceof FileStore && rank === 0) await base.unlink();
    return {
      place,
      store,
      where,
      host: base instanceof TCPStore ? base.host : null,
      agreement,
      keeps,
      keeper,
      told,
    };
  } catch (error) {
    if (stores.delete(where)) await leave(base, error);
    throw storeFailure(error, place, where, timeoutMs, told, keeper);
  }
}

/** What failed is told, not what comes of it. */
async function leave(store: Store, error: unknown): Promise<void> {
  // Who comes too late shall not find a rank there that has given up.
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

/** A launcher of ours keeps the store itself: so a rank may end without taking it along. */
const hasLauncher = (): boolean => process.env['SHARDWISE_LAUNCHER_STORE'] === '1';

interface Opened {
  readonly where: string;
  readonly base: Store;
  /** Whether this process keeps it. */
  readonly keeps: boolean;
  readonly keeper: Keeper;
  readonly told: Told;
}

function openStore(
  { store, initMethod, timeoutMs }: ReadOptions,
  { rank, worldSize, masterAddr, masterPort, setBy }: RankPlace,
): Opened {
  if (store !== null) {
    const file = store instanceof FileStore ? store.path : null;
    return {
      where: 'the store that was given',
      base: store,
      keeps: store instanceof TCPStore && store.isServer,
      keeper: null,
      told: {
        same: file === null ? 'store' : `file ${file}`,
        each: file === null ? 'a store' : 'a file',
        file,
      },
    };
  }
  if (initMethod?.startsWith('file:')) {
    const { pathname } = new URL(initMethod);
    const file = decodeURIComponent(pathname);
    const base = opened(file, () => new FileStore(file, worldSize, { timeoutMs }));
    return {
      where: file,
      base,
      keeps: false,
      keeper: null,
      told: { same: `file ${file}`, each: 'a file', file },
    };
  }
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
  const told =
    named === null
      ? byEnvironment
      : { same: `initMethod tcp://${where}`, each: 'a port', file: null };
  return {
    where,
    base: opened(where, () => new TCPStore(host, port, { isServer, timeoutMs })),
    keeps: isServer,
    keeper: hasLauncher() ? 'the launcher' : 'rank 0',
    told,
  };
}

function opened(address: string, open: () => Store): Store {
  const found = stores.get(address) ?? open();
  stores.set(address, found);
  return found;
}

/** Where each rank sees one GPU only, that is its own. */
let registered = false;

/**
 * What was called is still done for the others if the process ends well; if not, they are told why.
 */
function leaveAtExit(): void {
  if (registered) return;
  registered = true;
  let thrown: { readonly error: unknown } | null = null;
  process.on('uncaughtExceptionMonitor', (error: unknown) => {
    thrown = { error };
  });
  process.on('beforeExit', () => {
    // A failure that nobody has asked for yet becomes an unhandled rejection, which is how the
    // program learns of it.
    if (findContext() !== null)
      void lastFailures(processHome, 'exit').then(() => destroyProcessGroup());
  });
  process.on('exit', (code) => {
    const context = findContext();
    if (context === null) return;
    if (code !== 0) {
      const error: unknown =
        thrown === null ? `its program ended with exit code ${code}` : thrown.error;
      const said = withLastCall(
        processHome,
        context.rank,
        error instanceof Error ? error.message : String(error),
        error,
      );
      for (const group of context.groups) group.abort(said);
    }
    destroyProcessGroup();
    if (code === 0) streamDrained();
  });
}

function streamDrained(): void {
  const stream = deviceByCode(0).currentStream;
  if (stream < 0) return;
  try {
    writer.addon.synchronize(stream);
  } catch {
    // The exit code is decided; who needed the value has read it.
  }
}
