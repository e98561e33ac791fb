/**
 * The addon's exports, the only native interface. Handles, stream and event ids are plain numbers.
 *
 * Devices are numbered: 0 is the CPU, 1 + n is `cuda:n`. A storage handle is `generation * 2^24 +
 * index`, so a use after free is caught natively. Failures throw an `Error` whose `code` is one of
 * {@link NativeErrorCode}: in `guard.ts`, since native code itself throws nothing.
 */
export type NativeErrorCode =
  | 'SW_INVALID'
  | 'SW_OUT_OF_MEMORY'
  | 'SW_INDEX'
  | 'SW_DEVICE'
  | 'SW_UNSUPPORTED'
  | 'SW_CLOSED'
  | 'SW_LOST'
  | 'SW_PEER';

/** A garbage-collection token: when it is collected, the storage it was made for is freed. */
export type Token = object;

export interface NativeDeviceInfo {
  name: string;
  detail: string;
  totalBytes: number;
  freeBytes: number;
  major: number;
  minor: number;
  numCores: number;
}

export interface NativeMemoryStats {
  allocatedBytes: number;
  reservedBytes: number;
  peakAllocatedBytes: number;
  peakReservedBytes: number;
  /** Blocks handed out and not yet freed. */
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
  /** Of the reserved bytes: what the kernels of each stream work in. Not in the allocated bytes. */
  scratchBytes: number;
  /**
   * Pinned host memory in tensors, and taken from the driver; counted here for the CPU and in no
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
   * `pending`: free for its stream, and still used by commands in flight. `scratch`: what kernels
   * of a stream work in.
   */
  blocks: { offset: number; bytes: number; state: 'allocated' | 'scratch' | 'pending' | 'free' }[];
}

/**
 * An addon as it is loaded: a function that fails returns null, and `takeFailure` says why, once.
 */
export type NativeAddon = {
  readonly [K in keyof Addon]: Addon[K] extends (...args: infer A) => infer R
    ? (...args: A) => R | null
    : Addon[K];
} & { takeFailure(): string };

export interface Addon {
  readonly abi: number;
  /** The shared command buffer, viewed as Float64Array by lib/native/command.ts. */
  readonly words: ArrayBuffer;
  readonly kernelNames: string[];

  /** Opens cuda-backend.so. Returns undefined, or the reason why it cannot be used. */
  openBackend(path: string, cublasltCandidates: string, ncclCandidates: string): string | undefined;
  /**
   * Tries dlopen of a library by path or soname; returns where it was found and its version, or the
   * reason.
   */
  probeLibrary(
    name: string,
    versionSymbol: string | null,
  ): { path: string; version: number } | { reason: string };
  deviceCount(type: 'cpu' | 'cuda'): number;
  deviceInfo(device: number): NativeDeviceInfo;
  setBlocking(blocking: boolean): void;

  /**
   * Of the configurations that kernels of the CUDA backend choose among; tables made for another do
   * not fit. 0 without the backend.
   */
  tuningVersion(): number;
  /**
   * Replaces the device's table of measured configurations: native/cuda/kernels/matmul/matmul_table.h has
   * its form. Empty: none. Throws, and changes nothing, for what cannot be read.
   */
  loadTuning(device: number, table: string): void;
  /**
   * Names of the configurations worth measuring for a product such as "bfloat16 nt 1 4096 4096
   * 4096", one a line; empty for what is no product.
   */
  tuningConfigurations(device: number, product: string): string;
  /**
   * The configuration that computed the device's last large product, and why it was taken: "stream
   * table", "library near", "wgmma:128x256 rule". Empty before the first.
   */
  lastTuned(device: number): string;

  /**
   * Runs or enqueues the command in words[0 .. numWords). Outputs to be allocated get their handle
   * written into the words. Returns undefined, or (flag 1) the token of the allocated output, or an
   * array of tokens when there are several. With flag 2 too, undefined for a single output means
   * that it shares the token that was returned last for a single output.
   */
  submit(numWords: number): undefined | Token | Token[];

  /** Allocates on the stream; the handle is written to words[0]. */
  allocate(stream: number, bytes: number, withToken: boolean): undefined | Token;
  /**
   * A CPU storage in host memory that a GPU reads and writes by itself; needs an open CUDA backend.
   * The handle is written to words[0].
   */
  allocatePinned(bytes: number, withToken: boolean): undefined | Token;
  /**
   * Zero-copy: a CPU storage over memory of an ArrayBuffer, which it keeps alive. The handle is
   * written to words[0].
   */
  adopt(
    buffer: ArrayBuffer,
    byteOffset: number,
    bytes: number,
    withToken: boolean,
  ): undefined | Token;
  makeToken(handle: number): Token;
  release(handle: number): void;
  /** Frees the handles in words[0 .. count). */
  releaseMany(count: number): void;
  /**
   * Changes the size of a storage, keeping its handle and the bytes that fit. 0 frees the memory.
   */
  resize(handle: number, bytes: number, stream: number): void;
  recordStream(handle: number, stream: number): void;

  write(handle: number, byteOffset: number, source: ArrayBufferView, stream: number): void;
  /** Blocks until the stream has produced the bytes. */
  readSync(handle: number, byteOffset: number, destination: ArrayBufferView, stream: number): void;
  readScalar(handle: number, byteOffset: number, dtype: number, stream: number): number | bigint;
  readAsync(
    handle: number,
    byteOffset: number,
    destination: ArrayBufferView,
    stream: number,
    done: (failure: string | null) => void,
  ): void;
  /**
   * Copies raw bytes between any two storages, in order with both their streams; runs on `stream`.
   */
  copyBytes(
    destination: number,
    destinationOffset: number,
    source: number,
    sourceOffset: number,
    bytes: number,
    stream: number,
  ): void;

  defaultStream(device: number): number;
  /**
   * `home`: 0, or a number for each rank that shares the process: its stream takes any number of
   * commands without waiting until some are done, and who reads on it hears of that rank's failures
   * alone.
   */
  streamCreate(device: number, priority: number, home: number): number;
  /**
   * Does not wait: the thread of the stream ends when it has nothing left to do, and the id may be
   * given out again.
   */
  streamDestroy(stream: number): void;
  /** Blocks; throws the first error that happened on the stream since the last synchronisation. */
  synchronize(stream: number): void;
  /** `failure`: as `takeFailure` says it; {@link nativeError} makes an error of it. */
  whenDone(stream: number, done: (failure: string | null) => void): void;
  streamQuery(stream: number): boolean;

  eventCreate(device: number, timing: boolean): number;
  eventDestroy(event: number): void;
  eventRecord(event: number, stream: number): void;
  eventWait(event: number, stream: number): void;
  eventQuery(event: number): boolean;
  eventSynchronize(event: number): void;
  eventElapsedMs(start: number, end: number): number;

  /** Ends this process some seconds after the one that made it, whatever it does then. */
  endWithParent(): void;

  /**
   * Takes the exclusive lock of an open file (`flock`) without waiting. It belongs to the open
   * file: closing it, or the end of the process, gives it back. @returns 0, or the number of the
   * system's error: EWOULDBLOCK where another open file has it
   */
  lockFile(fd: number): number;

  /**
   * Memory that the ranks of this process share as a group of `size`, who are words[0 .. size) in
   * their world; each joins it with {@link joinLocal}. `use` says how much: 0 for a world, 1 for a
   * part of it, 2 for ranks that only meet in it. `group` is its name in errors.
   */
  localRegion(size: number, use: number, group: string): number;
  /** No more ranks will join. */
  dropRegion(region: number): void;
  /**
   * For the other ranks to see: `rank` makes the `number`-th group, from 1, of the ranks words[0 ..
   * size), called `name`, at `where`. `world`: the region or the member of a group that has all
   * ranks. Throws where another rank has made that one of other ranks.
   */
  announceGroup(
    world: number,
    rank: number,
    number: number,
    size: number,
    name: string,
    where: string,
  ): void;
  /**
   * Joining does not wait for other ranks. All calls of the member run on the stream, in order.
   * `world` is the region of a group that has all its ranks, which are words[0 .. size) there: who
   * leaves that before it comes is not waited for. 0: none.
   */
  joinLocal(
    region: number,
    rank: number,
    size: number,
    stream: number,
    timeoutMs: number,
    world: number,
  ): number;
  /**
   * A group of processes of this machine, found by `name` (letters, digits, '-', '_', '.') and
   * `token`, a whole number that is the same on all ranks. `use` and `group` as of {@link
   * localRegion}; `world` as of {@link joinLocal}, but a member. `first` and `where`: the call that
   * it is made for, which fails if it cannot be made; empty for none.
   */
  joinShared(
    rank: number,
    size: number,
    stream: number,
    timeoutMs: number,
    token: number,
    use: number,
    world: number,
    name: string,
    group: string,
    first: string,
    where: string,
  ): number;
  /**
   * The ranks of a group of hosts as a group of devices, one each: by the device's own engine. What
   * they call is compared between the hosts. The new member takes the other's place, which leaves
   * with it. `sharesProcess`, 0 or 1: others of the ranks are in this process.
   */
  joinDevices(hostMember: number, stream: number, timeoutMs: number, sharesProcess: number): number;
  /**
   * Cuts a group of devices into several: each of its ranks calls it, with a group of the hosts of
   * its part, which the part takes as {@link joinDevices} does, and with a color that no other part
   * has; or with 0, for none, and returns 0. `where` is for errors.
   */
  splitDevices(
    member: number,
    hostMember: number,
    stream: number,
    timeoutMs: number,
    color: number,
    where: string,
  ): number;
  /** Opens gloo-engine.so. Returns undefined, or the reason why it cannot be used. */
  openGloo(path: string): string | undefined;
  /**
   * Begins a world of ranks on several machines: others may connect to this rank at `host`, an
   * address of this machine. Returns the addresses where they find it, one for each, of equal
   * length; the world's id is written to words[0].
   */
  glooListen(rank: number, size: number, timeoutMs: number, host: string): ArrayBuffer;
  /**
   * Enqueues connecting to all. `addresses` are those that the other ranks have for this one, in
   * their order.
   */
  glooConnect(world: number, stream: number, addresses: ArrayBuffer): void;
  /**
   * A group of the world's ranks in words[0 .. size), which waits for them on the stream. No two
   * have one name; `group` is what errors call it; `first` and `where` as of {@link joinShared}.
   */
  glooJoin(
    world: number,
    rank: number,
    size: number,
    stream: number,
    timeoutMs: number,
    name: string,
    group: string,
    first: string,
    where: string,
  ): number;
  /**
   * Instead of {@link glooJoin}: tells those who wait for this rank in the group that it will not
   * come, because the rank at `place` of the group gave up for a reason, or because it has left:
   * `''`.
   */
  glooDecline(
    world: number,
    rank: number,
    size: number,
    stream: number,
    timeoutMs: number,
    name: string,
    group: string,
    first: string,
    where: string,
    place: number,
    reason: string,
  ): void;
  /** The rank makes no more groups. */
  glooLeave(world: number, stream: number): void;
  /**
   * Enqueues the call in words[0 .. numWords): member, kind, reduction, dtype, root, count, input
   * handle, its first byte, output handle, its first byte, number of counts, three numbers of
   * texts; then the counts. The texts: what the program called, and where, for errors; and what the
   * ranks must have in common beside the call, in words, which a line of advice may follow.
   */
  collective(numWords: number): void;
  /**
   * What a number from 1 to 4095 stands for in the calls to come, on this thread. 0 is the empty
   * text.
   */
  setText(number: number, text: string): void;
  /**
   * Its present and later calls fail with the reason, on all ranks. `place`: in the group, of the
   * rank that gives up, mostly its own.
   */
  abortGroup(member: number, reason: string, place: number): void;
  /** Once its calls are done. */
  leaveGroup(member: number): void;

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
   * Returns cached free memory to the system; with `idleMs`, only what has been free for that long.
   */
  emptyCache(device: number, idleMs: number): void;
  /**
   * Writes the number of live tokens and the bytes of their storages, of all devices, into the
   * first two words.
   */
  tokenCounts(): void;
  /** Gives memory that the C heap holds free, of ArrayBuffers for example, back to the system. */
  trimHeap(): void;
  /** Waits for everything, stops threads. Called by tests; process exit needs no call. */
  shutdown(): void;
}
