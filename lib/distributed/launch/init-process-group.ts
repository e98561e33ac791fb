/** Makes a process a rank: joins its world, and leaves it when the process ends. */
import { deviceByCode } from '../../core/device.js';
import { DistributedError } from '../../core/errors.js';
import { kindOf } from '../../core/options.js';
import { currentRuntime, processRuntime } from '../../core/rank-runtime.js';
import { reportUse } from '../../core/unrepeatable.js';
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
import { StoreCreationLog } from '../process-group/diagnosis/store-creation-log.js';
import { checkExit, exitReason } from '../process-group/exit-check.js';
import { destroyProcessGroup, enterWorld } from '../process-group/new-group.js';
import type { ProcessGroup } from '../process-group/process-group.js';
import { findContext } from '../process-group/rank-context.js';
import { enterFakeWorld } from './fake-world.js';
import { countWorld, findWorld, type World } from './find-world.js';
import { type InitOptions, type ReadOptions, readOptions } from './init-options.js';
import { waitUntilRead } from './rendezvous.js';
import { StartFailures, storeFailure } from './start-failure.js';

const OP = 'initProcessGroup';
let starting = false;
/** Whether `launch` made this process to run one function. */
let launched = false;

/**
 * Makes this process one of the ranks of a program. Rank and number of ranks are taken from the
 * options, else from the environment (of torchrun, `npx shardwise run`, Slurm, Open MPI or PMI);
 * else the process is the only rank and opens no connection. Resolves when all ranks have come. In
 * a rank that `launch` runs as a function, everything is set up and the call changes nothing.
 *
 * @param backend - `'shm'`, `'gloo'`, or one for each kind of device such as
 * `'cpu:gloo,cuda:nccl'`; chosen for each device if left out. `'fake'`: one rank of a world of any
 * size without peers, for plans and tests, whose `rank` may be any
 * @throws ArgumentError for invalid options and variables; DistributedError if the process is a
 * rank already, if the environment lacks some of a rank's variables, if `'nccl'` is named alone and
 * GPUs or NCCL are missing, or if the ranks do not fit together; TimeoutError naming the ranks that
 * did not come; StoreError
 * @see PyTorch `torch.distributed.init_process_group`
 * @example
 * // of a program that `npx shardwise run` did not start: the only rank
 * await initProcessGroup();
 * getWorldSize(); // 1
 * await destroyProcessGroup();
 */
export function initProcessGroup(backend?: string, options?: InitOptions): Promise<void>;
/**
 * The same with options alone: the backend is SHARDWISE_BACKEND of the environment, else chosen for
 * each device. @throws as above
 */
export function initProcessGroup(options: InitOptions): Promise<void>;
export function initProcessGroup(
  first?: string | InitOptions,
  second?: InitOptions,
): Promise<void> {
  reportUse(OP);
  return start(first, second);
}

async function start(first?: string | InitOptions, second?: InitOptions): Promise<void> {
  const [backend, options = {}] =
    isOptions(first) && second === undefined
      ? [undefined, first]
      : [first as string | undefined, second];
  const backends = parseBackend(OP, backend ?? process.env['SHARDWISE_BACKEND']);
  const read = readOptions(options);
  if (Object.values(backends).includes('fake')) return enterFake(read);
  if (currentRuntime() !== processRuntime || launched) return checkLaunched();
  if (starting || findContext() !== null) {
    throw new DistributedError(
      `${OP}: this process is rank ${findContext()?.rank ?? read.rank ?? '…'} already. Call it ` +
        'once, or destroyProcessGroup() in between.',
      { op: OP },
    );
  }
  starting = true;
  try {
    const found = await findWorld(read, JSON.stringify(backends));
    const { store, place, where, keeps, keeper, storeText } = found;
    const { timeoutMs } = read;
    const deadline = Date.now() + timeoutMs;
    const failures = keeper === 'rank 0' ? new StartFailures(store, place, timeoutMs) : null;
    try {
      await enter(found, backends, read);
      // Most ranks have joined by now, so they have read it.
      if (keeps) await waitUntilRead(store, Math.max(1, deadline - Date.now()));
    } catch (error) {
      await failures?.publish(error);
      const first = failures?.first;
      throw storeFailure(error, place, where ?? '', timeoutMs, storeText, keeper, first);
    }
  } finally {
    starting = false;
  }
}

/** Makes this process a rank of the world. */
async function enter(
  found: World,
  backends: Backends,
  { timeoutMs, deviceId }: ReadOptions,
): Promise<void> {
  const { place, agreement, store, host } = found;
  const { rank, worldSize } = place;
  const localRank =
    place.localRank ??
    agreement.hosts.slice(0, rank).filter((host) => host === agreement.hosts[rank]).length;
  const engines = await chooseEngines(OP, backends, { agreement, rank, store, host, timeoutMs });
  const { world } = enterWorld({
    rank,
    worldSize,
    localRank,
    runtime: processRuntime,
    store,
    factory: engines.make,
    pending: null,
    creationLog: worldSize === 1 ? null : StoreCreationLog.over(store),
    random: agreement.random,
    named: namedDevices(backends),
    leaveEngines: engines.leave,
  });
  processRuntime.findCudaIndex = () => deviceId ?? ownGpu(localRank);
  leaveAtExit();
  countWorld(found);
  if (movesCpuTensors(backends) && worldSize > 1) await joined(world);
}

/** Whether the value is a plain object, not a store or other class instance. */
const isOptions = (value: unknown): value is InitOptions =>
  typeof value === 'object' &&
  value !== null &&
  !Array.isArray(value) &&
  kindOf(value) === 'an object';

/** Enters a world without peers, and so without a rendezvous. The rank may exceed its size. */
function enterFake({ rank, worldSize, store }: ReadOptions): void {
  enterFakeWorld({ rank: rank ?? 0, worldSize: worldSize ?? 1, store });
}

/**
 * Waits until all ranks have joined the world's group. From then on the engine detects the death of
 * a process immediately, whatever it was about to call.
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
 * Whether the distributed package is available: always. @see PyTorch
 * `torch.distributed.is_available`
 */
export function isAvailable(): boolean {
  return true;
}

/** Makes `initProcessGroup` a no-op, as in every rank that `launch` runs. @internal */
export function setLaunched(): void {
  launched = true;
}

function checkLaunched(): void {
  if (findContext() !== null) return;
  throw new DistributedError(
    `${OP}: this rank has left its world by destroyProcessGroup(), and a rank of launch() cannot ` +
      'join another one',
    { op: OP },
  );
}

let registered = false;

/**
 * Leaves the world when the process ends: after a success once all calls are done, after a failure
 * with the reason for the other ranks.
 */
function leaveAtExit(): void {
  if (registered) return;
  registered = true;
  let thrown: { readonly error: unknown } | null = null;
  process.on('uncaughtExceptionMonitor', (error: unknown) => {
    thrown = { error };
  });
  process.on('beforeExit', () => {
    // An unobserved failure becomes an unhandled rejection, which reports it to the program.
    if (findContext() !== null)
      void checkExit(processRuntime, 'exit').then(() => destroyProcessGroup());
  });
  process.on('exit', (code) => {
    const context = findContext();
    if (context === null) return;
    if (code !== 0) {
      const error: unknown =
        thrown === null ? `its program ended with exit code ${code}` : thrown.error;
      const reason = exitReason(
        processRuntime,
        context.rank,
        error instanceof Error ? error.message : String(error),
        error,
      );
      for (const group of context.groups) group.abort(reason);
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
    // The exit code is decided, and the program has read every value that it needed.
  }
}
