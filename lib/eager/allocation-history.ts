/**
 * Records the op that allocated each live storage, for `memory.snapshot` and OutOfMemoryError. Off
 * by default.
 */
import type { Storage } from '../core/storage.js';
import type { Tensor } from '../core/tensor.js';
import { loadAddon } from '../native/load.js';

/** The op that allocated a storage, and the tensor that it allocated it for. */
export interface StorageOrigin {
  /** The op that allocated the storage. */
  readonly op: string;
  /** The dtype of its first tensor. */
  readonly dtype: string;
  /** The shape of its first tensor. */
  readonly shape: readonly number[];
}

/** Whether recording is on. Read by every op, so a plain property. */
export const history = { isRecorded: process.env['SHARDWISE_MEMORY_HISTORY'] === '1' };

/** By native handle. Handles are never reused, so entries of freed storages only cost memory. */
const origins = new Map<number, StorageOrigin>();
const LEAST_BEFORE_SWEEP = 8192;
/** How many numbers the addon gives for each live storage: handle, bytes, device, memory. */
export const LIVE_STORAGE_FIELDS = 4;
let sweepAt = LEAST_BEFORE_SWEEP;

/** Turns recording on or off; off also clears the records. */
export function setRecording(enabled: boolean): void {
  history.isRecorded = enabled;
  if (!enabled) origins.clear();
}

export function originOf(handle: number): StorageOrigin | null {
  return origins.get(handle) ?? null;
}

/** The number of recorded storages, including some that were freed. */
export function numRecorded(): number {
  return origins.size;
}

/** The outputs that the next command will allocate. */
export function unallocated(outputs: readonly Tensor[]): Tensor[] {
  return outputs.filter(
    ({ storage }) => storage !== null && storage.handle === 0 && storage.freedBy === null,
  );
}

/** Records the op that allocated the storages of these tensors. */
export function recordStorages(op: string, made: readonly Tensor[]): void {
  for (const t of made)
    origins.set((t.storage as Storage).handle, { op, dtype: t.dtype.name, shape: t.sizes });
  if (origins.size > sweepAt) sweep();
}

/** Drops freed storages. Runs once for as many recordings as storages survive, so it costs O(1). */
function sweep(): void {
  const live = new Set(liveHandles());
  for (const handle of origins.keys()) if (!live.has(handle)) origins.delete(handle);
  sweepAt = Math.max(LEAST_BEFORE_SWEEP, 2 * origins.size);
}

/** The handles of all live storages of this thread. */
function* liveHandles(): Generator<number> {
  const list = new Float64Array(loadAddon().liveStorages());
  for (let i = 0; i < list.length; i += LIVE_STORAGE_FIELDS) yield list[i] as number;
}
