/** `fullyShard`: data parallelism in which each rank holds a shard of every parameter. */
import { checkFlag, checkFunction, optionsOf, unexpected } from '../../core/options.js';
import type { DeviceMesh } from '../../distributed/index.js';
import type { Placement } from '../../dtensor/index.js';
import { ArgumentError, compiler, nn, ShardingError } from '../../index.js';
import { isContainer } from '../common/containers.js';
import { checkNesting, markAs } from '../common/nesting.js';
import { addMethods, type FSDPModule } from './fsdp-module.js';
import { FSDPState, stateOf } from './fsdp-state.js';
import { FSDPParamGroup } from './param-group.js';
import { MixedPrecisionPolicy, OffloadPolicy } from './policies.js';
import { ShardMesh, worldMesh } from './shard-mesh.js';
import { ShardedParameter, type Slot } from './sharded-parameter.js';

/** Options of {@link fullyShard}. */
export interface FullyShardOptions {
  /**
   * A mesh of one dim shards; of two dims, the first replicates and the second shards. All ranks of
   * the world by default.
   */
  mesh?: DeviceMesh;
  /**
   * Whether whole parameters are freed after forward, and gathered again before backward. A number,
   * a divisor of the mesh's size: groups of so many ranks hold them between the two. By default
   * true, but false for the root.
   */
  reshardAfterForward?: boolean | number | null;
  /** The dtypes of compute and of reductions. */
  mpPolicy?: MixedPrecisionPolicy;
  /** Where shards lie. */
  offloadPolicy?: OffloadPolicy;
  /** The dim to shard of a parameter; 0 where it returns null. Only dim 0 may be uneven. */
  shardPlacementFn?: ((parameter: nn.Parameter) => Placement | null) | null;
}

const OPTIONS = 'mesh reshardAfterForward mpPolicy offloadPolicy shardPlacementFn';

/**
 * Shards the parameters of a module over the ranks of a mesh, in place. Each rank holds its rows of
 * every parameter, and of the state of its optimizer; the whole parameters are in memory only while
 * the module runs. Each call makes a group of the parameters that no call below has taken: one
 * all-gather makes them whole, one reduce-scatter averages their gradients. So call it on the
 * blocks of a model first, and then on the model.
 *
 * Parameters stay the same objects, so an optimizer may be made before or after. Their `.grad`
 * becomes null: a gradient from before is dropped, as in PyTorch. Between forward
 * and backward the modules hold distributed tensors, `Shard(0)`; ranks keep rows of their own
 * values, and nothing is broadcast. Dim 0 may be uneven, or smaller than the number of ranks.
 *
 * @returns the module, with the methods of {@link FSDPModule}
 * @throws ShardingError for a container without forward, a module that is sharded already, and
 * parameters that cannot be sharded, and modules with `FullyShardedDataParallel` or
 * `DistributedDataParallel`; DtypeError for parameters of several dtypes; ArgumentError.
 * CollectiveError, when a value is read, if ranks have other parameters
 * @see PyTorch `torch.distributed.fsdp.fully_shard`; Zhao et al., PyTorch FSDP, 2023
 * @example
 * for (const block of model.children()) fullyShard(block, { mesh });
 * fullyShard(model, { mesh });
 */
export function fullyShard<M extends nn.AnyModule>(
  module: M,
  options: FullyShardOptions = {},
): M & FSDPModule {
  const op = 'fullyShard';
  if (!(module instanceof nn.Module)) throw unexpected(op, 'module', 'an nn.Module', module);
  const { mesh: given, reshardAfterForward = null, ...others } = optionsOf(op, options, OPTIONS);
  const { mpPolicy = new MixedPrecisionPolicy(), offloadPolicy = new OffloadPolicy() } = others;
  if (!(mpPolicy instanceof MixedPrecisionPolicy))
    throw unexpected(op, 'mpPolicy', 'a MixedPrecisionPolicy', mpPolicy);
  if (!(offloadPolicy instanceof OffloadPolicy))
    throw unexpected(op, 'offloadPolicy', 'an OffloadPolicy', offloadPolicy);
  checkModule(op, module);
  const slots = ownSlots(module);
  const shards = new ShardMesh(op, given ?? worldMesh(module));
  checkReshard(op, shards, reshardAfterForward);
  const dimOf = dimChooser(op, others.shardPlacementFn ?? null);
  const parameters = slots.map(([path, list]) => {
    const [{ module: owner, name }] = list as [Slot];
    const parameter = (owner as unknown as Record<string, nn.Parameter>)[name] as nn.Parameter;
    return new ShardedParameter(path, list, dimOf(parameter), shards);
  });
  const group = new FSDPParamGroup(
    parameters,
    module,
    shards,
    typeof reshardAfterForward === 'number' ? shards.smaller(reshardAfterForward) : null,
    shards.mesh.device,
    mpPolicy,
    offloadPolicy,
  );
  const reshards = reshardAfterForward === null ? null : reshardAfterForward !== false;
  new FSDPState(module, group, mpPolicy, reshards);
  markAs(op, module);
  for (const { parameter, slots: all } of parameters) {
    grouped.add(parameter);
    for (const slot of all) compiler.markRebound(slot.module, slot.name);
  }
  return addMethods(module);
}

function checkModule(op: string, module: nn.AnyModule): void {
  checkNesting('fullyShard', module);
  const state = stateOf(module);
  if (state !== null) throw shardedAlready(op, module, state);
  if (module.forward === undefined || isContainer(module))
    throw new ShardingError(
      `${op}: expected a module with forward, got the container ${module.constructor.name}. Call ` +
        `${op} on the modules in it, or on the one that uses it.`,
      { op },
    );
}

function shardedAlready(op: string, module: nn.AnyModule, { group }: FSDPState): ShardingError {
  const { name } = module.constructor;
  const paths = group.parameters.map(({ path }) => `"${path}"`);
  const shown = paths.length > 3 ? [...paths.slice(0, 3), `… (${paths.length})`] : paths;
  return new ShardingError(
    `${op}: expected a module that is not sharded, got ` +
      `${group.path === '' ? name : `"${group.path}" (${name})`}, which is sharded already, with ` +
      `${shown.length === 0 ? 'no parameters' : shown.join(', ')}. Call ${op} once on each module.`,
    { op, module: group.path },
  );
}

/** Parameters of all groups. */
const grouped = new WeakSet<nn.Parameter>();

function refuseShared(path: string): never {
  throw new ShardingError(
    `fullyShard: expected modules that share "${path}" to be in one group, got one that ` +
      'fullyShard was called on before. Call it on a module that contains both instead.',
    { op: 'fullyShard', parameter: path },
  );
}

/**
 * The parameters that no call below has taken, with all properties that hold each. @throws
 * ShardingError for one that another group shares
 */
function ownSlots(root: nn.AnyModule): [path: string, slots: Slot[]][] {
  const found = new Map<nn.Parameter, [string, Slot[]]>();
  const visit = (module: nn.AnyModule, path: string, seen: Set<nn.AnyModule>): void => {
    if (seen.has(module)) return;
    seen.add(module);
    if (module !== root && stateOf(module) !== null) return;
    for (const [name, parameter] of module.namedParameters('', { recurse: false })) {
      const slot = { module, name };
      const known = found.get(parameter);
      if (known === undefined)
        found.set(parameter, [path === '' ? name : `${path}.${name}`, [slot]]);
      else known[1].push(slot);
    }
    for (const [name, child] of module.namedChildren())
      visit(child, [path, name].filter((part) => part !== '').join('.'), seen);
  };
  visit(root, '', new Set());
  return [...found].map(([parameter, entry]) => {
    if (grouped.has(parameter)) refuseShared(entry[0]);
    return entry;
  });
}

function dimChooser(
  op: string,
  choose: ((parameter: nn.Parameter) => Placement | null) | null,
): (parameter: nn.Parameter) => number {
  if (choose === null) return () => 0;
  checkFunction(op, 'shardPlacementFn', choose);
  return (parameter) => {
    const placement = choose(parameter);
    if (placement === null || placement === undefined) return 0;
    if (placement.isShard()) return placement.dim;
    throw unexpected(op, 'the result of shardPlacementFn', 'Shard(dim) or null', placement);
  };
}

/**
 * @throws ArgumentError unless the option is a boolean, null or a divisor of the number of ranks
 */
function checkReshard(op: string, { ranks }: ShardMesh, size: boolean | number | null): void {
  const isNumber = typeof size === 'number';
  if (!isNumber) checkFlag(op, 'reshardAfterForward', size, { orNull: true });
  if (!isNumber || (Number.isSafeInteger(size) && size >= 1 && ranks % size === 0)) return;
  throw new ArgumentError(
    `${op}: expected reshardAfterForward to be a boolean or a divisor of the ${ranks} ranks that ` +
      `shard, got ${size}`,
    { op, argument: 'reshardAfterForward', given: size },
  );
}
