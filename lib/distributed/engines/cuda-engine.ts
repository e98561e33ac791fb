/**
 * Collectives of GPU tensors: by NCCL where it is there and each rank has a GPU of its own, else
 * through the memory of the hosts.
 */
import { type Device, type DeviceType, deviceByCode } from '../../core/device.js';
import { DistributedError } from '../../core/errors.js';
import { nativeCall, newStream, prepareDevice, writer } from '../../eager/submit.js';
import { findLibrary, type LibrarySearch, libraryNamed } from '../../native/libraries.js';
import type { BackendName, Engine, EngineFactory, GroupPlan } from './engine.js';
import { NativeEngine } from './native-engine.js';

/** Above that of the streams that compute: what other ranks wait for goes first. */
const HIGH_PRIORITY = -1;
let search: LibrarySearch | null = null;

function nccl(): LibrarySearch {
  search ??= findLibrary(writer.addon, libraryNamed('NCCL'));
  return search;
}

/**
 * The index of the GPU that `cuda` means for a rank of this machine; 0 where there is none.
 * @internal
 */
export function ownGpu(localRank: number): number {
  try {
    prepareDevice(deviceByCode(1));
  } catch {
    return 0;
  }
  return localRank % writer.addon.deviceCount('cuda');
}

/** How GPUs and ranks go together. @internal */
export interface DeviceOptions {
  /** The engine that the program named; null where it named none. */
  readonly backend: BackendName | null;
  /** Ranks that share the GPUs of this machine. */
  readonly ranksHere: number;
  /**
   * Ranks of one process: what the first launch of a kernel waits for on all its GPUs has to be
   * done before.
   */
  readonly sharesProcess?: boolean;
  readonly timeoutMs: number;
}

/** Engines for tensors of all devices; `host` makes those for the CPU. @internal */
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
  const { announce } = host;
  const backendFor = (plan: GroupPlan, type: DeviceType): BackendName | null => {
    const own = type === 'cpu' ? 'host' : gpuBackend(options);
    return own === 'host' ? (host.backendFor?.(plan, type) ?? null) : own;
  };
  return Object.assign(make, {
    splits: (device: Device) => splits(device, options),
    backendFor,
    ...(announce === undefined ? {} : { announce }),
  });
}

/** `'host'`: by the memory of the hosts; null where no GPU can be used. */
function gpuBackend(options: DeviceOptions): 'nccl' | 'host' | null {
  // what was named is known without the driver
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
    return false; // the first call says why
  }
}

/**
 * For programs whose tensors nothing else moves: said when the world begins, not by the first call.
 *
 * @throws DistributedError naming what is missing: a GPU for each rank of this machine, or NCCL
 * @internal
 */
export function requireNccl(op: string, ranksHere: number): void {
  try {
    prepareDevice(deviceByCode(1));
  } catch (error) {
    const advice =
      "For CPU tensors name 'shm' or 'gloo', or no backend; `npx shardwise doctor` says what it finds.";
    throw new DistributedError(
      `${op}: the backend 'nccl' moves tensors between GPUs, and this machine has none that can be used. ${advice}\n${(error as Error).message}`,
      { op },
    );
  }
  usesNccl({ backend: 'nccl', ranksHere, timeoutMs: 0 }, op);
}

/** The same ranks, for another device: with memory of their own. */
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
        `${op}: ${ranksHere} ranks share ${gpus} GPUs of this machine, and NCCL needs one for each. Start fewer, or name no backend.`,
        {
          ranksHere,
          gpus,
        },
      );
    if (found === undefined) {
      throw new DistributedError(
        `${op}: NCCL was not found. Install libnccl2 or the Python package nvidia-nccl-cu13, or set SHARDWISE_NCCL_PATH.${missing}`,
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
    `NCCL was not found: collectives of GPU tensors go through the memory of the host. Install libnccl2, or set SHARDWISE_NCCL_PATH.${missing}`,
    'ShardwiseWarning',
  );
}

/** What the engines of a rank's GPU are made with. */
interface NcclOptions {
  readonly host: EngineFactory;
  readonly device: Device;
  readonly timeoutMs: number;
  readonly sharesProcess: boolean;
}

/**
 * The ranks find each other through a group of their hosts, and see there what the others call. It
 * is the new member's from then on.
 */
class NcclEngine extends NativeEngine {
  private readonly around: NcclOptions;

  private constructor(around: NcclOptions, member: number, stream: number) {
    super('nccl', member, stream);
    this.around = around;
  }

  static join(around: NcclOptions, plan: GroupPlan): NcclEngine {
    return NcclEngine.meet(around, plan, (meeting, stream) =>
      writer.addon.joinDevices(meeting, stream, around.timeoutMs, Number(around.sharesProcess)),
    );
  }

  split(part: GroupPlan | null, color: number, where: string): Engine | null {
    const { around, member } = this;
    const cut = (meeting: number, stream: number): number =>
      writer.addon.splitDevices(member, meeting, stream, around.timeoutMs, color, where);
    if (part !== null) return NcclEngine.meet(around, part, cut);
    nativeCall(() => cut(0, this.lane), 'DeviceMesh');
    return null;
  }

  private static meet(
    around: NcclOptions,
    plan: GroupPlan,
    join: (meeting: number, stream: number) => number,
  ): NcclEngine {
    const { host, device } = around;
    const meeting = host({ ...onDevice(plan), meets: true }, deviceByCode(0)) as NativeEngine;
    const stream = nativeCall(() => newStream(device, HIGH_PRIORITY), `stream of ${device}`);
    return new NcclEngine(
      around,
      nativeCall(() => join(meeting.member, stream), 'newGroup'),
      stream,
    );
  }
}
