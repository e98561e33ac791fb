/** The calls of the addon that tell of memory and return it. */

export interface NativeMemoryStats {
  allocatedBytes: number;
  reservedBytes: number;
  peakAllocatedBytes: number;
  peakReservedBytes: number;
  /** Blocks in use. */
  liveBlocks: number;
  allocations: number;
  frees: number;
  segments: number;
  /** Free bytes in the cache, and the largest free block. */
  cachedBytes: number;
  largestFreeBlock: number;
  /** Storages that only the garbage collector will free, and their bytes. */
  tokens: number;
  tokenBytes: number;
  outOfMemoryRetries: number;
  /** Reserved bytes that kernels use as scratch memory; not in the allocated bytes. */
  scratchBytes: number;
  /**
   * Pinned host memory: of tensors, and reserved from the driver. Counted for the CPU, and in no
   * other number.
   */
  pinnedBytes: number;
  pinnedReservedBytes: number;
}

export interface NativeSegment {
  address: number;
  bytes: number;
  stream: number;
  /**
   * `pending`: free for its stream, but in use by commands in flight. `scratch`: used by kernels of
   * a stream.
   */
  blocks: { offset: number; bytes: number; state: 'allocated' | 'scratch' | 'pending' | 'free' }[];
}

export interface MemoryCalls {
  memoryStats(device: number): NativeMemoryStats;
  resetPeakStats(device: number): void;
  memorySnapshot(device: number): NativeSegment[];
  /**
   * Four float64 numbers for each live storage of this thread: handle, bytes, device, and 0 for
   * memory of the allocator, 1 for an ArrayBuffer's, 2 for pinned.
   */
  liveStorages(): ArrayBuffer;
  isPinned(handle: number): boolean;
  /**
   * Returns cached free memory to the system; with `idleMs`, only memory that was free for so long.
   */
  emptyCache(device: number, idleMs: number): void;
  /**
   * Writes into words: the storages with tokens that no graph saved, their bytes, and the bytes of
   * saved ones. After {@link deferFinalizers}, frees the storages of collected tokens first.
   */
  tokenCounts(): void;
  /** From now on tokens have no finalizers, because this runtime runs them too late. */
  deferFinalizers(): void;
  /** Returns free memory of the C heap, for example of ArrayBuffers, to the system. */
  trimHeap(): void;
}
