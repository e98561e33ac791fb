/** Where user code is: for errors about what it did. */
import { findSourceMap } from 'node:module';

/** User code mostly stands close; what is deeper is looked at again. Each frame costs a quarter of a microsecond. */
const FEW_FRAMES = 14;
const MOST_FRAMES = 60;

type Frame = NodeJS.CallSite;

/** The innermost frames as objects: far cheaper than their text. */
function framesBelow(caller: (...args: never[]) => unknown, most: number): readonly Frame[] {
  const [limit, prepare] = [Error.stackTraceLimit, Error.prepareStackTrace];
  Error.stackTraceLimit = most;
  Error.prepareStackTrace = (_, frames) => frames;
  const holder: { stack?: readonly Frame[] } = {};
  Error.captureStackTrace(holder, caller);
  const frames = holder.stack ?? [];
  Error.stackTraceLimit = limit;
  Error.prepareStackTrace = prepare;
  return frames;
}

/** The folder of the library's own code, as frames name it, with the slash at its end. */
export const ownFolder: string = ((): string => {
  const own = framesBelow(framesBelow, 1)[0]?.getFileName() ?? '';
  return /^.*[\\/](?:lib|dist)[\\/]/.exec(own)?.[0] ?? 'nowhere';
})();

/** Texts of places seen before: a program has few, and calls them again and again. */
const texts = new Map<string, Map<number, string>>();
/** Of the call that is under way, where it was looked up already. */
const known: { site: string | null } = { site: null };

/** The innermost stack frame outside of the library, such as `forward (model.ts:12:5)`; empty if there is none. */
export function callSite(): string {
  return known.site ?? findSite(FEW_FRAMES) ?? findSite(MOST_FRAMES) ?? '';
}

function findSite(most: number): string | null {
  for (const frame of framesBelow(callSite, most)) {
    const file = frame.getFileName();
    if (file === null || file === undefined || file.startsWith(ownFolder) || file.startsWith('node:')) continue;
    return textOf(frame, file);
  }
  return null;
}

/** Names of the library's functions between the program and here, the outermost first. Takes its time: for errors. */
export function calledFunctions(): string[] {
  const names: string[] = [];
  for (const frame of framesBelow(calledFunctions, MOST_FRAMES)) {
    const file = frame.getFileName();
    if (file === null || file === undefined || file.startsWith('node:')) continue;
    if (!file.startsWith(ownFolder)) break;
    names.unshift(frame.getFunctionName() ?? '');
  }
  return names;
}

/** Runs `fn`, in which every {@link callSite} is the one of this call: it is found while the stack is short. */
export function atCallSite<T>(fn: () => T): T {
  const before = known.site;
  known.site ??= callSite();
  try {
    return fn();
  } finally {
    known.site = before;
  }
}

function textOf(frame: Frame, file: string): string {
  let places = texts.get(file);
  if (places === undefined) {
    places = new Map();
    texts.set(file, places);
  }
  const position = frame.getPosition();
  let text = places.get(position);
  if (text === undefined) {
    text = describe(frame, file);
    places.set(position, text);
  }
  return text;
}

function describe(frame: Frame, file: string): string {
  const [line, column] = [frame.getLineNumber() ?? 0, frame.getColumnNumber() ?? 0];
  const mapped = findSourceMap(file)?.findEntry(line - 1, column - 1);
  const place = mapped !== undefined && 'originalLine' in mapped ? `${mapped.originalSource}:${mapped.originalLine + 1}:${mapped.originalColumn + 1}` : `${file}:${line}:${column}`;
  const short = place.replace(/^file:\/\//, '');
  const name = frame.getFunctionName();
  return name === null || name === '' ? short : `${name} (${short})`;
}
