/**
 * The addon's exports, the only native interface. Handles, stream and event ids are plain numbers.
 *
 * Devices are numbered: 0 is the CPU, 1 + n is `cuda:n`. A storage handle is `generation * 2^24 +
 * index`, so a use after free is caught natively. Failures throw an `Error` whose `code` is one of
 * `NativeErrorCode`: in `guard.ts`, since native code itself throws nothing.
 */
import type { EncodedReason, NativeFailure } from './failure.js';
import type { MemoryCalls } from './memory-calls.js';
import type { ProfileCalls } from './profile-calls.js';

/** A garbage-collection token: when it is collected, its storage is freed. */
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

/** A loaded addon. A function that fails returns null, and `takeFailure` then returns why, once. */
export type NativeAddon = {
  readonly [K in keyof Addon]: Addon[K] extends (...args: infer A) => infer R
    ? (...args: A) => R | null
    : Addon[K];
} & { takeFailure(): NativeFailure };

export interface Addon extends MemoryCalls, ProfileCalls {
  readonly abi: number;
  /** The shared command buffer, viewed as Float64Array by lib/native/command.ts. */
  readonly words: ArrayBuffer;
  readonly kernelNames: string[];

  /** Opens cuda-backend.so. Returns undefined, or the reason why it cannot be used. */
  openBackend(
    path: string,
    cublasltCandidates: string,
    ncclCandidates: string,
    nvrtcCandidates: string,
  ): string | undefined;
  /**
   * Opens a library by path or soname; returns its path and version, or the reason why it cannot be
   * opened.
   */
  probeLibrary(
    name: string,
    versionSymbol: string | null,
  ): { path: string; version: number } | { reason: string };
  deviceCount(type: 'cpu' | 'cuda'): number;
  deviceInfo(device: number): NativeDeviceInfo;
  /** Whether the kernel fused_pointwise runs on the device. */
  canFuse(device: number): boolean;
  setBlocking(blocking: boolean): void;

  /**
   * The version of the matmul configurations; tables of another version do not fit. 0 without the
   * backend.
   */
  tuningVersion(): number;
  /**
   * Replaces the table of measured configurations of the device;
   * native/cuda/kernels/matmul/matmul_table.h has the format. An empty text removes it. Throws, and
   * changes nothing, for an invalid table.
   */
  loadTuning(device: number, table: string): void;
  /**
   * The configurations worth measuring for a product such as "bfloat16 nt 1 4096 4096 4096", one
   * per line; empty for an invalid product.
   */
  tuningConfigurations(device: number, product: string): string;
  /**
   * The configuration of the last large product on the device, and why it was chosen: "stream
   * table", "library near", "wgmma:128x256 rule". Empty before the first.
   */
  lastTuned(device: number): string;

  /**
   * Runs or enqueues the command in words[0 .. numWords) and writes the handles of allocated
   * outputs into the words. Returns undefined, or (flag 1) the token of the allocated output, or an
   * array of tokens. With flag 2 as well, undefined means that a single output shares the token
   * that was returned last for one.
   */
  submit(numWords: number): undefined | Token | Token[];

  /**
   * Decodes and checks the commands of a plan for a device (native/README.md has their words).
   * Writes its id to words[0]. The plan is freed with the token.
   */
  createPlan(words: Float64Array, device: number): Token;
  /**
   * Runs or enqueues all commands of a plan. The words have handle and first byte of each given
   * storage, then random state; afterwards the handles of the outputs. Returns as {@link submit}
   * does for `withTokens`, or false, and has done nothing, if a given storage was freed, is too
   * small, has no value, or is of an ArrayBuffer or another device. When it throws, words[0] is the
   * index of the command that failed, or -1 if none has run, and words[1] is 1 if a call with `goesOn`
   * can continue the run, which keeps its memory for that: there was none for results.
   */
  runPlan(
    ...args: [plan: number, stream: number, withTokens: boolean, goesOn?: boolean]
  ): undefined | false | Token | Token[];

  /** Allocates on the stream; writes the handle to words[0]. */
  allocate(stream: number, bytes: number, withToken: boolean): undefined | Token;
  /**
   * A CPU storage in pinned host memory; needs an open CUDA backend. Writes the handle to words[0].
   */
  allocatePinned(bytes: number, withToken: boolean): undefined | Token;
  /**
   * A CPU storage over the memory of an ArrayBuffer, without a copy; keeps the buffer alive. Writes
   * the handle to words[0].
   */
  adopt(
    buffer: ArrayBuffer,
    byteOffset: number,
    bytes: number,
    withToken: boolean,
  ): undefined | Token;
  /** A storage is freed with its last token. */
  makeToken(handle: number): Token;
  /** Saves a storage for graphs until the token is collected: it then needs no other token. */
  savedToken(handle: number): Token;
  /** Saves (1) or not (0). Returns whether it freed a storage, which had no tokens. */
  setSaved(handle: number, saved: 0 | 1): boolean;
  release(handle: number): void;
  /** Frees the handles in words[0 .. count). */
  releaseMany(count: number): void;
  /** Resizes a storage; keeps its handle and the bytes that fit. 0 frees the memory. */
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
    done: (failure: NativeFailure | null) => void,
  ): void;
  /** Copies bytes between two storages, in order with both their streams; runs on `stream`. */
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
   * `rankRuntime`: 0, or a number for each rank that shares the process. The stream of such a rank
   * takes any number of commands without waiting, and its readers get the failures of that rank
   * only.
   */
  streamCreate(device: number, priority: number, rankRuntime: number): number;
  /** Does not wait: the thread of the stream ends when it is idle, and the id may be reused. */
  streamDestroy(stream: number): void;
  /** Blocks; throws the first error on the stream since the last synchronisation. */
  synchronize(stream: number): void;
  /** {@link nativeError} makes an error of `failure`. */
  whenDone(stream: number, done: (failure: NativeFailure | null) => void): void;
  streamQuery(stream: number): boolean;

  eventCreate(device: number, timing: boolean): number;
  eventDestroy(event: number): void;
  eventRecord(event: number, stream: number): void;
  eventWait(event: number, stream: number): void;
  eventQuery(event: number): boolean;
  eventSynchronize(event: number): void;
  eventElapsedMs(start: number, end: number): number;

  /** Ends this process some seconds after its parent, whatever it does then. */
  endWithParent(): void;

  /**
   * Takes an exclusive lock on an open file (`flock`) without waiting. The lock belongs to the open
   * file and ends when that is closed or the process ends. @returns 0, or the error number of the
   * system: EWOULDBLOCK if another open file has the lock
   */
  lockFile(fd: number): number;

  /**
   * Creates the shared memory of a group of ranks of this process. The group has `size` ranks, in
   * words[0 .. size); each joins it with {@link joinLocal}. `use` selects the amount: 0 for a
   * world, 1 for a subgroup, 2 for a rendezvous. `group` is its name in errors.
   */
  localRegion(size: number, use: number, group: string): number;
  /** No more ranks will join. */
  dropRegion(region: number): void;
  /**
   * Publishes the `number`-th group of `rank`, from 1: the ranks in words[0 .. size), its `name`,
   * and its call site `where`. `world`: the region or the member of the world. Throws if another
   * rank created that group with other ranks.
   */
  publishGroup(
    world: number,
    rank: number,
    number: number,
    size: number,
    name: string,
    where: string,
  ): void;
  /**
   * Joins a group without waiting for other ranks. All calls of the member run on the stream, in
   * order. `world` is the region of the world, or 0: a rank that left the world is not waited for.
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
   * A group of processes of this machine, identified by `name` (letters, digits, "-", "_", ".") and
   * `token`, an integer that is equal on all ranks. `use` and `group` as in {@link localRegion};
   * `world` as in {@link joinLocal}, but a member. `first` and `where`: the call that needs the
   * group and fails if joining fails; may be empty. It waits `joinTimeoutMs` for the other ranks.
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
    joinTimeoutMs: number,
  ): number;
  /**
   * Creates a group of devices, one per rank, from a group of hosts, by the engine of the devices.
   * The hosts compare the calls. The new member replaces the host member, which leaves with it.
   * `sharesProcess`, 0 or 1: other ranks are in this process. `maxCtas`: the most multiprocessors
   * that a collective occupies; 0 for the engine's choice.
   */
  joinDevices(
    hostMember: number,
    stream: number,
    timeoutMs: number,
    sharesProcess: number,
    maxCtas: number,
  ): number;
  /**
   * Splits a group of devices. Each rank calls it with a group of the hosts of its subgroup, which
   * the subgroup takes over as {@link joinDevices} does, and with the color of the subgroup; or
   * with 0, which gives no subgroup and returns 0. `where` is for errors.
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
   * The rank of this runtime compiles `what` from now on: no rank of this environment calls
   * anything until {@link compiled}. Ranks that wait for one of them do not count that time, up to
   * `limitMs`.
   */
  compiling(what: string, limitMs: number, rankRuntime: number): void;
  compiled(): void;
  /**
   * Begins a world on several machines: other ranks may connect to this one at `host`, an address
   * of this machine. Returns an address for each of them, of equal length; writes the id of the
   * world to words[0].
   */
  glooListen(rank: number, size: number, timeoutMs: number, host: string): ArrayBuffer;
  /**
   * Enqueues the connections to all ranks. `addresses`: those that the other ranks returned for
   * this one, in rank order.
   */
  glooConnect(world: number, stream: number, addresses: ArrayBuffer): void;
  /**
   * Joins a group of the ranks in words[0 .. size), which waits for them on the stream. Names are
   * unique; `group` is the name in errors; `first` and the following as in {@link joinShared}.
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
    joinTimeoutMs: number,
  ): number;
  /**
   * Instead of {@link glooJoin}: informs ranks that wait in the group that this rank will not join,
   * because the rank at `place` gave up with this reason, or because it has left: `''`.
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
  /** The rank creates no more groups. */
  glooLeave(world: number, stream: number): void;
  /**
   * Enqueues the call in words[0 .. numWords): member, kind, reduction, dtype, root, count, input
   * handle, its first byte, output handle, its first byte, number of counts, the numbers of three
   * texts, how long to wait in ms or 0 for the time of the group; then the counts. The texts: the
   * call and its place, for errors; and what the ranks must have in common beside the call, with an
   * optional line of advice.
   */
  collective(numWords: number): void;
  /**
   * Assigns a text to a number from 1 to 4095 for later calls of this thread. 0 is the empty text.
   */
  setText(number: number, text: string): void;
  /**
   * The present and later calls of the group fail with the reason on all ranks. `place`: the rank
   * of the group that gives up, mostly its own.
   */
  abortGroup(member: number, reason: EncodedReason, place: number): void;
  /** Leaves the group after its calls so far. */
  leaveGroup(member: number): void;

  /** Waits for everything and stops threads. For tests; process exit needs no call. */
  shutdown(): void;
}
