/**
 * The TypeScript side of native engines: writes a collective into the words shared with the addon,
 * which enqueues it on the stream of the group.
 */
import { type CollectiveCall, collectiveKinds } from '../../core/collective.js';
import { deferred, runDeferred } from '../../core/deferred.js';
import type { Device } from '../../core/device.js';
import { DistributedError } from '../../core/errors.js';
import { layers } from '../../core/hooks.js';
import { reduceOpNames } from '../../core/placement.js';
import { currentRuntime } from '../../core/rank-runtime.js';
import { FAKE_HANDLE, type Storage } from '../../core/storage.js';
import type { Tensor } from '../../core/tensor.js';
import { nativeCall, newStream, streamOf, translate, writer } from '../../eager/submit.js';
import { encodeReason, type NativeReason } from '../../native/failure.js';
import { nativeError } from '../../native/guard.js';
import { TextNumbers } from '../../native/text-numbers.js';
import type { BackendName, Engine, GroupPlan } from './engine.js';

const HEADER_WORDS = 17;
const PART_WORDS = 5;
let shared: Float64Array | undefined;
let texts: TextNumbers | undefined;

/** The memory shared with the addon. @internal */
export function words(): Float64Array {
  shared ??= new Float64Array(writer.addon.words);
  return shared;
}

/** Resolves when all work enqueued on the stream so far is done. @internal */
export function streamDone(stream: number, op: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const runtime = currentRuntime();
    try {
      nativeCall(
        () =>
          writer.addon.whenDone(stream, (failure) =>
            failure === null
              ? resolve()
              : runtime.reject(translate(nativeError(failure), op, []), reject),
          ),
        op,
      );
    } catch (error) {
      runtime.reject(error, reject);
    }
  });
}

/**
 * Joins the native group on first use. `decline` instead reports to the peers that this rank never
 * will, because the group's rank `place` gave up for a reason (`''`: it just left). @internal
 */
export interface LazyMember {
  join(): number;
  decline(reason: string, place: number): void;
}

/** The stream that a group's calls get; {@link leaveStream} ends it. @internal */
export function streamOfGroup({ ownStream = false }: GroupPlan, device: Device): number {
  return ownStream ? newStream(device, 0) : streamOf(device);
}

/** Ends the stream of a group, if that has its own, once its calls are done. @internal */
export function leaveStream({ ownStream = false }: GroupPlan, stream: number): void {
  if (ownStream) writer.addon.streamDestroy(stream);
}

/** Passes a list of ranks to the next addon call, in the shared words. @internal */
export function writeRanks(ranks: readonly number[]): void {
  runDeferred('a group of ranks was used'); // else the next call would, and overwrite them
  words().set(ranks);
}

/** @internal */
export class NativeEngine implements Engine {
  readonly name: BackendName;
  readonly lane: number;
  private readonly membership: number | LazyMember;
  private joined: number | null = null;
  private left = false;
  private readonly onLeave: (() => void) | undefined;

  /** @param onLeave - called once, when the rank leaves */
  constructor(
    name: BackendName,
    member: number | LazyMember,
    stream: number,
    onLeave?: () => void,
  ) {
    this.name = name;
    this.membership = member;
    this.lane = stream;
    this.onLeave = onLeave;
  }

  /** The native handle of the membership. */
  get member(): number {
    const { membership } = this;
    this.joined ??= typeof membership === 'number' ? membership : membership.join();
    return this.joined;
  }

  run(name: string, call: CollectiveCall, where: string, about: string): void {
    if (deferred.run !== null) runDeferred(`${name} was called`);
    const list = words();
    const { counts, sendCounts, parts, input, output } = call;
    const tensor = input ?? output;
    list[0] = this.member;
    list[1] = collectiveKinds.indexOf(call.kind);
    list[2] = reduceOpNames.indexOf(call.reduceOp ?? 'sum');
    list[3] = tensor === null ? 0 : tensor.dtype.code;
    list[4] = parts?.length ?? call.root ?? 0;
    list[5] = tensor === null ? 0 : tensor.numel();
    list[14] = call.timeoutMs ?? 0;
    place(name, list, 6, parts === undefined ? input : null);
    place(name, list, 8, parts === undefined ? output : null);
    let at = HEADER_WORDS;
    if (counts !== undefined)
      for (let i = 0; i < counts.length; i++) list[at++] = counts[i] as number;
    if (sendCounts !== undefined)
      for (let i = 0; i < sendCounts.length; i++) list[at++] = sendCounts[i] as number;
    list[10] = at - HEADER_WORDS;
    if (parts !== undefined)
      for (const part of parts) {
        place(name, list, at, part.input);
        place(name, list, at + 2, part.output);
        list[at + 4] = Math.min(part.input.numel(), part.output.numel()); // of one rank
        at += PART_WORDS;
      }
    at = writeShape(list, 15, at, parts === undefined ? input : null);
    at = writeShape(list, 16, at, parts === undefined ? output : null);
    texts ??= new TextNumbers(writer.addon);
    texts.write(list, 11, name, where, about);
    try {
      writer.addon.collective(at);
    } catch (error) {
      throw translate(error, name, tensor === null ? [] : [tensor]);
    }
  }

  finished(): Promise<void> {
    const runtime = currentRuntime();
    void this.member;
    return streamDone(this.lane, 'wait').catch((error) => {
      runtime.world.afterFailure(this.lane);
      throw error;
    });
  }

  abort(reason: NativeReason, place: number): void {
    if (this.left || this.declines(reason.message, place)) return;
    writer.addon.abortGroup(this.member, encodeReason(reason), place);
  }

  leave(): void {
    if (this.left || this.declines('', 0)) return;
    this.left = true;
    writer.addon.leaveGroup(this.member);
    this.onLeave?.();
  }

  private declines(reason: string, place: number): boolean {
    if (this.joined !== null || typeof this.membership === 'number') return false;
    this.left = true;
    this.membership.decline(reason, place);
    this.onLeave?.();
    return true;
  }
}

/** Native code records so many. */
const MOST_DIMS = 8;

/** Writes the number of dims, -1 without an operand, and their sizes; returns where words end. */
function writeShape(list: Float64Array, countAt: number, at: number, t: Tensor | null): number {
  const sizes = t?.sizes;
  const count = sizes === undefined ? -1 : Math.min(sizes.length, MOST_DIMS);
  list[countAt] = count;
  for (let i = 0; i < count; i++) list[at + i] = sizes?.[i] as number;
  return at + Math.max(count, 0);
}

/** Writes handle and byte offset of an operand; 0 without an operand. */
function place(name: string, list: Float64Array, at: number, t: Tensor | null): void {
  const storage = t === null || t.numel() === 0 ? null : t.liveStorage(name);
  if (storage?.handle === FAKE_HANDLE) {
    layers.backend.capture?.unsupported(`${name} was called`);
    throw new DistributedError(
      `${name}: fake tensors have no values to send. Under FakeTensorMode, use a process group ` +
        "of the backend 'fake'.",
      { op: name },
    );
  }
  list[at] = storage === null ? 0 : (storage as Storage).handle;
  list[at + 1] = storage === null ? 0 : (t as Tensor).storageOffset * (t as Tensor).dtype.itemsize;
}
