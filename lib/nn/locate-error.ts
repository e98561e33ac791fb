/** Adds to an error of a model which of its modules threw it. */
import { ShardwiseError } from '../core/errors.js';
import type { AnyModule } from './module.js';

/** Depth of nested module calls. */
let depth = 0;
/** The innermost module that each error left. */
const origin = new WeakMap<ShardwiseError, AnyModule>();

/** Runs the call of a module. An error gets the path from the outermost module to the innermost. */
export function callLocated(
  run: (module: AnyModule, args: never[]) => unknown,
  module: AnyModule,
  args: never[],
): unknown {
  depth++;
  try {
    return run(module, args);
  } catch (error) {
    locate(error, module);
    throw error;
  } finally {
    depth--;
  }
}

function locate(error: unknown, module: AnyModule): void {
  if (!(error instanceof ShardwiseError)) return;
  if (!origin.has(error)) origin.set(error, module);
  if (depth > 1 || error.modulePath !== undefined) return;
  const inner = origin.get(error) as AnyModule;
  const [path] = [...module.namedModules()].find(([, each]) => each === inner) ?? [''];
  error.modulePath = path;
  const place = path === '' ? '' : ` at ${path} (${inner.constructor.name})`;
  error.message += `\n  in the module ${module.constructor.name}${place}`;
}
