/** Compiler backends that count captured graphs and ops. */
import { passesGraphsOn } from '../compile/aot/aot-autograd.js';
import {
  type BackendName,
  backendOf,
  type CompileBackend,
  type CompiledGraph,
} from '../compile/backends.js';
import { copyGraph } from '../compile/graph/copy.js';
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
 * A backend that counts, and passes the graphs to another backend, those of whole steps among them.
 *
 * @throws ArgumentError for an unknown name
 * @see PyTorch `torch._dynamo.testing.CompileCounterWithBackend`
 */
export function CompileCounterWithBackend(backend: BackendName | CompileBackend): CompileCounter {
  const compiler = backendOf(backend, 'CompileCounterWithBackend');
  const count = (graph: Graph): void => {
    counter.frameCount++;
    counter.opCount += graph.callNodes.length;
    counter.graphs.push(graph);
  };
  const counter = ((module: GraphModule, exampleInputs): CompiledGraph => {
    count(module.graph);
    return compiler(module, exampleInputs);
  }) as CompileCounter;
  // The other backend changes such graphs.
  passesGraphsOn(counter, compiler, (graph) => count(copyGraph(graph).graph));
  counter.frameCount = 0;
  counter.opCount = 0;
  (counter as { graphs: Graph[] }).graphs = [];
  return counter;
}
