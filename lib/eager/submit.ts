/**
 * Submitting a command: native errors get the op, shapes and dtypes; memory pressure is answered by
 * collecting garbage.
 */

import { deferred, runDeferred } from '../core/deferred.js';
import type { Device } from '../core/device.js';
import {
  CollectiveError,
  DeviceError,
  FreedError,
  IndexError,
  KernelError,
  OutOfMemoryError,
  ShardwiseError,
} from '../core/errors.js';
import { hooks } from '../core/hooks.js';
import { type AnyOp, allOps, opByName } from '../core/op.js';
import { processRuntime } from '../core/rank-runtime.js';
import { formatShape } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';
import { identify, identityOf } from '../core/unobserved-failures.js';
import type { Addon } from '../native/addon.js';
import { WordWriter } from '../native/command.js';
import type { NativeErrorCode } from '../native/failure.js';
import type { NativeError } from '../native/guard.js';
import { addonOrStandIn, loadAddon } from '../native/load.js';
import { byteRange } from './aliasing.js';
import { history, recordStorages, unallocated } from './allocation-history.js';
import { addPressure, collectGarbage } from './gc-policy.js';
import { describeHolders, largestHolders } from './memory-report.js';

const addon: Addon = addonOrStandIn();

/** The addon, its command words and its kernels. Importing this file loads the addon. */
export const writer = {
  addon,
  words: new WordWriter(addon),
  kernels: new Map(addon.kernelNames.map((name, id) => [name, id])),
  kernelId(op: AnyOp): number {
    const id = op.kernel === null ? undefined : this.kernels.get(op.kernel);
    if (id === undefined) {
      loadAddon(); // throws if there is none at all
      throw new ShardwiseError(
        'ERR_OP',
        `${op.name}: the addon has no kernel "${op.kernel}"; rebuild it with npm run build:native`,
      );
    }
    return id;
  },
};

/** Opens the backend of a device. @throws DeviceError if it cannot be used */
export function prepareDevice(device: Device): void {
  hooks.prepareDevice(device);
}

/** The stream that commands of a device go to. */
export function streamOf(device: Device): number {
  if (device.currentStream < 0) hooks.prepareDevice(device);
  if (device.currentStream < 0)
    device.currentStream = nativeCall(() => openStream(device), `stream of ${device}`);
  return device.currentStream;
}

/** Ranks that share a process have streams of their own: one may wait for another. */
function openStream(device: Device): number {
  return device.runtime === processRuntime
    ? writer.addon.defaultStream(device.code)
    : newStream(device, 0);
}

/**
 * That of a rank which shares the process takes any number of commands: it may wait for what
 * another rank, and so JavaScript, has yet to do. @internal
 */
export function newStream(device: Device, priority: number): number {
  return writer.addon.streamCreate(device.code, priority, device.runtime.id);
}

/** Collects everything that nothing refers to any more. */
export function freeGarbage(): void {
  writer.words.dropToken();
  collectGarbage();
}

export function submitCommand(
  op: AnyOp,
  kernel: number,
  device: Device,
  inputs: readonly Tensor[],
  outputs: readonly Tensor[],
): void {
  const stream = device.currentStream >= 0 ? device.currentStream : streamOf(device);
  const made = history.isRecorded ? unallocated(outputs) : null;
  try {
    writer.words.submit(kernel, stream);
  } catch (error) {
    if (codeOf(error) !== 'SW_OUT_OF_MEMORY') throw translate(error, op.name, inputs, device);
    freeGarbage();
    try {
      writer.words.submit(kernel, stream);
    } catch (second) {
      throw translate(second, op.name, inputs, device);
    }
  }
  if (made !== null) recordStorages(op.name, made);
  addPressure(outputs);
}

/**
 * Calls the addon and rethrows its errors as the library's. Never again after a failure: a call
 * that waits reports the failure of work before it, once, and would then succeed on results that
 * were never computed.
 */
export function nativeCall<T>(
  call: () => T,
  op: string,
  inputs: readonly Tensor[] = [],
  device: Device | undefined = inputs[0]?.device,
): T {
  if (deferred.run !== null) runDeferred(`${op} was called`);
  try {
    return call();
  } catch (error) {
    throw translate(error, op, inputs, device);
  }
}

/**
 * The same for calls that allocate and do not wait: when memory runs out, garbage is collected and
 * the call repeated.
 */
export function allocatingCall<T>(call: () => T, op: string, device: Device): T {
  if (deferred.run !== null) runDeferred(`${op} was called`);
  try {
    return call();
  } catch (error) {
    if (codeOf(error) !== 'SW_OUT_OF_MEMORY') throw translate(error, op, [], device);
    freeGarbage();
    try {
      return call();
    } catch (second) {
      throw translate(second, op, [], device);
    }
  }
}

function codeOf(error: unknown): NativeErrorCode | undefined {
  return (error as { code?: NativeErrorCode })?.code;
}

function isNativeError(error: unknown): error is NativeError {
  const code = codeOf(error);
  return (
    error instanceof Error &&
    !(error instanceof ShardwiseError) &&
    typeof code === 'string' &&
    code.startsWith('SW_')
  );
}

/** A message of native code; where it begins with a kernel, programs may know another name. */
function withPublicName(message: string): string {
  const kernel = /^\w+/.exec(message)?.[0] ?? '';
  const caller = allOps().find((op) => op.kernel === kernel)?.calledBy ?? null;
  return caller === null ? message : caller + message.slice(kernel.length);
}

function outOfMemory(
  message: string,
  details: Record<string, unknown>,
  cause: NativeError,
  device: Device | undefined,
): OutOfMemoryError {
  const known = { ...details, ...cause.memory };
  if (device === undefined) return new OutOfMemoryError(message, known, { cause });
  const { total, holders } = largestHolders(writer.addon, device);
  return new OutOfMemoryError(
    `${message}\n${describeHolders(device, total, holders)}`,
    { ...known, device: String(device) },
    { cause },
    holders,
  );
}

/**
 * The library's error for a native one, with the operands that the op was given; `device` is the
 * one whose memory may have run out.
 */
export function translate(
  error: unknown,
  op: string,
  inputs: readonly Tensor[],
  device: Device | undefined = inputs[0]?.device,
): unknown {
  if (!isNativeError(error)) return error;
  const { code } = error;
  const name = opByName(op)?.calledBy ?? op;
  const operands = inputs.map((t) =>
    t.storage === null
      ? String(t.scalarValue)
      : `${t.dtype.name}${formatShape(t.sizes)} on ${t.device}`,
  );
  const message =
    `${name}: ${withPublicName(error.message)}` +
    `${operands.length ? `\n  operands: ${operands.join('; ')}` : ''}`;
  const details = { op: name, operands };
  const emptied = inputs.find((t) => t.storage !== null && t.storage.nbytes < byteRange(t)[1]);
  if (code === 'SW_INVALID' && emptied !== undefined)
    return resizedAway(emptied, op, message, error);
  switch (code) {
    case 'SW_OUT_OF_MEMORY':
      return outOfMemory(message, details, error, device);
    case 'SW_INDEX':
      return new IndexError(message, details, { cause: error });
    case 'SW_CLOSED':
      return new FreedError(message, details, { cause: error });
    case 'SW_PEER':
      return collectiveError(message, details, error, op);
    case 'SW_DEVICE':
      return new DeviceError(message, details, { cause: error });
    default:
      return new KernelError(message, details, { cause: error });
  }
}

/** Without a cause: the native error says the same. */
function collectiveError(
  message: string,
  details: Record<string, unknown>,
  native: NativeError,
  op: string,
): CollectiveError {
  const { collective, flightRecord } = native;
  const named = collective && { op: collective.op || op || collective.calls[0]?.op || '' };
  const recorded = flightRecord === undefined ? {} : { flightRecord };
  const error = new CollectiveError(
    flightRecord === undefined ? message : `${message}\n  last collectives: ${flightRecord}`,
    { ...details, ...collective, ...named, ...recorded },
  );
  identify(error, identityOf(native));
  return error;
}

function resizedAway(t: Tensor, op: string, message: string, cause: Error): FreedError {
  const given = t.storage?.nbytes ?? 0;
  const expected = byteRange(t)[1];
  const advice =
    t.storage?.explained(t.storageOffset) ??
    `Call untypedStorage().resize_(${expected}) and fill it first.`;
  const text =
    `${message}\n  the memory of ${t.dtype.name}${formatShape(t.sizes)} was resized to ` +
    `${given} bytes, ${expected} are needed. ${advice}`;
  return new FreedError(text, { op, expected, given }, { cause });
}
