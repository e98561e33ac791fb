/**
 * `compile`: captures a function as a graph, once for each guard key, and runs what a backend
 * compiles from the graph. Also the functions of the `compiler` namespace.
 */
import { ArgumentError } from '../core/errors.js';
import { layers } from '../core/hooks.js';
import { declareMade } from '../core/library-exports.js';
import { checkFunction, optionsOf, shown, unexpected } from '../core/options.js';
import { type AnyFunction, compiledFunction } from './cache.js';
import { capturedStep, isCompiling, refuse } from './capture/capture.js';
import { compiledGraph } from './compiled-graph.js';
import { addDisabled, withoutCompiled } from './disabled.js';
import { setCompiledForm } from './explain.js';
import type { RunValue } from './graph/effects.js';
import { GraphModule } from './graph/graph-module.js';
import { isModule, type ModuleLike } from './guards/object-walk.js';
import { breakSegment, immediately } from './lazy/lazily.js';
import { type CompileOptions, checkedOptions } from './options.js';

export type { BackendName, CompileBackend, CompiledGraph } from './backends.js';
export type { CompileOptions } from './options.js';
export { capturedStep, isCompiling };

/**
 * Ends the graph here: the JavaScript of a compiled function that calls this runs at every call,
 * its ops run as graphs before and after, and the modules that it calls are compiled by themselves.
 * Does nothing in functions that are not compiled.
 *
 * @param reason - what `compiler.explain` and the error say, as `a counter was read`
 * @throws CompileError inside a capture; `compile` catches it unless `fullgraph` is true
 * @see PyTorch `torch._dynamo.graph_break`
 */
export function graphBreak(reason = 'graphBreak() was called'): void {
  refuse(reason);
  breakSegment(reason);
}

/** Options of {@link disable}. */
export interface DisableOptions {
  /** Whether the functions that `fn` calls run uncompiled, too. */
  recursive?: boolean;
  /** What `compiler.explain` and the error say of a call, as `a counter was read`. */
  reason?: string;
  /**
   * Whether `fn` is excluded, asked at each call: also at those of a compiled function that has it
   * in its graph. By default it always is.
   */
  when?: () => boolean;
}

/**
 * Excludes a function from graphs: its ops run one by one, and no graph of a compiled function that
 * calls the result goes across it. Compiled functions that `fn` calls run uncompiled, too, unless
 * `recursive` is false. A module with a forward hook that is excluded runs its hooks at every call,
 * and compiles its `forward` alone.
 */
export function disable<A extends readonly unknown[], R>(
  fn: (...args: A) => R,
  options: DisableOptions = {},
): (...args: A) => R {
  checkFunction('disable', 'fn', fn);
  const {
    recursive = true,
    reason,
    when = always,
  } = optionsOf('disable', options, 'recursive reason when');
  checkFunction('disable', 'when', when);
  if (reason !== undefined && typeof reason !== 'string')
    throw unexpected('disable', 'reason', 'a string', reason);
  const name = `the disabled function ${fn.name || '(anonymous)'}`;
  const why = reason ?? `${name} was called`;
  const isNow = when === always ? always : (): boolean => Boolean(when());
  const excluded = (...args: A): R => {
    if (isNow !== always) layers.backend.capture?.dependsOn(`when() of ${name}`, isNow);
    if (!isNow()) return fn(...args);
    refuse(why);
    return immediately(() => (recursive ? withoutCompiled(() => fn(...args)) : fn(...args)));
  };
  addDisabled(excluded, isNow);
  return declareMade(excluded);
}

const always = (): boolean => true;

/** A module: callable, with a `forward`. The compiled module shares all other properties. */
export type CompilableModule = ((...args: never[]) => unknown) & { readonly forward: unknown };

/**
 * Compiles a function or a module: the result computes the same from a captured graph.
 *
 * A new capture is made for other shapes, dtypes or plain values of arguments, in other modes, and
 * when a module that the function calls has changed its training flag, hooks or attributes. The
 * graph replays effects on arguments: in-place changes, storage resizing, version overrides. A
 * compiled module has the parameters, methods and state names of the one given.
 *
 * A function is captured `compiler.config.recompileLimit` times at most. Then calls that no graph
 * serves run uncompiled, and a warning says what changed between the captures.
 *
 * JavaScript code other than ops runs during captures only. Objects that the function closes over
 * are compared at each call, numbers and strings at some calls: see docs/compile.md.
 *
 * @throws ArgumentError if a backend or option is unknown. A call throws FreedError if it uses an
 * argument that was freed, and CompileError if `signal` is aborted or the backend returns no
 * function, or its function other outputs than the graph has. With `fullgraph`, a call throws
 * CompileError if the function has an effect that a graph cannot repeat: reads a value, registers
 * a hook, seeds a generator, runs backward and returns what backward can still run through
 * @example
 * const fn = compile((x: Tensor) => x.sin().square().sum());
 * fn(zeros([4])); // 0
 * fn(zeros([4])); // 0
 */
export function compile<M extends CompilableModule>(module: M, options?: CompileOptions): M;
export function compile(
  graph: GraphModule,
  options?: CompileOptions,
): (...inputs: readonly RunValue[]) => readonly RunValue[];
export function compile<A extends readonly unknown[], R>(
  fn: (...args: A) => R,
  options?: CompileOptions,
): (...args: A) => R;
export function compile(
  target: ((...args: never[]) => unknown) | GraphModule,
  options: CompileOptions = {},
): (...args: never[]) => unknown {
  if (target instanceof GraphModule) return compiledGraph(target, checkedOptions(options).backend);
  if (typeof target !== 'function')
    throw new ArgumentError(`compile: expected a function or a module, got ${shown(target)}`);
  const module = isModule(target) ? target : null;
  const run = compiledFunction(target as AnyFunction, checkedOptions(options), module);
  setCompiledForm(run, run);
  if (!('forward' in target)) return run;
  const form = new Proxy(target, { apply: (_module, _self, args) => run(...args) });
  setCompiledForm(form, run);
  return form;
}

/** What calls of a module run from now on; `call` runs its hooks and `forward`. @internal */
export function compiledModule(
  module: object,
  call: (...args: unknown[]) => unknown,
  options: CompileOptions = {},
): AnyFunction {
  // The name that reports and warnings quote.
  Object.defineProperty(call, 'name', { value: module.constructor.name });
  const run = compiledFunction(call, checkedOptions(options), module as object & ModuleLike);
  setCompiledForm(run, run);
  return run;
}
