/**
 * Hooks that are no part of graphs. Each backward pass has its own functions, so a graph has their
 * numbers, and a run of the graph calls those of its pass.
 */
import { CompileError } from '../../core/errors.js';
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

/** A function, or the number of one of the running pass. */
export type OpaqueCall = number | (() => void);

/** Calls a function. @throws CompileError for a number outside of a backward pass */
export function callOpaque(fn: OpaqueCall): void {
  const hook = typeof fn === 'number' ? hooks[fn] : fn;
  if (hook === undefined)
    throw new CompileError(
      'callOpaque: expected a backward pass, whose hooks its graph calls, got a run of the graph ' +
        'by itself. Return what the compiler makes of the graph to compiledAutograd.enable.',
    );
  outsideScopes(hook);
}
