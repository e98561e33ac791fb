/** The parallel layouts of a plan: which tensors of a step are shards along which mesh dims. */

import { noGrad } from '../../autograd/grad-mode.js';
import type { Distribute } from '../../compile/step/distribute.js';
import { ArgumentError } from '../../core/errors.js';
import { type Placement, Replicate, Shard } from '../../core/placement.js';
import type { Shape } from '../../core/shape.js';
import type { Tensor } from '../../core/tensor.js';
import type { DeviceMesh } from '../../distributed/device-mesh/device-mesh.js';
import { DTensor } from '../../dtensor/dtensor.js';
import { Linear } from '../../nn/layers.js';
import type { Module } from '../../nn/module.js';
import { captureDistributed, untrainedNames } from '../capture.js';
import {
  prepareOptimizers,
  type StepArguments,
  stateTensors,
  stepArguments,
} from '../step-arguments.js';
import type { StepParts } from './memory.js';

/**
 * - `dp`: all ranks have the whole model and different data.
 * - `fsdp`: each rank has a shard of each parameter, and gathers them where they are needed.
 * - `tp`: parameters are shards along the last mesh dim, and all other dims have different data.
 * - `fsdp x tp`: the same, with further shards along all other dims.
 */
export type LayoutName = 'dp' | 'fsdp' | 'tp' | 'fsdp x tp';

/** What errors name. */
const CALLER = 'plan';

/** All layouts. */
export const LAYOUTS: readonly LayoutName[] = ['dp', 'fsdp', 'tp', 'fsdp x tp'];

/** A train step and its arguments. */
export interface PlannedStep {
  /** The step, as `spmd.compile` takes it. */
  readonly trainStep: (...args: never[]) => unknown;
  /**
   * Its arguments: models, optimizers with `capturable: true`, and this rank's part of the batch.
   */
  readonly args: readonly unknown[];
}

/**
 * The dim along which a parameter is sharded in `tp`, by its name in its module and its shape; null
 * for one that all ranks have whole.
 */
export type ShardParameter = (name: string, shape: Shape) => number | null;

/** Whether each linear layer multiplies by columns or by rows: in turns, as in an MLP. */
function inTurns(modules: readonly Module[], ranks: number): Map<Tensor, number> {
  const dims = new Map<Tensor, number>();
  let isByColumns = true;
  for (const module of modules)
    for (const [, layer] of module.namedModules()) {
      if (!(layer instanceof Linear)) continue;
      const { weight, bias } = layer;
      const dim = isByColumns ? 0 : 1;
      if (dims.has(weight) || (weight.sizes[dim] as number) % ranks !== 0) continue;
      dims.set(weight, dim);
      if (isByColumns && bias !== null) dims.set(bias, 0);
      isByColumns = !isByColumns;
    }
  return dims;
}

/** The dims along which parameters are sharded among the ranks. @throws ArgumentError for no dim */
function shardedDims(
  modules: readonly Module[],
  ranks: number,
  shardParameter: ShardParameter | null,
): Map<Tensor, number> {
  if (ranks === 1) return new Map();
  if (shardParameter === null) return inTurns(modules, ranks);
  const dims = new Map<Tensor, number>();
  for (const module of modules)
    for (const [name, p] of module.namedParameters()) {
      const dim: unknown = shardParameter(name, p.sizes);
      if (dim === null) continue;
      const size = p.sizes[dim as number];
      if (size === undefined || size % ranks !== 0)
        throw new ArgumentError(
          `plan: expected shardParameter to return null or a dim of ${name} that ${ranks} ranks ` +
            `share evenly, got ${String(dim)} for shape [${p.sizes.join(', ')}]`,
          { op: 'plan', argument: 'shardParameter' },
        );
      dims.set(p, dim as number);
    }
  return dims;
}

/** @throws ArgumentError for tensors on another type of device than that of the plan */
function checkDevices(found: StepArguments, deviceType: string): void {
  const named = [
    ...found.modules.flatMap((m) => [...m.namedParameters(), ...m.namedBuffers()]),
    ...found.batch.map((t, i): [string, Tensor] => [`tensor ${i} of the batch`, t]),
  ];
  const [name, t] = named.find(([, { device }]) => device.type !== deviceType) ?? [];
  if (t === undefined) return;
  throw new ArgumentError(
    `${CALLER}: expected the tensors of the step on ${deviceType}, the device of the plan, got ` +
      `${name} on ${t.device}. Make them there, or plan for their device.`,
    { op: CALLER, argument: 'device' },
  );
}

/**
 * Captures the step with its parameters sharded along the last dim of the mesh. They become their
 * shards here, so the step must be a new one.
 */
export function captureLayout(
  { trainStep, args }: PlannedStep,
  mesh: DeviceMesh,
  isTensorParallel: boolean,
  shardParameter: ShardParameter | null,
): StepParts {
  const found = stepArguments(args);
  checkDevices(found, mesh.deviceType);
  const ranks = isTensorParallel ? (mesh.shape.at(-1) as number) : 1;
  const dims = shardedDims(found.modules, ranks, shardParameter);
  noGrad(() => {
    for (const [p, dim] of dims)
      p.data = p
        .detach()
        .narrow(dim, 0, (p.sizes[dim] as number) / ranks)
        .contiguous();
  });
  prepareOptimizers(CALLER, found);
  const distribute = new Map<Tensor, Distribute>();
  const everywhere = (placement: Placement, last: Placement): Placement[] =>
    Array.from({ length: mesh.ndim }, (_, i) => (i === mesh.ndim - 1 ? last : placement));
  const add = (t: Tensor, last: Placement, others: Placement = Replicate()): void => {
    if (t.sharding !== null || t.storage === null || distribute.has(t)) return;
    const placements = everywhere(others, last);
    distribute.set(t, (local) => DTensor.fromLocal(local, mesh, placements));
  };
  const placementOf = (p: Tensor): Placement => {
    const dim = dims.get(p);
    return dim === undefined ? Replicate() : Shard(dim);
  };
  for (const module of found.modules) {
    for (const p of module.parameters()) add(p, placementOf(p));
    for (const buffer of module.buffers()) add(buffer, Replicate());
  }
  for (const [state, p] of stateTensors(found.optimizers))
    add(state, state.ndim === p.ndim ? placementOf(p) : Replicate());
  for (const optimizer of found.optimizers)
    for (const { params } of optimizer.paramGroups) for (const p of params) add(p, placementOf(p));
  for (const t of found.batch)
    if (t.ndim === 0) add(t, Replicate());
    else add(t, isTensorParallel ? Replicate() : Shard(0), Shard(0));
  const fn = trainStep as (...args: readonly unknown[]) => unknown;
  const captured = captureDistributed({ caller: CALLER, fn, args: [...args], found, distribute });
  const untrained = untrainedNames(captured, found);
  if (untrained !== null)
    throw new ArgumentError(
      `${CALLER}: the step computes gradients of ${untrained}, and no optimizer is among its ` +
        'arguments, whose state and work a plan counts. Pass it in args, and call its step().',
      { op: CALLER },
    );
  return captured;
}
