/** Where user code is: for errors about what it did while it was captured. */

/** The folder of the library's own sources, with the slash; null where stacks do not tell. */
const ownFolder = /\(?([^\s(]*[\\/](?:lib|dist)[\\/])/.exec(stackLines(8)[0] ?? '')?.[1] ?? null;

function stackLines(limit: number): string[] {
  const before = Error.stackTraceLimit;
  Error.stackTraceLimit = limit;
  const stack = new Error('here').stack ?? '';
  Error.stackTraceLimit = before;
  return stack.split('\n').slice(1);
}

/** The innermost stack frame outside of the library, such as `at forward (model.ts:12:5)`; empty if there is none. */
export function callSite(): string {
  const frame = stackLines(60).find((line) => ownFolder !== null && !line.includes(ownFolder) && /(?<!node:internal.*):\d+:\d+\)?$/.test(line));
  return frame === undefined ? '' : frame.trim();
}
