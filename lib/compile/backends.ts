/** What turns graphs into functions. */
import { ArgumentError } from '../core/errors.js';
import type { Tensor } from '../core/tensor.js';
import type { GraphModule } from './graph-module.js';

/** What a backend makes of a graph: a function of the placeholders' tensors. */
export type CompiledGraph = (...inputs: readonly Tensor[]) => readonly Tensor[];

/** A compiler backend. */
export type CompileBackend = (
  module: GraphModule,
  exampleInputs: readonly Tensor[],
) => CompiledGraph;

/** Names of the library's backends: `'eager'` runs the captured graph op by op. */
export type BackendName = 'eager';

const backends = new Map<string, CompileBackend>([
  ['eager', (module) => module.forward.bind(module)],
]);

/** A backend by name, or the one given. @throws ArgumentError for an unknown name */
export function backendOf(backend: BackendName | CompileBackend, op = 'compile'): CompileBackend {
  const found = typeof backend === 'function' ? backend : backends.get(backend);
  if (found === undefined)
    throw new ArgumentError(
      `${op}: there is no backend ${JSON.stringify(backend)}; known ones: ${[...backends.keys()].join(', ')}`,
      { op, given: backend },
    );
  return found;
}
