/** `compile`: captures a function once for each guard key, hands the graph to a backend, and runs what that returns. */
import { ArgumentError, CompileError } from '../core/errors.js';
import type { Tensor } from '../core/tensor.js';
import { type Graph, GraphModule, type Value } from './graph.js';
import { guardKey } from './guards.js';
import { closureGuard, type Guard, watchModules } from './module-guards.js';
import { trace } from './trace.js';
import { mapTensors, tensorsIn } from './tree.js';

/** What a backend makes of a graph: a function of the placeholders' tensors. */
export type CompiledGraph = (...inputs: readonly Tensor[]) => readonly Tensor[];

/** A compiler backend. */
export type CompileBackend = (module: GraphModule, exampleInputs: readonly Tensor[]) => CompiledGraph;

/** Options of {@link compile}. */
export interface CompileOptions {
  /** `'eager'` runs the captured graph op by op; or a backend of your own. */
  backend?: 'eager' | CompileBackend;
  /** With true, a value that is read while capturing is an error; with false the function then runs as it is. */
  fullgraph?: boolean;
}

const backends: Record<string, CompileBackend> = {
  eager: (module) => module.forward.bind(module),
};

let compiling = false;
/** Above 0 inside of functions that were disabled with everything they call. */
let disabled = 0;
const caches = new Set<Map<string, unknown>>();

/** Captures kept for arguments of one kind; more mean that something changes at every call, and the oldest goes. */
const MAX_CAPTURES = 8;

/** Whether a function is being captured now. */
export function isCompiling(): boolean {
  return compiling;
}

/** Forgets everything captured. */
export function reset(): void {
  for (const cache of caches) cache.clear();
}

/**
 * Ends the graph here. A function that contains one runs as it is; outside of a capture this does nothing.
 *
 * @throws CompileError inside a capture, for `compile` to see: with `fullgraph` it reaches the caller
 */
export function graphBreak(): void {
  if (compiling) throw new CompileError('graphBreak() was called: the function cannot be one graph');
}

/** Options of {@link disable}. */
export interface DisableOptions {
  /** Whether what `fn` calls is not compiled either. */
  recursive?: boolean;
}

/**
 * `fn`, kept out of graphs: a captured function that calls it runs as it is. Compiled functions that it calls run uncompiled, unless
 * `recursive` is false.
 */
export function disable<A extends readonly unknown[], R>(fn: (...args: A) => R, { recursive = true }: DisableOptions = {}): (...args: A) => R {
  return (...args: A): R => {
    if (compiling) throw new CompileError(`the disabled function ${fn.name || '(anonymous)'} was called: the function around it cannot be one graph`);
    if (!recursive) return fn(...args);
    disabled++;
    try {
      return fn(...args);
    } finally {
      disabled--;
    }
  };
}

interface Entry {
  run: CompiledGraph;
  /** Builds the result from the graph's outputs. */
  rebuild: (outputs: readonly Tensor[], inputs: readonly Tensor[]) => unknown;
  /** Whether what the function closes over is as it was. */
  guard: Guard;
}

/** Something callable with a `forward`: a module, whose other properties the compiled one shares. */
export type CompilableModule = ((...args: never[]) => unknown) & { readonly forward: unknown };

type AnyFunction = (...args: unknown[]) => unknown;

/**
 * A function that gives the same results from a captured graph. It is captured anew for arguments of other shapes, dtypes or
 * plain values, in other modes, and when a module that it calls has changed (its training flag, hooks or attributes); effects on arguments
 * (in-place changes, storage resizing, version overrides) are replayed on the real tensors. A compiled module has the parameters, methods
 * and state names of the one given.
 *
 * What JavaScript does beside tensors (counting, logging) happens at a capture and not at later calls; and twice at the first call of a
 * function that cannot be captured. Numbers and objects that `fn` closes over are constants of the graph, for JavaScript shows nobody when
 * they change: pass them as arguments, or keep them in a module. `_version` is that of the capture.
 *
 * @throws ArgumentError for an unknown backend; CompileError, when called, where `fullgraph` is set and a value is read
 * or something is done that is no op: backward, hooks, an autograd.Function that is differentiated, requiresGrad_, seeding
 */
export function compile<M extends CompilableModule>(module: M, options?: CompileOptions): M;
export function compile<A extends readonly unknown[], R>(fn: (...args: A) => R, options?: CompileOptions): (...args: A) => R;
export function compile(target: AnyFunction, { backend = 'eager', fullgraph = false, ...others }: CompileOptions = {}): AnyFunction {
  const [unknown] = Object.keys(others);
  if (unknown !== undefined) throw new ArgumentError(`compile: there is no option ${unknown}; known ones: backend, fullgraph`, { op: 'compile', option: unknown });
  const compiler = typeof backend === 'function' ? backend : backends[backend];
  if (typeof target !== 'function') throw new ArgumentError(`compile: expected a function or a module, got ${String(target)}`);
  if (compiler === undefined) throw new ArgumentError(`compile: there is no backend ${JSON.stringify(backend)}; known ones: ${Object.keys(backends).join(', ')}`);
  const run = compiledFunction(target, compiler, fullgraph);
  if (!('forward' in target)) return run;
  return new Proxy(target, { apply: (_module, _self, args) => run(...args) });
}

function compiledFunction(fn: AnyFunction, compiler: CompileBackend, fullgraph: boolean): AnyFunction {
  const cache = new Map<string, Entry[]>();
  caches.add(cache);
  return (...args) => {
    if (compiling || disabled > 0) return fn(...args);
    const key = guardKey(args);
    const entries = cache.get(key) ?? [];
    let entry = entries.find(({ guard }) => guard());
    if (entry === undefined) {
      entry = capture(fn, args, compiler, fullgraph);
      if (entries.length === MAX_CAPTURES) entries.shift();
      cache.set(key, [...entries, entry]);
    }
    if (entry.run === RUN_AS_IT_IS) return fn(...args);
    const inputs = tensorsIn(args);
    return entry.rebuild(entry.run(...inputs), inputs);
  };
}

const RUN_AS_IT_IS: CompiledGraph = () => [];

function capture(fn: AnyFunction, args: readonly unknown[], compiler: CompileBackend, fullgraph: boolean): Entry {
  const inputs = tensorsIn(args);
  compiling = true;
  try {
    const { result: traced, modules } = watchModules(() =>
      trace(inputs, (fakes) => {
        let next = 0;
        return fn(...(mapTensors(args, () => fakes[next++]) as unknown[]));
      }),
    );
    const { graph, result, valueOf, gradsRead } = traced;
    if (result instanceof Promise)
      throw new ArgumentError('compile: expected a synchronous function, got one that returns a promise; compile what it calls between awaits', { op: 'compile' });
    const outputs = tensorsIn(result);
    graph.outputs = outputs.map(valueOf);
    const guard = closureGuard(modules, graph, gradsRead);
    return { run: compiler(new GraphModule(graph), inputs), rebuild: rebuilder(result, graph), guard };
  } catch (error) {
    if (fullgraph || !(error instanceof CompileError)) throw error;
    return { run: RUN_AS_IT_IS, rebuild: () => undefined, guard: () => true };
  } finally {
    compiling = false;
  }
}

/** An output that is an input comes back as the very same object. */
function rebuilder(result: unknown, graph: Graph): Entry['rebuild'] {
  const placeholders = graph.nodes.filter((n) => n.kind === 'placeholder');
  const inputOf = (value: Value): number => ('node' in value ? placeholders.indexOf(value.node) : -1);
  const aliases = graph.outputs.map((value) => ('node' in value && value.node.kind === 'call' && value.node.into ? inputOf(value.node.into) : inputOf(value)));
  return (outputs, inputs) => {
    let next = 0;
    return mapTensors(result, () => {
      const i = next++;
      const alias = aliases[i] as number;
      return alias >= 0 ? inputs[alias] : outputs[i];
    });
  };
}
