/**
 * Native memory: allocates storages outside of commands, frees and resizes them, and moves values
 * in and out.
 */
import type { ValueAccess } from '../core/backend.js';
import { type Device, deviceByCode } from '../core/device.js';
import type { DType } from '../core/dtype.js';
import { DeviceError } from '../core/errors.js';
import { currentRuntime } from '../core/rank-runtime.js';
import { currentScope } from '../core/scope-stack.js';
import { contiguousStrides, type Shape } from '../core/shape.js';
import { type NativeMemory, Storage } from '../core/storage.js';
import { Tensor } from '../core/tensor.js';
import type { NativeFailure } from '../native/failure.js';
import { nativeError } from '../native/guard.js';
import { recordBorrowed } from './aliasing.js';
import { history, recordStorages } from './allocation-history.js';
import { fakeTensor, noValues } from './fake-backend.js';
import { addAllocated, addUnsaved, collectBeforeStep, endPass } from './gc-policy.js';
import {
  allocatingCall,
  nativeCall,
  prepareDevice,
  streamOf,
  translate,
  writer,
} from './submit.js';

/** Makes the open scope, or else the collector, the owner of a new storage. */
function own(storage: Storage, token: object | undefined): void {
  const scope = currentScope;
  if (scope !== null) {
    storage.scope = scope;
    scope.storages.push(storage);
  } else storage.token = token ?? null;
}

function words(): Float64Array {
  shared ??= new Float64Array(writer.addon.words);
  return shared;
}
let shared: Float64Array | undefined;

/** A storage with memory, owned by the open scope or the collector. */
export function allocateNow(device: Device, bytes: number): Storage {
  const storage = new Storage(device, bytes);
  const stream = streamOf(device);
  const token = allocatingCall(
    () => writer.addon.allocate(stream, bytes, currentScope === null),
    'empty',
    device,
  );
  storage.handle = words()[0] as number;
  own(storage, token as object | undefined);
  addAllocated(storage);
  return storage;
}

/**
 * A CPU storage in pinned host memory, owned by the open scope or the collector. The CUDA backend
 * gives it.
 *
 * @throws DeviceError without CUDA, with the reason.
 */
export function allocatePinned(bytes: number): Storage {
  try {
    prepareDevice(deviceByCode(1));
  } catch (error) {
    if (!(error instanceof DeviceError)) throw error;
    const message =
      'pinMemory: pinned memory is for copies to and from a GPU and comes from CUDA, which ' +
      `cannot be used here. Leave it out where cuda.isAvailable() is false.\n${error.message}`;
    throw new DeviceError(message, { op: 'pinMemory', bytes }, { cause: error });
  }
  const storage = new Storage(deviceByCode(0), bytes);
  const token = allocatingCall(
    () => writer.addon.allocatePinned(bytes, currentScope === null),
    'pinMemory',
    deviceByCode(0),
  );
  storage.handle = words()[0] as number;
  own(storage, token as object | undefined);
  addAllocated(storage);
  return storage;
}

/** A CPU storage on the memory of a typed array, without a copy. */
export function adoptArray(array: ArrayBufferView, device: Device): Storage {
  const storage = new Storage(device, array.byteLength);
  const token = allocatingCall(
    () =>
      writer.addon.adopt(
        array.buffer as ArrayBuffer,
        array.byteOffset,
        array.byteLength,
        currentScope === null,
      ),
    'fromBlob',
    device,
  );
  storage.handle = words()[0] as number;
  recordBorrowed(storage, array);
  own(storage, token as object | undefined);
  return storage;
}

export const nativeMemory: NativeMemory = {
  release(handle) {
    writer.addon.release(handle);
  },
  releaseMany(storages, count) {
    const list = words();
    for (let start = 0; start < count; start += list.length) {
      const end = Math.min(count, start + list.length);
      for (let i = start; i < end; i++) list[i - start] = (storages[i] as Storage).handle;
      writer.addon.releaseMany(end - start);
    }
  },
  makeToken(handle) {
    return writer.addon.makeToken(handle);
  },
  savedToken(handle) {
    return writer.addon.savedToken(handle);
  },
  save(handle) {
    writer.addon.setSaved(handle, 1);
  },
  unsave(handle, bytes) {
    const isFreed = writer.addon.setSaved(handle, 0);
    // A tensor of the program has it, or had it and waits for the collector.
    if (!isFreed) addUnsaved(bytes);
    return isFreed;
  },
  isPinned(handle) {
    return writer.addon.isPinned(handle);
  },
  startStep: collectBeforeStep,
  endPass,
  recordStream(handle, stream) {
    nativeCall(() => writer.addon.recordStream(handle, stream), 'recordStream');
  },
  resize(handle, bytes, device) {
    allocatingCall(() => writer.addon.resize(handle, bytes, streamOf(device)), 'resize_', device);
  },
};

/** Writes the bytes of a typed array into a dense tensor. The array may be reused at once. */
export function writeBytes(t: Tensor, source: ArrayBufferView): void {
  const storage = t.liveStorage('write');
  allocatingCall(
    () =>
      writer.addon.write(
        storage.handle,
        t.storageOffset * t.dtype.itemsize,
        source,
        streamOf(t.device),
      ),
    'write',
    t.device,
  );
}

/** 0 for a tensor without elements, which may begin past the end of its storage. */
const firstByte = (t: Tensor): number => (t.numel() === 0 ? 0 : t.storageOffset * t.dtype.itemsize);

/** Reads the bytes of a dense tensor; blocks until they are computed. */
export function readBytesSync(t: Tensor, destination: ArrayBufferView): void {
  const storage = t.liveStorage('read');
  if (t.device.type === 'meta') throw noValues('read', t);
  t.device.runtime.world.checkWait('read');
  const read = (): void =>
    writer.addon.readSync(storage.handle, firstByte(t), destination, streamOf(t.device));
  waitingCall(read, 'read', t.device, [t]);
}

/** Reads a dense tensor's bytes without blocking the event loop. */
export function readBytes(t: Tensor, destination: ArrayBufferView): Promise<void> {
  const storage = t.liveStorage('read');
  if (t.device.type === 'meta') throw noValues('read', t);
  storage.retain(); // the memory stays until the bytes are read, even if its scope ends
  const { turns } = currentRuntime();
  const read = readWhenDone(t, storage, destination);
  return turns === null ? read : turns.wait('read', read);
}

function readWhenDone(t: Tensor, storage: Storage, destination: ArrayBufferView): Promise<void> {
  const stream = streamOf(t.device);
  return new Promise<void>((resolve, reject) => {
    const { runtime } = t.device;
    const fail = (error: unknown): void =>
      runtime.reject(translate(error, 'read', [t]), (explained) => {
        runtime.unobserved.observe(explained);
        reject(explained);
      });
    const release = (): void => {
      if (storage.handle !== 0) storage.release();
    };
    const done = (failure: NativeFailure | null): void => {
      release();
      if (failure === null) {
        resolve();
        return;
      }
      runtime.world.afterFailure(stream);
      fail(nativeError(failure));
    };
    try {
      writer.addon.readAsync(storage.handle, firstByte(t), destination, stream, done);
    } catch (error) {
      release();
      fail(error);
    }
  });
}

/** A wait that throws reports the failure: other work that fails with it is known. */
function observing<T>({ runtime }: Device, wait: () => T): T {
  try {
    return wait();
  } catch (error) {
    runtime.unobserved.observe(error);
    throw error;
  }
}

/** A call that JavaScript waits in. @internal */
export function waitingCall<T>(
  wait: () => T,
  op: string,
  device: Device,
  operands: readonly Tensor[] = [],
): T {
  try {
    return nativeCall(() => observing(device, wait), op, operands, device);
  } catch (error) {
    device.runtime.world.explainAtOnce(error);
    throw error;
  }
}

/** Reads one element; blocks until it is computed. */
export function readElement(t: Tensor): number | bigint {
  const storage = t.liveStorage('item');
  if (t.device.type === 'meta') throw noValues('item', t);
  t.device.runtime.world.checkWait('item');
  const read = (): number | bigint =>
    writer.addon.readScalar(
      storage.handle,
      t.storageOffset * t.dtype.itemsize,
      t.dtype.code,
      streamOf(t.device),
    );
  return waitingCall(read, 'item', t.device, [t]);
}

const freshTensor = (shape: Shape, dtype: DType, device: Device, storage: Storage): Tensor =>
  new Tensor(shape, contiguousStrides(shape), 0, dtype, device, storage);

/** Values of tensors in device memory. */
export const nativeValues: ValueAccess = {
  fromRaw(raw, shape, dtype, device) {
    if (device.type === 'meta') return fakeTensor({ shape, strides: null, dtype, device });
    const t = freshTensor(shape, dtype, device, allocateNow(device, raw.byteLength));
    if (history.isRecorded) recordStorages('tensor', [t]);
    if (raw.byteLength > 0) writeBytes(t, raw);
    return t;
  },
  adopt(array, shape, dtype) {
    const host = deviceByCode(0);
    const t = freshTensor(shape, dtype, host, adoptArray(array, host));
    if (history.isRecorded) recordStorages('fromBlob', [t]);
    return t;
  },
  readSync: readBytesSync,
  read: readBytes,
  readElement,
};
