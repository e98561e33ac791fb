/** Compiler backends that count captured graphs and ops. */
import {
  type BackendName,
  backendOf,
  type CompileBackend,
  type CompiledGraph,
} from '../compile/backends.js';
import type { Graph } from '../compile/graph/graph.js';
import type { GraphModule } from '../compile/graph/graph-module.js';

/** A backend to pass to `compile`, with its counts. */
export interface CompileCounter extends CompileBackend {
  /** Number of captured graphs. */
  frameCount: number;
  /** Number of op calls in all graphs. */
  opCount: number;
  /** The captured graphs. */
  readonly graphs: Graph[];
}

/**
 * A backend that runs graphs eagerly and counts frames and ops. @see PyTorch
 * `torch._dynamo.testing.CompileCounter`
 */
export function CompileCounter(): CompileCounter {
  return CompileCounterWithBackend('eager');
}

/**
 * A backend that counts, and passes the graphs to another backend.
 *
 * @throws ArgumentError for an unknown name
 * @see PyTorch `torch._dynamo.testing.CompileCounterWithBackend`
 */
export function CompileCounterWithBackend(backend: BackendName | CompileBackend): CompileCounter {
  const compiler = backendOf(backend, 'CompileCounterWithBackend');
  const counter = ((module: GraphModule, exampleInputs): CompiledGraph => {
    counter.frameCount++;
    counter.opCount += module.graph.callNodes.length;
    counter.graphs.push(module.graph);
    return compiler(module, exampleInputs);
  }) as CompileCounter;
  counter.frameCount = 0;
  counter.opCount = 0;
  (counter as { graphs: Graph[] }).graphs = [];
  return counter;
}
