/**
 * Stacks of the library's errors. They show the frames of the program, and those of the library
 * only if there are no others.
 */
import { ownFolder } from './call-site.js';

/**
 * Captures many frames, because there may be many of the library between the program and an error.
 */
const CAPTURED_FRAMES = 100;
/** The parent of lib/ in a checkout, of dist/ in an installed package. */
const root = ownFolder.replace(/^file:\/\//, '').replace(/(?:lib|dist)[\\/]$/, '');
const ownPlaces = [`${root}lib/`, `${root}dist/`];

interface Trace {
  /** V8 formats it on the first read, which takes far longer than the capture. */
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
 * Makes `stack` a property that is formatted on each read: the current message, then the frames of
 * the program.
 *
 * @param below - only the frames outside of this function count
 * @param always - whether to show the library's frames if there are no others; false if the message
 * has the call site
 */
export function showUserFrames(
  error: Error,
  below: (...args: never[]) => unknown,
  always: boolean,
): void {
  traces.set(error, capture(below));
  delete error.stack; // assigning would format it first
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
 * Gives the error of a native callback the frames of the code that awaits it, since no frame of the
 * program called it.
 */
export function seenHere<T>(error: T): T {
  if (!(error instanceof Error)) return error;
  const known = traces.get(error);
  if (known !== undefined && userLines(known.stack ?? '', false).length === 0)
    traces.set(error, capture(seenHere));
  return error;
}

/** The place in the program that called what threw an error of the library; empty if unknown. */
export function siteOf(error: Error): string {
  const [first = ''] = framesOfUser(framesOf(traces.get(error)?.stack ?? ''));
  return first.replace(/^ *at (?:async )?/, '');
}

const framesOf = (stack: string): string[] =>
  stack
    .split('\n')
    .filter((line) => line.startsWith('    at '))
    .map((line) => line.replace(suggestedName, '$1$2'));

/**
 * A frame of a function without a name, with that which V8 suggests: `compile.fullgraph` for the
 * one in `compile(() => …, { fullgraph: true })`. Methods have the name of a class there.
 */
const suggestedName = /^( {4}at (?:async )?)[a-z_$][\w$]*(?:\.[\w$]+)+ \(([^()]+)\)$/;

function userLines(stack: string, always: boolean): string[] {
  const lines = framesOf(stack);
  if (process.env['SHARDWISE_FULL_STACK'] === '1') return lines;
  const kept = framesOfUser(lines);
  return kept.length === 0 && always ? lines : kept;
}

function framesOfUser(lines: readonly string[]): string[] {
  let isUsers = false;
  return lines.filter((line) => {
    // Frames of the engine, such as Array.map, belong to their caller.
    if (/[\\/]/.test(line) && !/\bnode:/.test(line))
      isUsers = !ownPlaces.some((place) => line.includes(place));
    else if (/\bnode:/.test(line)) isUsers = false;
    return isUsers;
  });
}
