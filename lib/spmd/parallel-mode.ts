/** How a train step is distributed: which tensors are whole on each rank, and which are parts. */
import type { Distribute } from '../compile/step/distribute.js';
import { isDataParallel } from '../core/data-parallel-modules.js';
import { ArgumentError } from '../core/errors.js';
import { unexpected } from '../core/options.js';
import { Placement, Replicate, Shard } from '../core/placement.js';
import type { Tensor } from '../core/tensor.js';
import { DeviceMesh, getWorldSize, initDeviceMesh, isInitialized } from '../distributed/index.js';
import { DTensor } from '../dtensor/dtensor.js';
import { type StepArguments, stateTensors } from './step-arguments.js';

/**
 * How the plain tensors of a train step are distributed. Distributed ones keep their placements.
 */
export interface ParallelMode {
  /** The ranks; all ranks in one dim by default. */
  mesh?: DeviceMesh;
  /**
   * A function that gives each tensor of the batch its placements, one for each mesh dim: by
   * default `Shard(0)`, and `Replicate()` for 0-d tensors. `position`: that among all tensors of
   * the batch.
   */
  batch?: (t: Tensor, position: number) => readonly Placement[];
}

/** @throws ArgumentError for what is no mode */
export function checkedMode(given: unknown): ParallelMode {
  const { mesh, batch, ...others } = (given ?? {}) as ParallelMode & object;
  const isFine =
    typeof given === 'object' &&
    given !== null &&
    Object.keys(others).length === 0 &&
    (mesh === undefined || mesh instanceof DeviceMesh) &&
    (batch === undefined || typeof batch === 'function');
  if (!isFine)
    throw unexpected(
      'spmd.compile',
      'parallelMode',
      'an object of a DeviceMesh as mesh and a function (tensor, position) => placements as batch',
      given,
    );
  return { ...(mesh === undefined ? {} : { mesh }), ...(batch === undefined ? {} : { batch }) };
}

/** The ranks of a step; null without ranks, and for a step without tensors. */
export function meshOf(
  { modules, batch }: StepArguments,
  { mesh }: ParallelMode,
): DeviceMesh | null {
  const first = [...modules.flatMap((m) => [...m.parameters()]), ...batch][0];
  if (first === undefined || (mesh === undefined && !isInitialized())) return null;
  return mesh ?? initDeviceMesh(first.device.type as 'cpu' | 'cuda', [getWorldSize()]);
}

/**
 * What each plain tensor of a step becomes while it is captured: parameters, buffers and optimizer
 * state are replicated, tensors of the batch are the rank's part of whole ones. Nothing, if modules
 * are data parallel by themselves.
 */
export function distributionOf(
  { modules, optimizers, batch }: StepArguments,
  mesh: DeviceMesh,
  mode: ParallelMode,
): Map<Tensor, Distribute> {
  const found = new Map<Tensor, Distribute>();
  if (isDivided({ modules }, mode)) return found;
  const add = (t: Tensor, placements: readonly Placement[]): void => {
    if (t.sharding !== null || t.storage === null || found.has(t)) return;
    found.set(t, (local) => DTensor.fromLocal(local, mesh, placements));
  };
  const replicated = Array.from({ length: mesh.ndim }, () => Replicate());
  for (const module of modules)
    for (const t of [...module.parameters(), ...module.buffers()]) add(t, replicated);
  for (const [state] of stateTensors(optimizers)) add(state, replicated);
  for (const optimizer of optimizers)
    for (const { params, lr } of optimizer.paramGroups as readonly {
      params: Tensor[];
      lr?: unknown;
    }[])
      for (const t of [...params, lr]) if (isTensor(t)) add(t, replicated);
  const sharded = Array.from({ length: mesh.ndim }, () => Shard(0));
  batch.forEach((t, i) => {
    add(
      t,
      mode.batch === undefined
        ? t.ndim === 0
          ? replicated
          : sharded
        : chosen(t, i, mode.batch, mesh),
    );
  });
  return found;
}

/**
 * Whether modules divide the batch among ranks themselves, and reduce gradients.
 *
 * @throws ArgumentError for a mode that divides the batch, too
 */
function isDivided({ modules }: Pick<StepArguments, 'modules'>, { batch }: ParallelMode): boolean {
  const own = modules.flatMap((module) => [...module.modules()]).find(isDataParallel);
  if (own === undefined) return false;
  if (batch === undefined) return true;
  throw new ArgumentError(
    `spmd.compile: expected parallelMode without batch, because ${own.constructor.name} is data ` +
      'parallel by itself: each rank passes a batch of its own, and gradients are averaged.',
    { op: 'spmd.compile', module: own.constructor.name },
  );
}

/** @throws ArgumentError unless the function returns a placement for each mesh dim */
function chosen(
  t: Tensor,
  position: number,
  batch: NonNullable<ParallelMode['batch']>,
  { ndim }: DeviceMesh,
): readonly Placement[] {
  const placements: unknown = batch(t, position);
  const fits =
    Array.isArray(placements) &&
    placements.length === ndim &&
    placements.every((each) => each instanceof Placement);
  if (fits) return placements as Placement[];
  throw unexpected(
    'spmd.compile',
    `what parallelMode.batch returns for tensor ${position} of the batch`,
    `a list of ${ndim} placements, one for each mesh dim`,
    placements,
  );
}

const isTensor = (value: unknown): value is Tensor =>
  typeof value === 'object' && value !== null && 'storage' in value && 'sharding' in value;
