/**
 * Frames at module boundaries. A function that cannot be captured runs as it is, and while it runs,
 * every module that it calls is captured by itself. So a break loses no graph below it.
 */
import { callingModulesBy, type ModuleCall, moduleCalls } from '../../core/module-calls.js';
import type { Tensor } from '../../core/tensor.js';
import type { CompiledGraph } from '../backends.js';
import { immediately, lazily } from '../lazy/lazily.js';
import type { LazyProgram } from '../lazy/lazy-program.js';

type AnyFunction = (...args: unknown[]) => unknown;

/** The compiled form of a module; `call` runs the module itself. */
export type FrameOf = (module: object, call: ModuleCall) => AnyFunction;

/**
 * Runs a function that could not be captured: modules that it calls are frames, and its own ops run
 * in lazy segments of the program, unless it is null.
 */
export function runUncompiled(
  program: LazyProgram | null,
  fn: AnyFunction,
  args: readonly unknown[],
  isExcluded: () => boolean,
  frameOf: FrameOf,
): unknown {
  let own: object | null = fn;
  const callModule = (module: object, given: readonly unknown[], call: ModuleCall): unknown => {
    if (module !== own && !isExcluded()) return frameOf(module, call)(...given);
    // The function is a module, which was not captured.
    own = null;
    return call(module, given);
  };
  const run = (): unknown => callingModulesBy(callModule, () => fn(...args));
  return program === null ? run() : lazily(program, callModule, run);
}

/** Runs a graph. Modules that functions of the program call in it are no frames. */
export function runGraph(graph: CompiledGraph, inputs: readonly Tensor[]): readonly Tensor[] {
  return moduleCalls.run === null ? graph(...inputs) : runPlain(() => graph(...inputs));
}

/** Runs a function op by op: modules that it calls are no frames, and no segment has its ops. */
export function runPlain<T>(fn: () => T): T {
  return callingModulesBy(null, () => immediately(fn));
}
