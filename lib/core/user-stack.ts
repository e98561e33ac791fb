/**
 * Stacks of the library's errors: they show the program's frames, and the library's own only where
 * there are no others.
 */
import { ownFolder } from './call-site.js';

/** Between the program and an error there may be many frames of the library. */
const CAPTURED_FRAMES = 100;
/** As a checkout or an installed package has it: sources, and what is made of them. */
const root = ownFolder.replace(/^file:\/\//, '').replace(/(?:lib|dist)[\\/]$/, '');
const ownPlaces = [`${root}lib/`, `${root}dist/`];

interface Trace {
  /** Formatted when it is read for the first time, which takes far longer than to capture it. */
  stack?: string;
}

const traces = new WeakMap<Error, Trace>();

function capture(below: (...args: never[]) => unknown): Trace {
  const trace: Trace = {};
  const { stackTraceLimit } = Error;
  if (stackTraceLimit > 0) Error.stackTraceLimit = CAPTURED_FRAMES;
  Error.captureStackTrace(trace, below);
  Error.stackTraceLimit = stackTraceLimit;
  return trace;
}

/**
 * Makes `stack` begin with the message as it is when it is read, and go on with the frames of the
 * program.
 *
 * @param below - the function from which on frames count
 * @param always - whether the library's own frames stand there if there are no others: not where
 * the message says the place
 */
export function showUserFrames(
  error: Error,
  below: (...args: never[]) => unknown,
  always: boolean,
): void {
  traces.set(error, capture(below));
  delete error.stack; // to replace it would format it first
  Object.defineProperty(error, 'stack', {
    get: () => {
      const lines = userLines(traces.get(error)?.stack ?? '', always).slice(
        0,
        Math.max(10, Error.stackTraceLimit),
      );
      return [`${error.name}: ${error.message}`, ...lines].join('\n');
    },
    set: (value: unknown) =>
      Object.defineProperty(error, 'stack', {
        value,
        writable: true,
        configurable: true,
        enumerable: false,
      }),
    configurable: true,
    enumerable: false,
  });
}

/**
 * The error of a native callback, which nobody of the program has called, with the frames that
 * await it here.
 */
export function seenHere<T>(error: T): T {
  if (!(error instanceof Error)) return error;
  const known = traces.get(error);
  if (known !== undefined && userLines(known.stack ?? '', false).length === 0)
    traces.set(error, capture(seenHere));
  return error;
}

function userLines(stack: string, always: boolean): string[] {
  const lines = stack.split('\n').filter((line) => line.startsWith('    at '));
  if (process.env['SHARDWISE_FULL_STACK'] === '1') return lines;
  let isUsers = false;
  const kept = lines.filter((line) => {
    // Frames of the engine, such as Array.map, belong to their caller.
    if (/[\\/]/.test(line) && !/\bnode:/.test(line))
      isUsers = !ownPlaces.some((place) => line.includes(place));
    else if (/\bnode:/.test(line)) isUsers = false;
    return isUsers;
  });
  return kept.length === 0 && always ? lines : kept;
}
