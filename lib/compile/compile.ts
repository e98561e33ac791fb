/**
 * `compile`: captures a function as a graph, once for each guard key, and runs what a backend
 * compiles from the graph. Also the functions of the `compiler` namespace.
 */
import { ArgumentError, CompileError } from '../core/errors.js';
import { checkFunction, optionsOf, shown } from '../core/options.js';
import type { Tensor } from '../core/tensor.js';
import { tensors as tensorsIn } from '../core/tree.js';
import { type Capture, capture, isCompiling, refuse } from './capture/capture.js';
import { GraphModule } from './graph/graph-module.js';
import { type Guard, GuardCollector } from './guards/guard-collector.js';
import { guardKey } from './guards/guard-key.js';

export { isCompiling };

/** A function compiled from a graph. It takes one tensor for each placeholder. */
export type CompiledGraph = (...inputs: readonly Tensor[]) => readonly Tensor[];

/** A compiler backend: turns a graph into a function. */
export type CompileBackend = (
  module: GraphModule,
  exampleInputs: readonly Tensor[],
) => CompiledGraph;

/** Names of the library's backends: `'eager'` runs the captured graph op by op. */
export type BackendName = 'eager';

/** Options of {@link compile}. */
export interface CompileOptions {
  /** `'eager'`, which runs the captured graph op by op, or a function. */
  backend?: BackendName | CompileBackend;
  /**
   * True: an effect that a graph cannot repeat is an error. False: the function then runs
   * uncompiled.
   */
  fullgraph?: boolean;
  /** Only false: a graph has fixed shapes. */
  dynamic?: false;
  /** Only `'default'`. */
  mode?: 'default';
}

const backends = new Map<string, CompileBackend>([
  ['eager', (module) => module.forward.bind(module)],
]);

/**
 * The backend of a name, or the one given. @throws ArgumentError if the name is unknown @internal
 */
export function backendOf(backend: BackendName | CompileBackend, op = 'compile'): CompileBackend {
  const found = typeof backend === 'function' ? backend : backends.get(backend);
  if (found === undefined)
    throw new ArgumentError(
      `${op}: there is no backend ${JSON.stringify(backend)}; known backends: ` +
        `${[...backends.keys()].join(', ')}`,
      { op, given: backend },
    );
  return found;
}

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

/**
 * Ends the graph here: a compiled function that calls this runs uncompiled. Does nothing outside of
 * a capture.
 *
 * @throws CompileError inside a capture; `compile` catches it unless `fullgraph` is true
 */
export function graphBreak(): void {
  refuse('graphBreak() was called');
}

/** Options of {@link disable}. */
export interface DisableOptions {
  /** Whether the functions that `fn` calls run uncompiled, too. */
  recursive?: boolean;
}

/**
 * Excludes a function from graphs: a compiled function that calls the result runs uncompiled.
 * Compiled functions that `fn` calls run uncompiled, too, unless `recursive` is false.
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

/** A module: callable, with a `forward`. The compiled module shares all other properties. */
export type CompilableModule = ((...args: never[]) => unknown) & { readonly forward: unknown };

type AnyFunction = (...args: unknown[]) => unknown;

/**
 * Compiles a function or a module: the result computes the same from a captured graph.
 *
 * A new capture is made for other shapes, dtypes or plain values of arguments, in other modes, and
 * when a module that the function calls has changed its training flag, hooks or attributes. The
 * graph replays effects on arguments: in-place changes, storage resizing, version overrides. A
 * compiled module has the parameters, methods and state names of the one given.
 *
 * JavaScript code other than ops runs during captures only, and variables that the function closes
 * over are constants of the graph: see docs/compile.md.
 *
 * @throws ArgumentError if a backend or option is unknown. With `fullgraph`, a call throws
 * CompileError if the function has an effect that a graph cannot repeat: reads a value, registers
 * a hook, seeds a generator, runs backward
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

/** Allowed values of each option; null for options that are checked elsewhere. */
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
  /** Null for a function that cannot be captured: it runs uncompiled. */
  readonly run: CompiledGraph | null;
  readonly rebuild: Capture['rebuild'];
  /** Whether everything that the capture depends on beside its arguments is unchanged. */
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
