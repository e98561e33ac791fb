/** What a group must be like. */
import { DtypeError, type nn, ShardingError } from '../../index.js';
import { namesOf } from './advice.js';
import type { ShardedParameter } from './sharded-parameter.js';

/** @throws DtypeError unless the parameters have one dtype */
export function checkDtypes(parameters: readonly ShardedParameter[]): void {
  const [first] = parameters as [ShardedParameter];
  const other = parameters.find((p) => p.parameter.dtype !== first.parameter.dtype);
  if (other === undefined) return;
  throw new DtypeError(
    'fullyShard: expected the parameters of a group to have one dtype, got ' +
      `${first.parameter.dtype.name} for "${first.path}" and ${other.parameter.dtype.name} for ` +
      `"${other.path}". Put the modules of each dtype in a group of their own: call fullyShard ` +
      'on them first.',
    { op: 'fullyShard', parameters: [first.path, other.path] },
  );
}

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
