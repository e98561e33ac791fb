/**
 * Hooks that are no part of graphs. Each backward pass has its own functions, so a graph has their
 * numbers, and a run of the graph calls those of its pass.
 */
import { outsideScopes } from '../../core/scope-stack.js';

/** The functions of the running pass. */
let hooks: readonly (() => void)[] = [];

/** Runs a graph; it calls these functions by their positions. */
export function callingHooks<T>(those: readonly (() => void)[], fn: () => T): T {
  const before = hooks;
  hooks = those;
  try {
    return fn();
  } finally {
    hooks = before;
  }
}

/** Calls a function of the running pass. */
export function callHook(index: number): void {
  outsideScopes(hooks[index] as () => void);
}
