/** Reports live storages, and which groups of them use most memory. */
import type { Device } from '../core/device.js';
import type { MemoryHolder } from '../core/errors.js';
import { formatShape } from '../core/shape.js';
import type { Addon } from '../native/addon.js';
import {
  history,
  LIVE_STORAGE_FIELDS,
  originOf,
  type StorageOrigin,
} from './allocation-history.js';

/** A storage of this thread that has not been freed. */
export interface LiveStorage {
  /** The size of the storage. */
  readonly bytes: number;
  /**
   * Where the memory is from: the device's allocator, pinned host memory, or an ArrayBuffer that
   * `fromBlob` was given.
   */
  readonly memory: MemoryHolder['memory'];
  /** The op that allocated it; null if that was not recorded. */
  readonly origin: StorageOrigin | null;
}

/** By the number that native code uses. */
const KINDS = ['allocator', 'arrayBuffer', 'pinned'] as const;
const LARGEST = 10;

/** The storages of a device that have memory. */
export function liveStorages(addon: Addon, device: Device): LiveStorage[] {
  const list = new Float64Array(addon.liveStorages());
  const found: LiveStorage[] = [];
  for (let i = 0; i < list.length; i += LIVE_STORAGE_FIELDS) {
    const [handle, bytes, code, kind] = list.subarray(i, i + LIVE_STORAGE_FIELDS) as unknown as [
      number,
      number,
      number,
      number,
    ];
    if (code === device.code && bytes > 0)
      found.push({
        bytes,
        memory: KINDS[kind] as MemoryHolder['memory'],
        origin: originOf(handle),
      });
  }
  return found;
}

/** Groups storages by size, shape, dtype and op, largest group first. */
export function groupHolders(storages: Iterable<LiveStorage>): MemoryHolder[] {
  const groups = new Map<string, { -readonly [K in keyof MemoryHolder]: MemoryHolder[K] }>();
  for (const { bytes, memory, origin } of storages) {
    const key =
      origin === null
        ? `${bytes} ${memory}`
        : `${bytes} ${memory} ${origin.op} ${origin.dtype} ${origin.shape}`;
    const group = groups.get(key);
    if (group === undefined) {
      groups.set(key, {
        bytes,
        count: 1,
        bytesEach: bytes,
        op: origin?.op ?? null,
        dtype: origin?.dtype ?? null,
        shape: origin?.shape ?? null,
        memory,
      });
    } else {
      group.bytes += bytes;
      group.count++;
    }
  }
  return [...groups.values()].sort((a, b) => b.bytes - a.bytes);
}

/**
 * The groups that use most of a device's memory, and the total of all groups. Memory of
 * ArrayBuffers does not count.
 */
export function largestHolders(
  addon: Addon,
  device: Device,
): { total: { bytes: number; count: number }; holders: MemoryHolder[] } {
  const storages = liveStorages(addon, device).filter((s) => s.memory !== 'arrayBuffer');
  const bytes = storages.reduce((sum, s) => sum + s.bytes, 0);
  return {
    total: { bytes, count: storages.length },
    holders: groupHolders(storages).slice(0, LARGEST),
  };
}

/** The lines of an OutOfMemoryError about them. */
export function describeHolders(
  device: Device,
  total: { bytes: number; count: number },
  holders: readonly MemoryHolder[],
): string {
  const storages = `${total.count} live ${total.count === 1 ? 'storage' : 'storages'}`;
  const lines = [`  largest holders on ${device}, of ${storages} with ${total.bytes} bytes:`];
  for (const { bytes, count, bytesEach, op, dtype, shape, memory } of holders) {
    const what =
      op === null || shape === null ? '' : `: ${dtype}${formatShape(shape)} made by ${op}`;
    lines.push(
      `    ${bytes} bytes in ${count} x ` +
        `${bytesEach}${memory === 'pinned' ? ' of pinned memory' : ''}${what}`,
    );
  }
  if (holders.length === 0) lines.push('    none of this thread');
  if (!history.isRecorded)
    lines.push(
      '  To see shapes, dtypes and the ops that made them, call memory.recordHistory(true) ' +
        'first, or set SHARDWISE_MEMORY_HISTORY=1.',
    );
  return lines.join('\n');
}
