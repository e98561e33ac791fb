/**
 * Errors of the addon. Native code throws nothing (native/addon/failure.h says why): a call that
 * fails returns null, and the failure that `takeFailure` returns is thrown here.
 */
import { identify } from '../core/unobserved-failures.js';
import type { Addon, NativeAddon } from './addon.js';
import type { NativeFailure } from './failure.js';

/** @internal */
export type NativeError = Error &
  Pick<NativeFailure, 'code' | 'memory' | 'collective' | 'flightRecord'>;

/** The error for a native failure. @internal */
export function nativeError(failure: NativeFailure): NativeError {
  const { code, message, id, namesCreations, memory, collective, flightRecord } = failure;
  const error = Object.assign(new Error(message), { code });
  // Not enumerable: the message says the same to whoever prints the error.
  Object.defineProperties(error, {
    memory: { value: memory },
    collective: { value: collective },
    flightRecord: { value: flightRecord },
  });
  if (id !== 0) identify(error, { id, namesCreations });
  return error;
}

/**
 * The addon with functions that throw. Those of every op are written out: each is then compiled for
 * the one native function it calls.
 */
export function guard(native: NativeAddon): Addon {
  const {
    takeFailure,
    submit,
    runPlan,
    collective,
    allocate,
    release,
    releaseMany,
    makeToken,
    savedToken,
    setSaved,
    write,
    readSync,
    readScalar,
  } = native;

  function value<T>(result: T | null): T {
    if (result === null) throw nativeError(takeFailure());
    return result;
  }

  function guarded(call: Call): Call {
    return (...args) => value(call(...args));
  }

  const { takeFailure: _own, ...rest } = native;
  const plain = Object.entries(rest).map(([name, each]) => [
    name,
    typeof each === 'function' ? guarded(each as Call) : each,
  ]);
  return {
    ...(Object.fromEntries(plain) as Addon),
    submit: (numWords) => value(submit(numWords)),
    runPlan: (plan, stream, withTokens, goesOn = false) =>
      value(runPlan(plan, stream, withTokens, goesOn)),
    collective: (numWords) => value(collective(numWords)),
    allocate: (stream, bytes, withToken) => value(allocate(stream, bytes, withToken)),
    release: (handle) => value(release(handle)),
    releaseMany: (count) => value(releaseMany(count)),
    makeToken: (handle) => value(makeToken(handle)),
    savedToken: (handle) => value(savedToken(handle)),
    setSaved: (handle, saved) => value(setSaved(handle, saved)),
    write: (handle, byteOffset, source, stream) => value(write(handle, byteOffset, source, stream)),
    readSync: (handle, byteOffset, destination, stream) =>
      value(readSync(handle, byteOffset, destination, stream)),
    readScalar: (handle, byteOffset, dtype, stream) =>
      value(readScalar(handle, byteOffset, dtype, stream)),
  };
}

type Call = (...args: unknown[]) => unknown;
