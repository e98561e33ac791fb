/** Errors out of a model say which of its modules they come from. */
import { ShardwiseError } from '../core/errors.js';
import type { AnyModule } from './module.js';

/** Calls of modules that are under way, one in another. */
let depth = 0;
/** The innermost module that an error has passed. */
const origin = new WeakMap<ShardwiseError, AnyModule>();

/**
 * Runs what a call of the module does. What is thrown gets the path of the innermost module in the
 * outermost.
 */
export function callLocated(
  run: (module: AnyModule, args: never[]) => unknown,
  module: AnyModule,
  args: never[],
): unknown {
  depth++;
  try {
    return run(module, args);
  } catch (error) {
    note(error, module);
    throw error;
  } finally {
    depth--;
  }
}

function note(error: unknown, module: AnyModule): void {
  if (!(error instanceof ShardwiseError)) return;
  if (!origin.has(error)) origin.set(error, module);
  if (depth > 1 || error.modulePath !== undefined) return;
  const inner = origin.get(error) as AnyModule;
  const [path] = [...module.namedModules()].find(([, each]) => each === inner) ?? [''];
  error.modulePath = path;
  const place = path === '' ? '' : ` at ${path} (${inner.constructor.name})`;
  error.message += `\n  in the module ${module.constructor.name}${place}`;
}
