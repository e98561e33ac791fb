/**
 * What memory is for, told to whoever counts it: FakeTensorMode. Nothing is said while nobody
 * counts.
 */
import type { Storage } from './storage.js';

/**
 * What the memory of a training program is for. `activation`: saved for backward, and nothing else.
 */
export type MemoryRole = 'parameter' | 'buffer' | 'gradient' | 'optimizerState' | 'activation';

/** Everything is null while nobody counts. @internal */
export const memoryRoles: {
  /** The memory has a role from now on. */
  mark: ((storage: Storage | null, role: MemoryRole) => void) | null;
  /** A tensor that had one memory has another one now, which takes over its role. */
  swap: ((before: Storage, next: Storage) => void) | null;
  /** Something that is no op reads or writes the memory. */
  use: ((storage: Storage | null) => void) | null;
} = { mark: null, swap: null, use: null };
