/**
 * `compile`: captures a function once for each guard key, hands the graph to a backend, and runs
 * what that returns.
 */
import { ArgumentError, CompileError } from '../core/errors.js';
import { checkFunction, optionsOf, shown } from '../core/options.js';
import {
  type BackendName,
  backendOf,
  type CompileBackend,
  type CompiledGraph,
} from './backends.js';
import { type Capture, capture, isCompiling, refuse } from './capture.js';
import { GraphModule } from './graph-module.js';
import { type Guard, Watcher } from './guard-collector.js';
import { guardKey } from './guards.js';
import { tensorsIn } from './pytree.js';

export { type CompileBackend, type CompiledGraph, isCompiling };

/** Options of {@link compile}. */
export interface CompileOptions {
  /** `'eager'` runs the captured graph op by op; or a backend of your own. */
  backend?: BackendName | CompileBackend;
  /**
   * With true, what a graph cannot repeat is an error; with false the function then runs as it is.
   */
  fullgraph?: boolean;
  /** Graphs are of fixed shapes: `true`, one graph for several shapes, does not exist yet. */
  dynamic?: false;
  /** What the backend optimises for; only `'default'` exists yet. */
  mode?: 'default';
}

/** Above 0 inside of functions that were disabled with everything they call. */
let disabled = 0;
/**
 * What was captured, by compiled function: that goes with the function, and all of it with the map.
 */
let caches = new WeakMap<AnyFunction, Map<string, Entry[]>>();

/**
 * Captures kept for arguments of one kind; more mean that something changes at every call, and the
 * oldest goes.
 */
const MAX_CAPTURES = 8;
/** Kinds of arguments; more mean that a plain value changes at every call. */
const MAX_KEYS = 64;
/**
 * Captures that failed for arguments of one kind, after which the function runs as it is whatever
 * its modules hold.
 */
const MAX_BREAKS = 3;

/** Forgets everything captured. */
export function reset(): void {
  caches = new WeakMap();
}

/**
 * Ends the graph here. A function that contains one runs as it is; outside of a capture this does
 * nothing.
 *
 * @throws CompileError inside a capture, for `compile` to see: with `fullgraph` it reaches the
 * caller
 */
export function graphBreak(): void {
  refuse('graphBreak() was called');
}

/** Options of {@link disable}. */
export interface DisableOptions {
  /** Whether what `fn` calls is not compiled either. */
  recursive?: boolean;
}

/**
 * `fn`, kept out of graphs: a captured function that calls it runs as it is. Compiled functions
 * that it calls run uncompiled, unless `recursive` is false.
 */
export function disable<A extends readonly unknown[], R>(
  fn: (...args: A) => R,
  options: DisableOptions = {},
): (...args: A) => R {
  checkFunction('disable', 'fn', fn);
  const { recursive = true } = optionsOf('disable', options, 'recursive');
  return (...args: A): R => {
    refuse(`the disabled function ${fn.name || '(anonymous)'} was called`);
    if (!recursive) return fn(...args);
    disabled++;
    try {
      return fn(...args);
    } finally {
      disabled--;
    }
  };
}

/**
 * Something callable with a `forward`: a module, whose other properties the compiled one shares.
 */
export type CompilableModule = ((...args: never[]) => unknown) & { readonly forward: unknown };

type AnyFunction = (...args: unknown[]) => unknown;

/**
 * A function that gives the same results from a captured graph. It is captured anew for arguments
 * of other shapes, dtypes or plain values, in other modes, and when a module that it calls has
 * changed (its training flag, hooks or attributes); effects on arguments (in-place changes, storage
 * resizing, version overrides) are replayed on the real tensors. A compiled module has the
 * parameters, methods and state names of the one given.
 *
 * What JavaScript code does beside ops runs at captures only, and variables that the function
 * closes over are constants of its graph: see docs/compile.md.
 *
 * @throws ArgumentError for unknown backends and options; CompileError, when called, where
 * `fullgraph` is set and the function does what a graph cannot repeat: reads a value, registers a
 * hook, seeds a generator, runs backward
 */
export function compile<M extends CompilableModule>(module: M, options?: CompileOptions): M;
export function compile<A extends readonly unknown[], R>(
  fn: (...args: A) => R,
  options?: CompileOptions,
): (...args: A) => R;
export function compile(target: AnyFunction, options: CompileOptions = {}): AnyFunction {
  if (typeof target !== 'function')
    throw new ArgumentError(`compile: expected a function or a module, got ${shown(target)}`);
  const { backend = 'eager', fullgraph = false } = optionsOf('compile', options, OPTION_NAMES);
  const compiler = backendOf(backend);
  checkOptions(options);
  const run = compiledFunction(target, compiler, fullgraph);
  if (!('forward' in target)) return run;
  return new Proxy(target, { apply: (_module, _self, args) => run(...args) });
}

/** What each option may be; null is for those that are checked elsewhere. */
const knownOptions: Record<keyof CompileOptions, readonly unknown[] | null> = {
  backend: null,
  fullgraph: [true, false, undefined],
  dynamic: [false, undefined],
  mode: ['default', undefined],
};
const OPTION_NAMES = Object.keys(knownOptions).join(' ');

function checkOptions(options: CompileOptions): void {
  for (const [name, value] of Object.entries(options)) {
    const allowed = knownOptions[name as keyof CompileOptions];
    if (allowed === null || allowed.includes(value)) continue;
    const expected = allowed.filter((v) => v !== undefined).join(' or ');
    throw new ArgumentError(`compile: ${name} can be ${expected}, got ${String(value)}`, {
      op: 'compile',
      argument: name,
      expected,
      given: value,
    });
  }
}

interface Entry {
  /** Null for a function that cannot be one graph: it runs as it is. */
  readonly run: CompiledGraph | null;
  readonly rebuild: Capture['rebuild'];
  /** Whether what the function depends on beside its arguments is as it was. */
  readonly guard: Guard;
}

function compiledFunction(
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
  const watcher = new Watcher();
  let captured: Capture;
  try {
    captured = capture(fn, args, watcher);
  } catch (error) {
    watcher.restore();
    if (fullgraph || !(error instanceof CompileError)) throw error;
    return { run: null, rebuild: () => undefined, guard: lastTry ? () => true : watcher.guard() };
  }
  return {
    run: compiler(new GraphModule(captured.graph), tensorsIn(args)),
    rebuild: captured.rebuild,
    guard: watcher.guard(),
  };
}
