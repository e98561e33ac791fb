/** What the parameters of a group must have in common. */
import { DtypeError, ShardingError } from '../../index.js';
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
