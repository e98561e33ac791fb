/** The `memory` namespace: what each device's allocator holds, for the CPU as well as for GPUs. */
import { type Device, type DeviceName, device as deviceOf } from '../core/device.js';
import type { MemoryHolder } from '../core/errors.js';
import { checkFlag } from '../core/options.js';
import { recording, setRecording } from '../eager/allocation-history.js';
import { collectGarbage } from '../eager/gc-policy.js';
import { groupHolders, type LiveStorage, liveStorages } from '../eager/memory-report.js';
import { nativeCall, streamOf, writer } from '../eager/submit.js';
import type { NativeMemoryStats, NativeSegment } from '../native/addon.js';

export type { MemoryHolder } from '../core/errors.js';
export type { StorageOrigin } from '../eager/allocation-history.js';
export type { LiveStorage } from '../eager/memory-report.js';

/** Statistics of the caching allocator of a device, in bytes and counts. */
export function stats(which: DeviceName | Device = 'cpu'): NativeMemoryStats {
  const { code } = deviceOf(which);
  return nativeCall(() => writer.addon.memoryStats(code), 'memory.stats');
}

/** Starts the peaks again from the present. */
export function resetPeak(which: DeviceName | Device = 'cpu'): void {
  const { code } = deviceOf(which);
  nativeCall(() => writer.addon.resetPeakStats(code), 'memory.resetPeak');
}

/** Gives cached memory that no tensor uses back to the system. */
export function emptyCache(which: DeviceName | Device = 'cpu'): void {
  const { code } = deviceOf(which);
  nativeCall(() => writer.addon.emptyCache(code, 0), 'memory.emptyCache');
}

/**
 * Collects garbage now: frees tensors that nothing refers to, and gives what the heap no longer
 * needs back to the system.
 */
export function collect(): void {
  writer.words.dropToken();
  collectGarbage();
  writer.addon.trimHeap();
}

/** What a device's memory is used for at one moment. */
export interface MemorySnapshot {
  /** The name of the device. */
  readonly device: string;
  /** Whether {@link recordHistory} is on, so that new storages have an origin. */
  readonly recording: boolean;
  /** The counters of the allocator, as `memory.stats` returns them. */
  readonly stats: NativeMemoryStats;
  /**
   * What the allocator took from the system, and the blocks in it, as `cuda.memorySnapshot` has
   * them.
   */
  readonly segments: readonly NativeSegment[];
  /** The live storages of this thread. */
  readonly storages: readonly LiveStorage[];
  /** The same in groups of one size, shape, dtype and maker, largest first. */
  readonly holders: readonly MemoryHolder[];
}

/**
 * What a device's memory is used for now: segments and blocks of the allocator, and the storages of
 * this thread, with the op, shape and dtype they were made with where {@link recordHistory} was on.
 *
 * @throws DeviceError if the device is not there.
 * @see PyTorch `torch.cuda.memory._snapshot`
 */
export function snapshot(which: DeviceName | Device = 'cpu'): MemorySnapshot {
  const found = deviceOf(which);
  streamOf(found); // opens the device, or says why that cannot be
  const segments = nativeCall(() => writer.addon.memorySnapshot(found.code), 'memory.snapshot');
  const storages = liveStorages(writer.addon, found);
  return {
    device: String(found),
    recording,
    stats: stats(found),
    segments,
    storages,
    holders: groupHolders(storages),
  };
}

/**
 * Turns on, or off, that each new storage is remembered with the op, shape and dtype it was made
 * with, for {@link snapshot} and the message of an OutOfMemoryError. Turning it off forgets them.
 * It is on from the start with `SHARDWISE_MEMORY_HISTORY=1`. While it is on, an op that allocates
 * costs some tenths of a microsecond more.
 *
 * @see PyTorch `torch.cuda.memory._record_memory_history`
 */
export function recordHistory(enabled = true): void {
  checkFlag('memory.recordHistory', 'enabled', enabled);
  setRecording(enabled);
}
