/**
 * Hooks that the library makes anew for each forward pass. A captured backward pass holds for later
 * ones, whose hooks are other closures that do the same.
 */
import type { OpaqueHook } from '../core/backend.js';
import { layers } from '../core/hooks.js';

/** What a hook of the library does. @internal */
export interface MadeHook {
  /** Hooks with equal facts do the same; compared as `sameStructure` does. */
  readonly facts: () => readonly unknown[];
  /** Hooks of one owner share its state. */
  readonly owner: object;
  /** The module whose hooks it runs; null if it runs none. */
  readonly module: object | null;
  /** Set for a hook that is no part of a graph: each run of the graph calls it. */
  readonly opaque?: OpaqueHook;
}

/**
 * No WeakMap: V8's young collections keep its values, here through them the graph, and so they
 * would copy all that a step has recorded.
 */
const DOES = Symbol('what a hook of the library does');

interface Described {
  [DOES]?: MadeHook;
}

/** Says what a hook does that was made for one forward pass. Returns the hook. @internal */
export function describeHook<F extends object>(hook: F, does: MadeHook): F {
  (hook as Described)[DOES] = does;
  return hook;
}

/** What a hook of the library does; undefined for others. @internal */
export function madeHookOf(hook: object): MadeHook | undefined {
  return (hook as Described)[DOES];
}

/** Runs a hook, unless a capture records that each run of its graph calls it. @internal */
export function runMade<T extends readonly unknown[]>(
  hook: (...args: T) => void,
  ...args: T
): void {
  const { capture } = layers.backend;
  const opaque = capture === null ? undefined : madeHookOf(hook)?.opaque;
  if (capture === null || opaque === undefined) hook(...args);
  else capture.callsOpaque(opaque, args.length > 0);
}
