/**
 * Lets factories make distributed tensors: each rank makes its own part, and no rank has the whole.
 */
import { belowDTensor, dispatchOne } from '../core/dispatch.js';
import { ShardingError } from '../core/errors.js';
import type { AnyOp } from '../core/op.js';
import type { Placement } from '../core/placement.js';
import { drawnTogether } from '../core/random.js';
import type { Tensor } from '../core/tensor.js';
import type { DeviceMesh } from '../distributed/device-mesh/device-mesh.js';
import { empty } from '../ops/factories.js';
import { createDTensor } from './ops.js';
import { outputMetasOf } from './propagation/propagate.js';
import { redistributeLocal } from './redistribute/run.js';
import { checkPlacements } from './spec/checks.js';
import { shardAt } from './spec/shard-geometry.js';
import { type DTensorSpec, formatPlacements, internSpec, replicateSpec } from './spec/spec.js';

/** Where the next tensor that is made from nothing goes. */
interface Destination {
  readonly op: string;
  readonly mesh: DeviceMesh;
  readonly placements: readonly Placement[];
}

let destination: Destination | null = null;

/** Runs a factory whose tensor is to be held by the ranks of a mesh. @internal */
export function createOn(
  op: string,
  mesh: DeviceMesh,
  placements: readonly Placement[],
  factory: () => Tensor,
): Tensor {
  if (placements.some((placement) => placement.isPartial())) {
    throw new ShardingError(
      `${op}: expected Shard or Replicate, got ${formatPlacements(placements)}. Create a partial DTensor with DTensor.fromLocal(t, mesh, [Partial()]).`,
      { op },
    );
  }
  destination = { op, mesh, placements };
  try {
    return drawnTogether(mesh.draws, factory);
  } finally {
    destination = null;
  }
}

/** Whether a call is what {@link createOn} waits for. @internal */
export function isFactoryCall(inputs: readonly Tensor[]): boolean {
  return destination !== null && inputs.length === 0;
}

/** This rank's part of what the op makes. @internal */
export function createShard(op: AnyOp, params: object): Tensor[] {
  const { op: name, mesh, placements } = destination as Destination;
  destination = null;
  const [meta] = outputMetasOf(op, [], params);
  if (meta === undefined) return belowDTensor(op, [], params, null);
  const spec = internSpec(
    mesh,
    checkPlacements(name, mesh, placements, meta.shape.length),
    [],
    meta,
  );
  const coordinate = mesh.getCoordinate();
  if (coordinate !== null && !canComputeShard(op, params, spec)) {
    const [whole] = belowDTensor(op, [], params, null) as [Tensor];
    return [createDTensor(redistributeLocal(whole, replicateSpec(spec), spec), spec)];
  }
  const tensor = createDTensor(
    empty(shardAt(spec, coordinate).shape, { dtype: meta.dtype, device: mesh.device }),
    spec,
  );
  return coordinate === null || op.traits.includes('uninitialized')
    ? [tensor]
    : [dispatchOne(op, [], params, tensor)];
}

/** Numbers that are rounded to integers are not the same if a rank begins among them. */
function canComputeShard(
  { sharding }: AnyOp,
  params: object,
  { placements, mesh }: DTensorSpec,
): boolean {
  return placements.every((placement, meshDim) => {
    if (!placement.isShard()) return true;
    const strategies =
      sharding?.strategies([], params, {
        ranks: mesh.shape[meshDim] as number,
        divides: () => true,
      }) ?? [];
    return strategies.some(({ outputs }) => outputs[0] === placement);
  });
}
