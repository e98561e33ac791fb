/** The `cuda` namespace: availability, devices, memory, streams and events. */
import { runDeferred } from '../core/deferred.js';
import { type Device, deviceByCode, device as deviceOf } from '../core/device.js';
import { ArgumentError, DeviceError, FreedError } from '../core/errors.js';
import {
  checkFlag,
  checkFunction,
  checkNumber,
  checkSynchronous,
  optionsOf,
  unexpected,
} from '../core/options.js';
import { waitingCall } from '../eager/memory.js';
import {
  nativeCall,
  newStream,
  prepareDevice,
  streamOf,
  translate,
  writer,
} from '../eager/submit.js';
import type { NativeDeviceInfo } from '../native/addon.js';
import { nativeError } from '../native/guard.js';
import type { NativeMemoryStats, NativeSegment } from '../native/memory-calls.js';
import { type CudaStatus, cudaStatus, requireCuda } from './status.js';

export * from '../core/absent-names/cuda.js';
export type { CudaStatus } from './status.js';

/**
 * Whether a CUDA device can be used.
 *
 * @example
 * const model = new nn.Linear(8, 4).to(cuda.isAvailable() ? 'cuda' : 'cpu');
 */
export function isAvailable(): boolean {
  return cudaStatus().available;
}

/** Null if CUDA can be used, else the candidates tried and advice. */
export function whyUnavailable(): Extract<CudaStatus, { available: false }> | null {
  const status = cudaStatus();
  return status.available ? null : status;
}

/** Number of CUDA devices; 0 without CUDA. */
export function deviceCount(): number {
  return isAvailable() ? writer.addon.deviceCount('cuda') : 0;
}

/** A CUDA device by index, by name, or itself. */
export type CudaDevice = number | Device | `cuda:${number}` | 'cuda';

function cudaDevice(which: CudaDevice = 'cuda'): Device {
  if (typeof which === 'number')
    checkNumber('cuda', 'the device', which, { from: 0, to: 999, whole: true });
  const found = typeof which === 'number' ? deviceByCode(1 + which) : deviceOf(which);
  if (found.type !== 'cuda')
    throw new DeviceError(`cuda: expected a CUDA device, got ${found}`, { device: String(found) });
  requireCuda(found);
  return found;
}

/** Name, compute capability and memory of a device. @throws DeviceError */
export function getDeviceProperties(which?: CudaDevice): NativeDeviceInfo {
  const { code } = cudaDevice(which);
  return nativeCall(() => writer.addon.deviceInfo(code), 'getDeviceProperties');
}

function statsOf(device: Device): NativeMemoryStats {
  return nativeCall(() => writer.addon.memoryStats(device.code), 'memoryStats');
}

/** Statistics of the caching allocator of a device. */
export function memoryStats(which?: CudaDevice): NativeMemoryStats {
  return statsOf(cudaDevice(which));
}

/** Bytes in tensors. */
export const memoryAllocated = (which?: CudaDevice): number => memoryStats(which).allocatedBytes;
/** Bytes taken from the device, cached ones included. */
export const memoryReserved = (which?: CudaDevice): number => memoryStats(which).reservedBytes;
/** The most bytes in tensors so far. */
export const maxMemoryAllocated = (which?: CudaDevice): number =>
  memoryStats(which).peakAllocatedBytes;
/** The most bytes taken from the device so far. */
export const maxMemoryReserved = (which?: CudaDevice): number =>
  memoryStats(which).peakReservedBytes;

/** Resets the peaks to the current values. */
export function resetPeakMemoryStats(which?: CudaDevice): void {
  const { code } = cudaDevice(which);
  nativeCall(() => writer.addon.resetPeakStats(code), 'resetPeakMemoryStats');
}

/** Every segment of the allocator and the blocks in it. */
export function memorySnapshot(which?: CudaDevice): NativeSegment[] {
  const { code } = cudaDevice(which);
  return nativeCall(() => writer.addon.memorySnapshot(code), 'memorySnapshot');
}

/** Returns unused cached memory to the device. */
export function emptyCache(): void {
  for (let i = 0; i < deviceCount(); i++) writer.addon.emptyCache(1 + i, 0);
}

/**
 * Blocks until the device has finished the work of its current stream. @throws KernelError of an
 * earlier op
 */
export function synchronize(which?: CudaDevice): void {
  const found = cudaDevice(which);
  found.runtime.world.checkWait('synchronize');
  waitingCall(() => writer.addon.synchronize(streamOf(found)), 'synchronize', found);
}

// Each stream has a native thread and each event a device object; the garbage collector frees those
// that were not disposed.
const droppedStreams = new FinalizationRegistry<number>((id) => writer.addon.streamDestroy(id));
const droppedEvents = new FinalizationRegistry<number>((id) => writer.addon.eventDestroy(id));

/**
 * A queue of work on one device. Work of different streams may overlap; tensors used on several
 * streams are synchronized automatically. A stream has a thread, which ends after `dispose()` or
 * after the stream is collected; tensors created on it stay valid.
 */
export class Stream {
  /** The device whose work the stream orders. */
  readonly device: Device;
  private native = -1;

  constructor(options: { device?: CudaDevice | 'cpu'; priority?: number } = {}) {
    const { device, priority = 0 } = optionsOf('Stream', options, 'device priority');
    checkNumber('Stream', 'priority', priority, { whole: true });
    this.device = device === 'cpu' ? deviceByCode(0) : cudaDevice(device);
    prepareDevice(this.device); // possibly the first use of the device
    this.native = nativeCall(() => newStream(this.device, priority), 'Stream');
    droppedStreams.register(this, this.native, this);
  }

  /** @internal */
  get id(): number {
    if (this.native < 0)
      throw new FreedError('Stream: this stream was disposed', { device: String(this.device) });
    return this.native;
  }

  /** Frees the stream without waiting; work given to it still completes. */
  dispose(): void {
    if (this.native < 0) return;
    droppedStreams.unregister(this);
    writer.addon.streamDestroy(this.native);
    this.native = -1;
  }

  /** The same as {@link Stream.dispose}. */
  [Symbol.dispose](): void {
    this.dispose();
  }

  /** Blocks until everything given to the stream is done. @throws KernelError */
  synchronize(): void {
    this.device.runtime.world.checkWait('Stream.synchronize');
    waitingCall(() => writer.addon.synchronize(this.id), 'Stream.synchronize', this.device);
  }

  /** Resolves when everything given to the stream is done. @throws KernelError */
  done(): Promise<void> {
    const { id, device } = this;
    runDeferred('a stream was waited for');
    return new Promise((resolve, reject) => {
      writer.addon.whenDone(id, (failure) => {
        if (failure === null) {
          resolve();
          return;
        }
        const error = nativeError(failure);
        device.runtime.unobserved.observe(error);
        reject(translate(error, 'Stream.done', [], device));
      });
    });
  }

  /** Whether everything given to the stream is done. @throws DeviceError if the device was lost */
  query(): boolean {
    return nativeCall(() => writer.addon.streamQuery(this.id), 'Stream.query');
  }

  /** Work given to this stream from now on waits for the event. */
  waitEvent(event: Event): void {
    if (!(event instanceof Event)) throw unexpected('Stream.waitEvent', 'event', 'an event', event);
    nativeCall(() => writer.addon.eventWait(event.idOn(this.device), this.id), 'Stream.waitEvent');
  }

  /** Work given to this stream from now on waits for the current work of the other one. */
  waitStream(other: Stream): void {
    checkStream('Stream.waitStream', other);
    const event = other.recordEvent();
    try {
      this.waitEvent(event);
    } finally {
      event[Symbol.dispose]();
    }
  }

  /** Records an event at the current end of the stream. */
  recordEvent(event: Event = new Event()): Event {
    if (!(event instanceof Event))
      throw unexpected('Stream.recordEvent', 'event', 'an event', event);
    event.record(this);
    return event;
  }
}

/** A point in a stream: to wait for, or to measure the time between two. */
export class Event {
  private id = -1;
  private device: Device | null = null;
  private readonly enableTiming: boolean;

  constructor(options: { enableTiming?: boolean } = {}) {
    const { enableTiming = false } = optionsOf('Event', options, 'enableTiming');
    checkFlag('Event', 'enableTiming', enableTiming);
    this.enableTiming = enableTiming;
  }

  /** @internal */
  idOn(device: Device): number {
    if (this.id < 0) {
      this.id = nativeCall(() => writer.addon.eventCreate(device.code, this.enableTiming), 'Event');
      droppedEvents.register(this, this.id, this);
    }
    return this.id;
  }

  /**
   * Marks the current end of a stream: by default that of the innermost `cuda.stream`, else the
   * current stream of `cuda`.
   */
  record(stream?: Stream): void {
    if (stream !== undefined) checkStream('Event.record', stream);
    const named = stream ?? surrounding;
    const device = named?.device ?? cudaDevice();
    const id = named?.id ?? streamOf(device);
    nativeCall(() => writer.addon.eventRecord(this.idOn(device), id), 'Event.record');
    this.device = device;
  }

  /** Whether all work before the event is done. */
  query(): boolean {
    return this.id < 0 || nativeCall(() => writer.addon.eventQuery(this.id), 'Event.query');
  }

  /** Blocks until all work before the event is done. @throws KernelError of an earlier op */
  synchronize(): void {
    if (this.device === null) return;
    this.beforeWaiting('Event.synchronize', this.device);
    waitingCall(() => writer.addon.eventSynchronize(this.id), 'Event.synchronize', this.device);
  }

  /**
   * Milliseconds from this event to a later one, which it waits for. Both need `enableTiming`.
   *
   * @throws ArgumentError for an event without timing, DeviceError for one that was not recorded,
   * KernelError of an earlier op, which would make the time meaningless
   */
  elapsedTime(end: Event): number {
    if (!(end instanceof Event)) throw unexpected('elapsedTime', 'end', 'an event', end);
    if (!this.enableTiming || !end.enableTiming)
      throw new ArgumentError('elapsedTime: expected two events made with { enableTiming: true }');
    if (this.device === null || end.device === null)
      throw new DeviceError('elapsedTime: both events must have been recorded');
    this.beforeWaiting('Event.elapsedTime', this.device);
    end.beforeWaiting('Event.elapsedTime', end.device);
    return waitingCall(
      () => writer.addon.eventElapsedMs(this.id, end.id),
      'Event.elapsedTime',
      this.device,
    );
  }

  /** An event that is done needs no wait, whatever was called since. */
  private beforeWaiting(op: string, { runtime }: Device): void {
    if (runtime.world.isShared && !this.query()) runtime.world.checkWait(op);
  }

  /** Frees the event. */
  [Symbol.dispose](): void {
    if (this.id < 0) return;
    droppedEvents.unregister(this);
    writer.addon.eventDestroy(this.id);
    this.id = -1;
    this.device = null;
  }
}

function checkStream(op: string, value: unknown): void {
  if (!(value instanceof Stream)) throw unexpected(op, 'the stream', 'a cuda.Stream', value);
}

/** The stream of the innermost {@link stream} call. */
let surrounding: Stream | null = null;

/**
 * Runs `fn` with `s` as the current stream of its device. @throws ArgumentError for an async
 * function, FreedError for a disposed stream
 */
export function stream<T>(s: Stream, fn: () => T): T {
  checkStream('cuda.stream', s);
  checkFunction('cuda.stream', 'fn', fn);
  const { currentStream } = s.device;
  const outer = surrounding;
  s.device.currentStream = s.id;
  surrounding = s;
  let result: T;
  try {
    result = fn();
  } finally {
    s.device.currentStream = currentStream;
    surrounding = outer;
  }
  checkSynchronous('cuda.stream', result, 'it would leave the stream at its first await');
  return result;
}
