/** What `compile` makes of a graph that was captured already. */
import type { Tensor } from '../core/tensor.js';
import type { CompileBackend, CompiledGraph } from './backends.js';
import type { RunValue } from './graph/effects.js';
import type { GraphModule } from './graph/graph-module.js';
import { backendOfCompile, checkedOnce, expectedOutputs, madeBy } from './outputs.js';

type GraphRun = (...inputs: readonly RunValue[]) => readonly RunValue[];

const backendsOf = new WeakMap<object, { module: GraphModule; backend: CompileBackend }>();

/** Needs no guards: whoever calls the graph has checked that its inputs fit. */
export function compiledGraph(module: GraphModule, backend: CompileBackend): GraphRun {
  const made = (inputs: readonly Tensor[]): CompiledGraph => {
    const { graph } = module;
    const compiler = backendOfCompile(backend);
    const run = madeBy(compiler, graph.title, backend(module, inputs));
    return checkedOnce(compiler, graph.title, run, expectedOutputs(graph));
  };
  let run: CompiledGraph | null = null;
  const compiled: GraphRun = (...inputs) => {
    run ??= made(inputs as Tensor[]);
    return run(...(inputs as Tensor[]));
  };
  backendsOf.set(compiled, { module, backend });
  return compiled;
}

/** The backend, if `run` is what {@link compiledGraph} makes of the module; else null. */
export function backendOfRun(run: unknown, module: GraphModule): CompileBackend | null {
  const made = backendsOf.get(run as object);
  return made?.module === module ? made.backend : null;
}
