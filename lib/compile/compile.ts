/** `compile`: captures a function once for each guard key, hands the graph to a backend, and runs what that returns. */
import { ArgumentError, CompileError } from '../core/errors.js';
import type { Tensor } from '../core/tensor.js';
import { type Graph, GraphModule, type Value } from './graph.js';
import { guardKey } from './guards.js';
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
const caches = new Set<Map<string, unknown>>();

/** Whether a function is being captured now. */
export function isCompiling(): boolean {
  return compiling;
}

/** Forgets everything captured. */
export function reset(): void {
  for (const cache of caches) cache.clear();
}

interface Entry {
  run: CompiledGraph;
  /** Builds the result from the graph's outputs. */
  rebuild: (outputs: readonly Tensor[], inputs: readonly Tensor[]) => unknown;
}

/**
 * A function that gives the same results from a captured graph. It is captured anew for arguments of other shapes, dtypes or
 * plain values; effects on arguments (in-place changes, storage resizing, version overrides) are replayed on the real tensors.
 *
 * @throws ArgumentError for an unknown backend; CompileError, when called, where `fullgraph` is set and a value is read
 */
export function compile<A extends readonly unknown[], R>(fn: (...args: A) => R, { backend = 'eager', fullgraph = false }: CompileOptions = {}): (...args: A) => R {
  const compiler = typeof backend === 'function' ? backend : backends[backend];
  if (compiler === undefined) throw new ArgumentError(`compile: there is no backend ${JSON.stringify(backend)}; known ones: ${Object.keys(backends).join(', ')}`);
  const cache = new Map<string, Entry | 'eager'>();
  caches.add(cache);
  return (...args: A): R => {
    if (compiling) return fn(...args);
    const key = guardKey(args);
    let entry = cache.get(key);
    if (entry === undefined) {
      entry = capture(fn as unknown as (...given: unknown[]) => unknown, args, compiler, fullgraph);
      cache.set(key, entry);
    }
    if (entry === 'eager') return fn(...args);
    const inputs = tensorsIn(args);
    return entry.rebuild(entry.run(...inputs), inputs) as R;
  };
}

function capture(fn: (...args: unknown[]) => unknown, args: readonly unknown[], compiler: CompileBackend, fullgraph: boolean): Entry | 'eager' {
  const inputs = tensorsIn(args);
  compiling = true;
  try {
    const { graph, result, valueOf } = trace(inputs, (fakes) => {
      let next = 0;
      return fn(...(mapTensors(args, () => fakes[next++]) as unknown[]));
    });
    const outputs = tensorsIn(result);
    graph.outputs = outputs.map(valueOf);
    return { run: compiler(new GraphModule(graph), inputs), rebuild: rebuilder(result, graph) };
  } catch (error) {
    if (fullgraph || !(error instanceof CompileError)) throw error;
    return 'eager';
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
