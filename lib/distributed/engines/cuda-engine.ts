/**
 * Collectives of GPU tensors: by NCCL if it is installed and each rank has its own GPU, else
 * through host memory.
 */
import { type Device, type DeviceType, deviceByCode } from '../../core/device.js';
import { DistributedError } from '../../core/errors.js';
import { kernelLoading } from '../../core/rank-runtime.js';
import { nativeCall, newStream, prepareDevice, writer } from '../../eager/submit.js';
import { findLibrary, type LibrarySearch, libraryNamed } from '../../native/libraries.js';
import type { BackendName, Engine, EngineFactory, GroupPlan } from './engine.js';
import { NativeEngine } from './native-engine.js';

/** Above the priority of compute streams, because other ranks wait for collectives. */
const HIGH_PRIORITY = -1;
let search: LibrarySearch | null = null;

function nccl(): LibrarySearch {
  search ??= findLibrary(writer.addon, libraryNamed('NCCL'));
  return search;
}

/**
 * Index of the GPU that `cuda` means for a rank of this machine; 0 without GPUs. @internal
 */
export function ownGpu(localRank: number): number {
  try {
    prepareDevice(deviceByCode(1));
  } catch {
    return 0;
  }
  return localRank % writer.addon.deviceCount('cuda');
}

/** How ranks use the GPUs of a machine. @internal */
export interface DeviceOptions {
  /** The engine that the program named; null if it named none. */
  readonly backend: BackendName | null;
  /** Number of ranks that share the GPUs of this machine. */
  readonly ranksHere: number;
  /**
   * Whether ranks share a process. The first launch of a kernel then waits for all GPUs of the
   * process, so it must not follow a collective that waits for another rank.
   */
  readonly sharesProcess?: boolean;
  readonly timeoutMs: number;
}

/** Adds engines for GPUs to `host`, which makes the engines for the CPU. @internal */
export function withDevices(host: EngineFactory, options: DeviceOptions): EngineFactory {
  const make = (plan: GroupPlan, device: Device): Engine => {
    if (device.type === 'cpu') return host(plan, device);
    prepareDevice(device);
    return usesNccl(options)
      ? NcclEngine.join(
          {
            host,
            device,
            timeoutMs: options.timeoutMs,
            sharesProcess: options.sharesProcess === true,
          },
          plan,
        )
      : host(onDevice(plan), device);
  };
  const { publish } = host;
  const backendFor = (plan: GroupPlan, type: DeviceType): BackendName | null => {
    const own = type === 'cpu' ? 'host' : gpuBackend(options);
    return own === 'host' ? (host.backendFor?.(plan, type) ?? null) : own;
  };
  return Object.assign(make, {
    splits: (device: Device) => splits(device, options),
    loadsKernels: (device: Device) => options.sharesProcess !== true || !splits(device, options),
    backendFor,
    ...(publish === undefined ? {} : { publish }),
  });
}

/** `'host'`: through host memory; null if no GPU can be used. */
function gpuBackend(options: DeviceOptions): 'nccl' | 'host' | null {
  // A named backend is known without opening the driver.
  if (options.backend !== null) return options.backend === 'nccl' ? 'nccl' : 'host';
  try {
    prepareDevice(deviceByCode(1));
    return usesNccl(options) ? 'nccl' : 'host';
  } catch {
    return null;
  }
}

function splits(device: Device, options: DeviceOptions): boolean {
  if (device.type === 'cpu') return false;
  try {
    prepareDevice(device);
    return usesNccl(options);
  } catch {
    return false; // the first call reports why
  }
}

/**
 * Checks NCCL when the world starts, for programs that name it alone; otherwise only the first call
 * would fail.
 *
 * @throws DistributedError if NCCL is missing, or a GPU for each rank of this machine
 * @internal
 */
export function requireNccl(op: string, ranksHere: number): void {
  try {
    prepareDevice(deviceByCode(1));
  } catch (error) {
    const advice =
      "For CPU tensors name 'shm' or 'gloo', or no backend; `npx shardwise doctor` lists what it " +
      'finds.';
    throw new DistributedError(
      `${op}: the backend 'nccl' needs GPUs, and this machine has no usable one. ${advice}\n` +
        (error as Error).message,
      { op },
    );
  }
  usesNccl({ backend: 'nccl', ranksHere, timeoutMs: 0 }, op);
}

/** The same ranks for GPU tensors, as a separate group in host memory. */
function onDevice({ name, ranks, rank, firstCall }: GroupPlan): GroupPlan {
  return {
    name: `${name}-gpu`,
    label: name,
    ranks,
    rank,
    ...(firstCall === undefined ? {} : { firstCall }),
  };
}

function usesNccl({ backend, ranksHere }: DeviceOptions, op = 'nccl'): boolean {
  const gpus = writer.addon.deviceCount('cuda');
  const { found, tried } = nccl();
  const missing = tried.map((t) => `\n  tried ${t.path}: ${t.reason}`).join('');
  if (backend === 'nccl') {
    if (ranksHere > gpus)
      throw new DistributedError(
        `${op}: ${ranksHere} ranks share ${gpus} GPUs of this machine, and NCCL needs one GPU ` +
          'for each rank. Start fewer ranks, or name no backend.',
        {
          ranksHere,
          gpus,
        },
      );
    if (found === undefined) {
      throw new DistributedError(
        `${op}: NCCL was not found. Install libnccl2 or the Python package nvidia-nccl-cu13, or ` +
          `set SHARDWISE_NCCL_PATH.${missing}`,
        { tried },
      );
    }
    return true;
  }
  if (backend !== null || ranksHere > gpus) return false;
  if (found === undefined) warnOnce(missing);
  return found !== undefined;
}

let warned = false;

function warnOnce(missing: string): void {
  if (warned) return;
  warned = true;
  process.emitWarning(
    'NCCL was not found: collectives of GPU tensors go through host memory. Install libnccl2, or ' +
      `set SHARDWISE_NCCL_PATH.${missing}`,
    'ShardwiseWarning',
  );
}

/** What all NCCL engines of one GPU have in common. */
interface NcclOptions {
  readonly host: EngineFactory;
  readonly device: Device;
  readonly timeoutMs: number;
  readonly sharesProcess: boolean;
}

/**
 * A group of GPUs. Its ranks meet in a host group (the rendezvous group), through which they also
 * compare their calls. The NCCL member owns the rendezvous group.
 */
class NcclEngine extends NativeEngine {
  private readonly options: NcclOptions;

  private constructor(options: NcclOptions, member: number, stream: number) {
    super('nccl', member, stream);
    this.options = options;
  }

  static join(options: NcclOptions, plan: GroupPlan): NcclEngine {
    const { timeoutMs, sharesProcess } = options;
    kernelLoading.hasEnded ||= sharesProcess;
    return NcclEngine.create(options, plan, (rendezvous, stream) =>
      writer.addon.joinDevices(
        rendezvous,
        stream,
        timeoutMs,
        Number(sharesProcess),
        plan.maxCtas ?? 0,
      ),
    );
  }

  split(subgroup: GroupPlan | null, color: number, where: string): Engine | null {
    const { options, member } = this;
    const join = (rendezvous: number, stream: number): number =>
      writer.addon.splitDevices(member, rendezvous, stream, options.timeoutMs, color, where);
    if (subgroup !== null) return NcclEngine.create(options, subgroup, join);
    nativeCall(() => join(0, this.lane), 'DeviceMesh');
    return null;
  }

  private static create(
    options: NcclOptions,
    plan: GroupPlan,
    join: (rendezvous: number, stream: number) => number,
  ): NcclEngine {
    const { host, device } = options;
    const groupPlan = { ...onDevice(plan), isRendezvous: true };
    const rendezvous = host(groupPlan, deviceByCode(0)) as NativeEngine;
    const stream = nativeCall(() => newStream(device, HIGH_PRIORITY), `stream of ${device}`);
    return new NcclEngine(
      options,
      nativeCall(() => join(rendezvous.member, stream), 'newGroup'),
      stream,
    );
  }
}
