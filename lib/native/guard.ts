/**
 * Errors of the addon. Native code throws nothing (native/addon/values.h says why): a call that
 * fails returns null, and what `takeFailure` then says is thrown here.
 */
import type { Addon, NativeAddon } from './addon.js';

/**
 * Between the code and the message, and before what is for programs: as native/include/status.h has
 * them.
 */
const FIELD_MARK = '\x1f';
const FACTS_MARK = '\x1e';

/** The error for a failure as native code says it. */
export function nativeError(failure: string): Error & { code: string; facts?: string } {
  const codeEnd = failure.indexOf(FIELD_MARK);
  const factsStart = failure.indexOf(FACTS_MARK);
  const message = failure.slice(codeEnd + 1, factsStart < 0 ? undefined : factsStart);
  const error = Object.assign(new Error(message), { code: failure.slice(0, codeEnd) });
  return factsStart < 0 ? error : Object.assign(error, { facts: failure.slice(factsStart + 1) });
}

/**
 * The addon with functions that throw. Those of every op are written out: each is then compiled for
 * the one native function it calls.
 */
export function guard(native: NativeAddon): Addon {
  const {
    takeFailure,
    submit,
    collective,
    allocate,
    release,
    releaseMany,
    makeToken,
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
    collective: (numWords) => value(collective(numWords)),
    allocate: (stream, bytes, withToken) => value(allocate(stream, bytes, withToken)),
    release: (handle) => value(release(handle)),
    releaseMany: (count) => value(releaseMany(count)),
    makeToken: (handle) => value(makeToken(handle)),
    write: (handle, byteOffset, source, stream) => value(write(handle, byteOffset, source, stream)),
    readSync: (handle, byteOffset, destination, stream) =>
      value(readSync(handle, byteOffset, destination, stream)),
    readScalar: (handle, byteOffset, dtype, stream) =>
      value(readScalar(handle, byteOffset, dtype, stream)),
  };
}

type Call = (...args: unknown[]) => unknown;
