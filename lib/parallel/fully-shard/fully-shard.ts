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
 * Shards several modules as one group: its parameters are gathered before the first of them runs,
 * and freed after the last one, also if other modules run in between. So modules with a common
 * weight are in one group, and small ones share collectives. If one of them does not run, the
 * parameters are freed at the end of the root's forward. A module that runs when all have run
 * begins again.
 *
 * A sharded module around them has to run first. `mpPolicy` casts the inputs and outputs of each;
 * in PyTorch inputs of the first one and outputs of the last one.
 *
 * @returns the list, whose modules have the methods of {@link FSDPModule}: each is about the group
 * @throws as for one module; ShardingError for a module that contains another one of the list, and
 * in the first forward if that is not one of a sharded module around them
 * @see PyTorch `torch.distributed.fsdp.fully_shard` with a list of modules
 * @example
 * fullyShard([model.at(0), model.at(1)], { mesh });
 * fullyShard(model, { mesh });
 */
export function fullyShard<const M extends readonly nn.AnyModule[]>(
  modules: M,
  options?: FullyShardOptions,
): { [I in keyof M]: M[I] & FSDPModule };
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
 * `DistributedDataParallel`; ArgumentError.
 * CollectiveError, when a value is read, if ranks have other parameters
 * @see PyTorch `torch.distributed.fsdp.fully_shard`; Zhao et al., PyTorch FSDP, 2023
 * @example
 * for (const block of model.children()) fullyShard(block, { mesh });
 * fullyShard(model, { mesh });
 */
export function fullyShard<M extends nn.AnyModule>(
  module: M,
  options?: FullyShardOptions,
): M & FSDPModule;
export function fullyShard(
  modules: nn.AnyModule | readonly nn.AnyModule[],
  options: FullyShardOptions = {},
): nn.AnyModule | readonly nn.AnyModule[] {
  const op = 'fullyShard';
  const given = listOf(op, modules);
  const { mesh, reshardAfterForward = null, ...others } = optionsOf(op, options, OPTIONS);
  const { mpPolicy = new MixedPrecisionPolicy(), offloadPolicy = new OffloadPolicy() } = others;
  if (!(mpPolicy instanceof MixedPrecisionPolicy))
    throw unexpected(op, 'mpPolicy', 'a MixedPrecisionPolicy', mpPolicy);
  if (!(offloadPolicy instanceof OffloadPolicy))
    throw unexpected(op, 'offloadPolicy', 'an OffloadPolicy', offloadPolicy);
  for (const module of given) checkModule(op, module);
  const slots = ownSlots(given);
  const shards = new ShardMesh(op, mesh ?? worldMesh(given));
  checkReshard(op, shards, reshardAfterForward);
  const dimOf = dimChooser(op, others.shardPlacementFn ?? null);
  const parameters = slots.map(([path, list]) => {
    const [{ module: owner, name }] = list as [Slot];
    const parameter = (owner as unknown as Record<string, nn.Parameter>)[name] as nn.Parameter;
    return new ShardedParameter(path, list, dimOf(parameter), shards);
  });
  const group = new FSDPParamGroup(
    parameters,
    given,
    shards,
    typeof reshardAfterForward === 'number' ? shards.smaller(reshardAfterForward) : null,
    shards.mesh.device,
    mpPolicy,
    offloadPolicy,
  );
  const reshards = reshardAfterForward === null ? null : reshardAfterForward !== false;
  new FSDPState(given, group, mpPolicy, reshards);
  for (const module of given) markAs(op, module);
  for (const { parameter, slots: all } of parameters) {
    grouped.add(parameter);
    for (const slot of all) compiler.markRebound(slot.module, slot.name);
  }
  for (const module of given) addMethods(module);
  return modules;
}

/**
 * The modules, each once. @throws ArgumentError for what is neither a module nor a list of some,
 * ShardingError for a module in another one
 */
function listOf(op: string, modules: unknown): readonly nn.AnyModule[] {
  if (modules instanceof nn.Module) return [modules];
  const list: readonly unknown[] = Array.isArray(modules) ? modules : [];
  if (list.length === 0 || !list.every((each) => each instanceof nn.Module))
    throw unexpected(op, 'module', 'an nn.Module or a list of some', modules);
  const given = new Set(list as readonly nn.AnyModule[]);
  for (const outer of given)
    for (const [path, inner] of outer.namedModules())
      if (inner !== outer && given.has(inner)) throw containedIn(op, outer, inner, path);
  return [...given];
}

function containedIn(
  op: string,
  outer: nn.AnyModule,
  inner: nn.AnyModule,
  path: string,
): ShardingError {
  return new ShardingError(
    `${op}: expected modules none of which contains another, got ${outer.constructor.name}, whose ` +
      `"${path}" (${inner.constructor.name}) is in the list, too. Leave it out: the parameters of ` +
      'modules in a module are in its group.',
    { op, module: path },
  );
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
      'fullyShard was called on before. Call it on a list of both instead: ' +
      'fullyShard([a, b]).',
    { op: 'fullyShard', parameter: path },
  );
}

/**
 * The parameters that no call below has taken, with all properties that hold each. @throws
 * ShardingError for one that another group shares
 */
function ownSlots(modules: readonly nn.AnyModule[]): [path: string, slots: Slot[]][] {
  const found = new Map<nn.Parameter, [string, Slot[]]>();
  const seen = new Set<nn.AnyModule>();
  const visit = (module: nn.AnyModule, path: string): void => {
    if (seen.has(module)) return;
    seen.add(module);
    if (stateOf(module) !== null) return;
    for (const [name, parameter] of module.namedParameters('', { recurse: false })) {
      const slot = { module, name };
      const known = found.get(parameter);
      if (known === undefined)
        found.set(parameter, [path === '' ? name : `${path}.${name}`, [slot]]);
      else known[1].push(slot);
    }
    for (const [name, child] of module.namedChildren())
      visit(child, [path, name].filter((part) => part !== '').join('.'));
  };
  for (const [i, module] of modules.entries()) visit(module, modules.length === 1 ? '' : `${i}`);
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
