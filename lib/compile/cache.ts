/**
 * The captures of a compiled function: finds the one whose guards hold for a call, or makes it.
 */
import { CompileError } from '../core/errors.js';
import { tensors as tensorsIn } from '../core/tree.js';
import type { CompileBackend, CompiledGraph } from './backends.js';
import { type Capture, capture, isCompiling } from './capture/capture.js';
import { GraphModule } from './graph/graph-module.js';
import { type Guard, GuardCollector } from './guards/guard-collector.js';
import { guardKey } from './guards/guard-key.js';

export type AnyFunction = (...args: unknown[]) => unknown;

/** Depth of calls of functions that `disable` excluded recursively. */
let disabled = 0;
/** Captures by compiled function. They are collected with the function; `reset` drops all. */
let caches = new WeakMap<AnyFunction, Map<string, Entry[]>>();

/** Captures kept for one guard key. More mean that a guard fails at every call; the oldest goes. */
const MAX_CAPTURES = 8;
/** Guard keys kept for a function. More mean that a plain value changes at every call. */
const MAX_KEYS = 64;
/** Failed captures for one guard key, after which the function always runs uncompiled for it. */
const MAX_BREAKS = 3;

/** Drops all captures. */
export function reset(): void {
  caches = new WeakMap();
}

/** Runs `fn`; compiled functions that it calls run uncompiled. */
export function withoutCompiled<T>(fn: () => T): T {
  disabled++;
  try {
    return fn();
  } finally {
    disabled--;
  }
}

interface Entry {
  /** Null for a function that cannot be captured: it runs uncompiled. */
  readonly run: CompiledGraph | null;
  readonly rebuild: Capture['rebuild'];
  /** Whether everything that the capture depends on beside its arguments is unchanged. */
  readonly guard: Guard;
}

/** `fn` with a cache of captures. */
export function compiledFunction(
  fn: AnyFunction,
  compiler: CompileBackend,
  fullgraph: boolean,
): AnyFunction {
  return function run(...args): unknown {
    if (isCompiling() || disabled > 0) return fn(...args);
    const inputs = tensorsIn(args);
    const key = guardKey(args);
    let cache = caches.get(run);
    if (cache === undefined) {
      cache = new Map();
      caches.set(run, cache);
    }
    let entries = cache.get(key);
    if (entries === undefined) {
      entries = [];
      if (cache.size === MAX_KEYS) cache.delete(cache.keys().next().value as string);
      cache.set(key, entries);
    }
    let entry = entries.find(({ guard }) => guard(inputs));
    if (entry === undefined) {
      entry = makeEntry(
        fn,
        args,
        compiler,
        fullgraph,
        entries.filter(({ run }) => run === null).length + 1 === MAX_BREAKS,
      );
      if (entries.length === MAX_CAPTURES) entries.shift();
      entries.push(entry);
    }
    if (entry.run === null) return fn(...args);
    return entry.rebuild(entry.run(...inputs), inputs);
  };
}

function makeEntry(
  fn: AnyFunction,
  args: readonly unknown[],
  compiler: CompileBackend,
  fullgraph: boolean,
  lastTry: boolean,
): Entry {
  const guards = new GuardCollector();
  let captured: Capture;
  try {
    captured = capture(fn, args, guards);
  } catch (error) {
    guards.restore();
    if (fullgraph || !(error instanceof CompileError)) throw error;
    return { run: null, rebuild: () => undefined, guard: lastTry ? () => true : guards.guard() };
  }
  return {
    run: compiler(new GraphModule(captured.graph), tensorsIn(args)),
    rebuild: captured.rebuild,
    guard: guards.guard(),
  };
}
