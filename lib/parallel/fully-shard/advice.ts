/** What errors add about a parameter that is not whole at the time, and what the program can do. */
import { autograd, type nn } from '../../index.js';

/** Who shards the parameter. Its path is known after the first forward of the root. */
export interface Owner {
  readonly op: string;
  readonly path: string;
  readonly modules: readonly nn.AnyModule[];
}

const nameOf = ({ path, modules }: Owner): string =>
  path === '' ? `the sharded ${namesOf(modules)}` : `"${path}"`;

/** The classes of modules. */
export const namesOf = (modules: readonly nn.AnyModule[]): string =>
  modules.map(({ constructor }) => constructor.name).join(', ');

/** About the memory of a whole parameter, which was freed. */
export function adviceOnWhole(owner: Owner, parameter: string): string {
  if (autograd.isInBackward()) return adviceInBackward(owner, parameter);
  if (owner.op !== 'fullyShard') return adviceOnFlat(parameter);
  return (
    `It is the whole parameter "${parameter}" of ${nameOf(owner)}, which is in memory only while ` +
    'that module runs forward or backward. Read the sharded parameter, as a DTensor, or call ' +
    'unshard() on the module first.'
  );
}

/** About a whole parameter that backward needs and did not gather. */
const adviceInBackward = (owner: Owner, parameter: string): string =>
  `Backward gathers the parameter "${parameter}" of ${nameOf(owner)} when a gradient reaches a ` +
  'tensor that its forward returned: alone, or in arrays, objects, Maps, Sets and properties of ' +
  'instances. Those in private fields, getters and closures of results, and those that forward ' +
  'stores elsewhere, are not followed: return them, too.';

/** About a sharded parameter among tensors that are not distributed. */
export function adviceOnShard(owner: Owner, parameter: string): string {
  if (owner.op !== 'fullyShard') return adviceOnFlat(parameter);
  return (
    `"${parameter}" is sharded by fullyShard of ${nameOf(owner)}, and whole only while that ` +
    'module is called. Call the model or that module, not its forward(), another method or a ' +
    'module in it; or call unshard() on it before and reshard() after.'
  );
}

/** About a parameter of `FullyShardedDataParallel`. */
export function adviceOnFlat(parameter: string): string {
  return (
    `"${parameter}" is part of a flat parameter of FullyShardedDataParallel, and whole only ` +
    'while its wrapper is called. Call the wrapped model, not forward() or a module in it; or ' +
    'use the parameter in FullyShardedDataParallel.summonFullParams(model, fn).'
  );
}
