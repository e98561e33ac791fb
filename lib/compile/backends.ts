/** Compiler backends: what turns a captured graph into a function. */
import { ArgumentError } from '../core/errors.js';
import type { Tensor } from '../core/tensor.js';
import { aotAutograd, runFused } from './aot/aot-autograd.js';
import type { GraphModule } from './graph/graph-module.js';
import { minCutOfFused, minCutRematerializationPartition } from './partition/min-cut.js';

/** A function compiled from a graph. It takes one tensor for each placeholder. */
export type CompiledGraph = (...inputs: readonly Tensor[]) => readonly Tensor[];

/** A compiler backend: turns a graph into a function. */
export type CompileBackend = (
  module: GraphModule,
  exampleInputs: readonly Tensor[],
) => CompiledGraph;

/**
 * Names of the library's backends. `'eager'` runs the captured graph op by op through autograd.
 * `'aot_eager'` traces its backward, too, and runs both graphs by commands that are encoded once.
 * `'aot_eager_decomp_partition'` also replaces ops by their decompositions, and saves for backward
 * what a minimal cut chooses. `'inductor'` saves so too, and fuses pointwise ops and conversions;
 * results stay equal to the bit.
 */
export type BackendName = 'eager' | 'aot_eager' | 'aot_eager_decomp_partition' | 'inductor';

const backends = new Map<string, CompileBackend>(
  Object.entries({
    eager: (module) => module.forward.bind(module),
    aot_eager: aotAutograd(),
    aot_eager_decomp_partition: aotAutograd({
      partitionFn: minCutRematerializationPartition,
      decompositions: 'all',
    }),
    inductor: aotAutograd({ fwCompiler: runFused, partitionFn: minCutOfFused }),
  } satisfies Record<BackendName, CompileBackend>),
);
// Errors name backends.
for (const [name, backend] of backends) Object.defineProperty(backend, 'name', { value: name });

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
