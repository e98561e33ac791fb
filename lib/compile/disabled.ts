/**
 * Functions that `disable` excluded, which no graph has. A module with such a hook runs its hooks
 * at every call, and only its `forward` is captured.
 */
import { isCompiling } from './capture/capture.js';
import type { ModuleLike } from './guards/object-walk.js';

/** The functions, and whether each is excluded now. */
const functions = new WeakMap<object, () => boolean>();

/** Remembers a function that keeps out of graphs while `isNow` is true. */
export function addDisabled(fn: object, isNow: () => boolean): void {
  functions.set(fn, isNow);
}

/** Whether a hook around the `forward` of a module keeps out of graphs. */
export function hasDisabledHooks({ hooks }: ModuleLike): boolean {
  return hasDisabled(hooks['forwardPre'] as Hooks) || hasDisabled(hooks['forward'] as Hooks);
}

type Hooks = ReadonlyMap<number, unknown>;

function hasDisabled(hooks: Hooks): boolean {
  if (hooks.size === 0) return false;
  for (const hook of hooks.values()) if (functions.get(hook as object)?.()) return true;
  return false;
}

/** Depth of calls of functions that `disable` excluded recursively. */
let depth = 0;

/** Runs `fn`; compiled functions that it calls run uncompiled. */
export function withoutCompiled<T>(fn: () => T): T {
  depth++;
  try {
    return fn();
  } finally {
    depth--;
  }
}

/** Whether calls of compiled functions run uncompiled. */
export const isExcluded = (): boolean => isCompiling() || depth > 0;
