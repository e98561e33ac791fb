/**
 * Frames at module boundaries. A function that cannot be captured runs as it is, and while it runs,
 * every module that it calls is captured by itself. So a break loses no graph below it.
 */
import { type ModuleCall, moduleCalls } from '../../core/module-calls.js';

type AnyFunction = (...args: unknown[]) => unknown;

/** The compiled form of a module; `call` runs the module itself. */
export type FrameOf = (module: object, call: ModuleCall) => AnyFunction;

/** Runs a function that could not be captured. Modules that it calls are frames. */
export function runUncompiled(
  fn: AnyFunction,
  args: readonly unknown[],
  isExcluded: () => boolean,
  frameOf: FrameOf,
): unknown {
  const before = moduleCalls.run;
  let own: object | null = fn;
  moduleCalls.run = (module, given, call) => {
    if (module !== own && !isExcluded()) return frameOf(module, call)(...given);
    // The function is a module, which was not captured.
    own = null;
    return call(module, given);
  };
  try {
    return fn(...args);
  } finally {
    moduleCalls.run = before;
  }
}

/** Runs a graph. Modules that functions of the program call in it are no frames. */
export function withoutFrames<T>(fn: () => T): T {
  const { run } = moduleCalls;
  if (run === null) return fn();
  moduleCalls.run = null;
  try {
    return fn();
  } finally {
    moduleCalls.run = run;
  }
}
