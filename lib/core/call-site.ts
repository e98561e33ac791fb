/** Finds the place in user code that called the library, for errors. */
import { findSourceMap } from 'node:module';
import { callContext } from './call-context.js';

/**
 * Each frame costs a fifth of a microsecond, so a lookup captures only as many frames as recent
 * lookups needed.
 */
const FEW_FRAMES = 24;
const MOST_FRAMES = 60;
const PLACES_LOOKED_BACK = 64;
/** More than a line has. */
const MOST_COLUMNS = 2 ** 26;

type Frame = NodeJS.CallSite;

const asTheyAre = (_: Error, frames: readonly Frame[]): readonly Frame[] => frames;

/** The innermost frames outside of `below`, as objects, because formatting them costs far more. */
function innermostFrames(most: number, below: (...args: never[]) => unknown): readonly Frame[] {
  const limit = Error.stackTraceLimit;
  const prepare = Error.prepareStackTrace;
  Error.stackTraceLimit = most;
  Error.prepareStackTrace = asTheyAre;
  // An object without a prototype: V8 converts any other one first.
  const holder: { stack?: readonly Frame[] } = Object.create(null);
  Error.captureStackTrace(holder, below);
  const frames = holder.stack;
  Error.stackTraceLimit = limit;
  Error.prepareStackTrace = prepare;
  return frames ?? [];
}

/** The folder of the library's own code as stack frames spell it, with the slash at its end. */
export const ownFolder: string = ((): string => {
  const own = innermostFrames(1, innermostFrames)[0]?.getFileName() ?? '';
  return /^.*[\\/](?:lib|dist)[\\/]/.exec(own)?.[0] ?? 'nowhere';
})();

/** Formatted call sites. A program has few of them and reaches them again and again. */
const texts = new Map<string, Map<number, string>>();

/** The most frames that any recent lookup needed. */
let usual = FEW_FRAMES;
let deepest = 0;
let found = 0;

/**
 * The innermost stack frame outside of the library, such as `forward (model.ts:12:5)`; empty if
 * there is none.
 *
 * @param below - a function of the library that the program has called: if it is on the stack, only
 * the frames outside of it count
 */
export function callSite(below: (...args: never[]) => unknown = callSite): string {
  return (
    callContext.site ??
    siteAmong(innermostFrames(usual, below), usual) ??
    siteAmong(innermostFrames(MOST_FRAMES, callSite), MOST_FRAMES) ??
    ''
  );
}

/** Frames from a call of an op in a hook or a gradient of the program to that code. */
const NEAR_FRAMES = 16;

/**
 * As {@link callSite} for calls that the library makes for many ops, far below the program: its
 * site is `outer`, unless code of the program is near, as that of a hook.
 */
export function callSiteBelow(outer: () => string): string {
  return (
    callContext.site ??
    siteAmong(innermostFrames(NEAR_FRAMES, callSiteBelow), NEAR_FRAMES) ??
    outer()
  );
}

/**
 * Null if the search must be repeated with more frames: `most` were captured and all belong to the
 * library, or none were captured because `below` is not on the stack.
 */
function siteAmong(frames: readonly Frame[], most: number): string | null {
  for (let i = 0; i < frames.length; i++) {
    const frame = frames[i] as Frame;
    const file = frame.getFileName();
    if (
      file === null ||
      file === undefined ||
      file.startsWith(ownFolder) ||
      file.startsWith('node:')
    )
      continue;
    recordDepth(i + 1);
    return textOf(frame, file);
  }
  return frames.length > 0 && frames.length < most ? '' : null;
}

function recordDepth(frames: number): void {
  if (frames > deepest) deepest = Math.min(frames, FEW_FRAMES);
  if (++found < PLACES_LOOKED_BACK && deepest <= usual) return;
  usual = deepest;
  found = 0;
  deepest = 0;
}

/**
 * Runs `fn`, and every {@link callSite} inside returns the call site of this call. Finding it here
 * is cheap, because the stack is short.
 *
 * @param below - see {@link callSite}
 */
export function atCallSite<T>(fn: () => T, below: (...args: never[]) => unknown = atCallSite): T {
  const before = callContext.site;
  callContext.site ??= callSite(below);
  try {
    return fn();
  } finally {
    callContext.site = before;
  }
}

function textOf(frame: Frame, file: string): string {
  let places = texts.get(file);
  if (places === undefined) {
    places = new Map();
    texts.set(file, places);
  }
  const position = positionOf(frame);
  let text = places.get(position);
  if (text === undefined) {
    text = describe(frame, file);
    places.set(position, text);
  }
  return text;
}

/** A number for the place in its file. Bun and Deno lack `getPosition`, the cheapest one. */
function positionOf(frame: Frame): number {
  if (typeof frame.getPosition === 'function') return frame.getPosition();
  return (frame.getLineNumber() ?? 0) * MOST_COLUMNS + (frame.getColumnNumber() ?? 0);
}

function describe(frame: Frame, file: string): string {
  const [line, column] = [frame.getLineNumber() ?? 0, frame.getColumnNumber() ?? 0];
  const mapped = findSourceMap(file)?.findEntry(line - 1, column - 1);
  const place =
    mapped !== undefined && 'originalLine' in mapped
      ? `${mapped.originalSource}:${mapped.originalLine + 1}:${mapped.originalColumn + 1}`
      : `${file}:${line}:${column}`;
  const short = place.replace(/^file:\/\//, '');
  const name = nameOf(frame);
  return name === '' ? short : `${name} (${short})`;
}

/**
 * Empty for a function without a name. V8 then suggests one from the text around it, such as
 * `compile.fullgraph` for the function in `compile(() => …, { fullgraph: true })`.
 */
function nameOf(frame: Frame): string {
  const name = frame.getFunctionName() ?? '';
  return name.includes('.') && frame.getMethodName() === null ? '' : name;
}
