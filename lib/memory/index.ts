/** The `memory` namespace: statistics and snapshots of the allocators of the CPU and of GPUs. */
import { runDeferred } from '../core/deferred.js';
import { type Device, type DeviceName, device as deviceOf } from '../core/device.js';
import { DeviceError, type MemoryHolder } from '../core/errors.js';
import { checkFlag } from '../core/options.js';
import { reportUse } from '../core/unrepeatable.js';
import { history, setRecording } from '../eager/allocation-history.js';
import { groupHolders, type LiveStorage, liveStorages } from '../eager/memory-report.js';
import { freeGarbage, nativeCall, streamOf, writer } from '../eager/submit.js';
import type { NativeMemoryStats, NativeSegment } from '../native/memory-calls.js';

export type { MemoryHolder } from '../core/errors.js';
export { type OwnedOptions, owned } from '../core/scope.js';
export type { StorageOrigin } from '../eager/allocation-history.js';
export type { LiveStorage } from '../eager/memory-report.js';

/** @throws DeviceError for `meta`, which has no memory */
function withMemory(op: string, which: DeviceName | Device): Device {
  const found = deviceOf(which);
  reportUse(op);
  if (found.type !== 'meta') return found;
  throw new DeviceError(`${op}: expected a device with memory, got meta, which has none`, {
    op,
    device: 'meta',
  });
}

/**
 * Statistics of the caching allocator of a device, in bytes and counts.
 *
 * @example
 * const before = memory.stats().allocatedBytes;
 * const t = zeros([1024]);
 * memory.stats().allocatedBytes - before; // 4096
 */
export function stats(which: DeviceName | Device = 'cpu'): NativeMemoryStats {
  const { code } = withMemory('memory.stats', which);
  return nativeCall(() => writer.addon.memoryStats(code), 'memory.stats');
}

/** Resets the peaks to the current values. */
export function resetPeak(which: DeviceName | Device = 'cpu'): void {
  const { code } = withMemory('memory.resetPeak', which);
  nativeCall(() => writer.addon.resetPeakStats(code), 'memory.resetPeak');
}

/** Returns cached memory that no tensor uses to the system. */
export function emptyCache(which: DeviceName | Device = 'cpu'): void {
  const { code } = withMemory('memory.emptyCache', which);
  nativeCall(() => writer.addon.emptyCache(code, 0), 'memory.emptyCache');
}

/**
 * Collects garbage now: frees tensors without references, and returns unused memory of the heap to
 * the system.
 */
export function collect(): void {
  reportUse('memory.collect');
  // Ops that have not run hold their operands and results.
  runDeferred('memory.collect() was called');
  freeGarbage();
  writer.addon.trimHeap();
}

/** The use of a device's memory at one moment. */
export interface MemorySnapshot {
  /** The name of the device. */
  readonly device: string;
  /** Whether {@link recordHistory} is on, so that new storages have an origin. */
  readonly recording: boolean;
  /** The counters of the allocator, as `memory.stats` returns them. */
  readonly stats: NativeMemoryStats;
  /**
   * The segments that the allocator took from the system, with their blocks, as in
   * `cuda.memorySnapshot`.
   */
  readonly segments: readonly NativeSegment[];
  /** The live storages of this thread. */
  readonly storages: readonly LiveStorage[];
  /** The same storages in groups of one size, shape, dtype and op, largest first. */
  readonly holders: readonly MemoryHolder[];
}

/**
 * Shows the current use of a device's memory: the segments and blocks of the allocator, and the
 * storages of this thread, with the op, shape and dtype that allocated them if {@link
 * recordHistory} was on.
 *
 * @throws DeviceError if the device is not there.
 * @see PyTorch `torch.cuda.memory._snapshot`
 */
export function snapshot(which: DeviceName | Device = 'cpu'): MemorySnapshot {
  reportUse('memory.snapshot');
  const found = deviceOf(which);
  streamOf(found); // opens the device, or throws
  const segments = nativeCall(() => writer.addon.memorySnapshot(found.code), 'memory.snapshot');
  const storages = liveStorages(writer.addon, found);
  return {
    device: String(found),
    recording: history.isRecorded,
    stats: stats(found),
    segments,
    storages,
    holders: groupHolders(storages),
  };
}

/**
 * Turns recording of the op, shape and dtype of each new storage on or off, for {@link snapshot}
 * and the message of an OutOfMemoryError. Turning it off deletes the records. It is on from the
 * start with `SHARDWISE_MEMORY_HISTORY=1`. While it is on, an op that allocates costs some tenths
 * of a microsecond more.
 *
 * @see PyTorch `torch.cuda.memory._record_memory_history`
 */
export function recordHistory(enabled = true): void {
  checkFlag('memory.recordHistory', 'enabled', enabled);
  reportUse('memory.recordHistory');
  runDeferred('memory.recordHistory() was called');
  setRecording(enabled);
}
