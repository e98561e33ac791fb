/** What a group must be like. */
import { type nn, ShardingError } from '../../index.js';
import { namesOf } from './advice.js';
import type { ShardedParameter } from './sharded-parameter.js';

/** @throws ShardingError if parameters are on the device meta */
export function checkMaterialized(parameters: readonly ShardedParameter[]): void {
  const meta = parameters.filter(({ parameter }) => String(parameter.device) === 'meta');
  if (meta.length === 0) return;
  const paths = meta.map(({ path }) => path);
  throw new ShardingError(
    'fullyShard: expected parameters with memory before the first forward, got on the device ' +
      `meta: ${paths.join(', ')}. Call module.toEmpty({ device }) and initialize them, for ` +
      'example by resetParameters().',
    { op: 'fullyShard', parameters: paths },
  );
}

/** The error of a first forward of one of several modules: only a module around them ends it. */
export function hasNoRoot(op: string, modules: readonly nn.AnyModule[]): ShardingError {
  return new ShardingError(
    `${op}: expected the first forward to be that of a sharded module around the modules of a ` +
      `group, got one of [${namesOf(modules)}]. Call ${op} on a module that contains them, too, and run ` +
      'that first.',
    { op },
  );
}

/** The error of a first forward of a module that contains a root. */
export function ranBefore(op: string, module: nn.AnyModule, path: string): ShardingError {
  return new ShardingError(
    `${op}: expected the first forward to be that of the root, got one of ` +
      `${module.constructor.name} after one of its module "${path}", which became a root ` +
      'of its own. Run the outermost sharded module first.',
    { op, module: path },
  );
}
