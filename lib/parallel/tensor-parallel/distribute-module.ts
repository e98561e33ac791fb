/**
 * Distributes the parameters of modules. Parameters remain the same objects; only their data is
 * replaced.
 */
import { declareMade } from '../../core/library-exports.js';
import { checkFunction, optionsOf, unexpected } from '../../core/options.js';
import { type DeviceMesh, getCurrentMesh } from '../../distributed/index.js';
import { DTensor, distributeTensor, type Placement, Replicate } from '../../dtensor/index.js';
import { nn, ShardingError, type Tensor } from '../../index.js';
import type { StyleOptions } from './parallel-style.js';

/** Hooks of {@link distributeModule}. */
export interface DistributeModuleHooks {
  /**
   * Called for the module itself, with the name '', and for each submodule, before the remaining
   * parameters are replicated.
   */
  partitionFn?: ((name: string, module: nn.AnyModule, mesh: DeviceMesh) => void) | null;
  /** Runs before `forward`; may return other arguments (an array). */
  inputFn?:
    | ((
        module: nn.AnyModule,
        inputs: readonly unknown[],
        mesh: DeviceMesh,
      ) => readonly unknown[] | undefined | void)
    | null;
  /** Runs after `forward`; may return another result. */
  outputFn?: ((module: nn.AnyModule, output: unknown, mesh: DeviceMesh) => unknown) | null;
}

/**
 * Distributes all parameters and buffers of a module in place, and returns the module.
 * `partitionFn` shards some by `parameter.data = distributeTensor(parameter.detach(), mesh,
 * placements)`; the others are replicated. All ranks of the mesh call it.
 *
 * A parameter remains the same object, so modules still share it, and optimizers that have not
 * stepped yet still update it. Its gradient is dropped.
 *
 * @param mesh - that of `mesh.run` around the call if left out
 * @throws ArgumentError unless the module is a module and the hooks are functions
 * @see PyTorch `torch.distributed.tensor.distribute_module`, which replaces the parameters by new
 * ones
 */
export function distributeModule<M extends nn.AnyModule>(
  module: M,
  mesh: DeviceMesh = getCurrentMesh('distributeModule'),
  hooks: DistributeModuleHooks = {},
): M {
  const op = 'distributeModule';
  requireModule(op, module);
  const {
    partitionFn = null,
    inputFn = null,
    outputFn = null,
  } = optionsOf(op, hooks, 'partitionFn inputFn outputFn');
  for (const [name, fn] of Object.entries({ partitionFn, inputFn, outputFn }))
    if (fn !== null) checkFunction(op, name, fn);
  for (const [name, each] of module.namedModules()) partitionFn?.(name, each, mesh);
  replicateRest(module, mesh, {});
  if (inputFn !== null) beforeForward(module, (args) => inputFn(module, args, mesh));
  if (outputFn !== null) afterForward(module, (output) => outputFn(module, output, mesh));
  return module;
}

/** Registers a pre-hook without types of arguments. */
export function beforeForward(
  module: nn.AnyModule,
  hook: (args: readonly unknown[]) => readonly unknown[] | undefined | void,
): void {
  module.registerForwardPreHook(declareMade((_, args) => hook(args) as never));
}

export function afterForward(module: nn.AnyModule, hook: (output: unknown) => unknown): void {
  module.registerForwardHook(declareMade((_, __, output) => hook(output)));
}

/** @throws ArgumentError unless it is a module */
export function requireModule(op: string, module: unknown): asserts module is nn.AnyModule {
  if (!(module instanceof nn.Module)) throw unexpected(op, 'module', 'an nn.Module', module);
}

/** Replicates all parameters and buffers of a module and its submodules that are plain. */
export function replicateRest(module: nn.AnyModule, mesh: DeviceMesh, options: StyleOptions): void {
  for (const t of [...module.parameters(), ...module.buffers()])
    if (!(t instanceof DTensor))
      putIn(t, distributeTensor(t.detach(), mesh, replicated(mesh), options));
}

function replicated(mesh: DeviceMesh): Placement[] {
  return mesh.shape.map(() => Replicate());
}

/** Replaces the data of a parameter and drops its gradient, which would have the old shape. */
export function putIn(t: Tensor, distributed: Tensor): void {
  t.grad = null;
  t.data = distributed;
}

/** A parameter of a module, by name. */
export interface OwnedParameter {
  readonly op: string;
  readonly module: nn.AnyModule;
  readonly name: string;
}

/**
 * Distributes a parameter on a mesh of one dim. A parameter that several modules share is
 * distributed once.
 *
 * @throws ShardingError if the parameter is distributed already with another placement
 */
export function placeParameter(
  { op, module, name }: OwnedParameter,
  mesh: DeviceMesh,
  placement: Placement,
  distribute: (t: Tensor) => Tensor,
): void {
  const parameter = (module as unknown as Record<string, nn.Parameter | null>)[name] ?? null;
  if (parameter === null) return;
  if (!(parameter instanceof DTensor)) {
    putIn(parameter, distribute(parameter.detach()));
    return;
  }
  if (parameter.deviceMesh.id === mesh.id && parameter.placements[0] === placement) return;
  throw new ShardingError(
    `${op}: expected ${module.constructor.name}.${name} to be a plain tensor, or placed as ` +
      `[${placement}] on ${mesh}, got ${parameter._spec}. ` +
      'A parameter that two modules share has one placement: give both modules styles that ' +
      'agree, such as RowwiseParallel for an embedding and ColwiseParallel for the output ' +
      'layer that shares its weight.',
    { op, name, wanted: String(placement), given: String(parameter._spec) },
  );
}
