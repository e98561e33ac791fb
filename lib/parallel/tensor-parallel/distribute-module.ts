/**
 * Modules whose parameters are distributed tensors. Parameters stay the objects they were: only
 * what they hold is exchanged.
 */
import { checkFunction, optionsOf, unexpected } from '../../core/options.js';
import { type DeviceMesh, getCurrentMesh } from '../../distributed/index.js';
import { DTensor, distributeTensor, type Placement, Replicate } from '../../dtensor/index.js';
import { nn, ShardingError, type Tensor } from '../../index.js';
import type { StyleOptions } from './parallel-style.js';

/** Hooks of {@link distributeModule}. */
export interface DistributeModuleHooks {
  /**
   * Called for the module itself, under the name '', and for each below it, before what is left is
   * replicated.
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
 * Makes all parameters and buffers of a module distributed tensors, in place, and returns the
 * module. `partitionFn` distributes those that are to be cut, by `parameter.data =
 * distributeTensor(parameter.detach(), mesh, placements)`; what it leaves is replicated. All ranks
 * of the mesh call it.
 *
 * A parameter stays the same object, so optimizers that have not stepped yet go on with it, and
 * modules that share it go on sharing it; its gradient is dropped.
 *
 * @param mesh - that of `mesh.run` around the call if left out
 * @throws ArgumentError for what is no module or no function
 * @see PyTorch `torch.distributed.tensor.distribute_module`, which puts new parameters in the place
 * of the old ones
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

/** Hooks of a module of whatever arguments. */
export function beforeForward(
  module: nn.AnyModule,
  hook: (args: readonly unknown[]) => readonly unknown[] | undefined | void,
): void {
  module.registerForwardPreHook((_, args) => hook(args) as never);
}

export function afterForward(module: nn.AnyModule, hook: (output: unknown) => unknown): void {
  module.registerForwardHook((_, __, output) => hook(output));
}

/** @throws ArgumentError for what is no module */
export function requireModule(op: string, module: unknown): asserts module is nn.AnyModule {
  if (!(module instanceof nn.Module)) throw unexpected(op, 'module', 'an nn.Module', module);
}

/**
 * Replicates the module's own parameters and buffers, and those of modules below, as far as they
 * are plain.
 */
export function replicateRest(module: nn.AnyModule, mesh: DeviceMesh, options: StyleOptions): void {
  for (const t of [...module.parameters(), ...module.buffers()])
    if (!(t instanceof DTensor))
      putIn(t, distributeTensor(t.detach(), mesh, replicated(mesh), options));
}

function replicated(mesh: DeviceMesh): Placement[] {
  return mesh.shape.map(() => Replicate());
}

/** Another memory under a parameter; a gradient of the old shape would not fit it. */
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
 * Brings a parameter into a placement on a mesh of one dim. One that several modules share is
 * distributed once; the others must agree.
 *
 * @throws ShardingError if it is distributed already in another way
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
