/**
 * Lets factories create distributed tensors: each rank computes its own shard, and no rank
 * allocates the whole tensor.
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

/** The mesh and placements of the next factory call. */
interface PendingFactory {
  readonly op: string;
  readonly mesh: DeviceMesh;
  readonly placements: readonly Placement[];
}

let pending: PendingFactory | null = null;

/** Runs a plain factory so that its tensor is distributed over a mesh. @internal */
export function runFactory(
  op: string,
  mesh: DeviceMesh,
  placements: readonly Placement[],
  factory: () => Tensor,
): Tensor {
  if (placements.some((placement) => placement.isPartial())) {
    throw new ShardingError(
      `${op}: expected Shard or Replicate, got ${formatPlacements(placements)}. Create a ` +
        'partial DTensor with DTensor.fromLocal(t, mesh, [Partial()]).',
      { op },
    );
  }
  pending = { op, mesh, placements };
  try {
    return drawnTogether(mesh.draws, factory);
  } finally {
    pending = null;
  }
}

/** Whether an op is the factory call that {@link runFactory} waits for. @internal */
export function isPendingFactory(inputs: readonly Tensor[]): boolean {
  return pending !== null && inputs.length === 0;
}

/** Runs the op of the pending factory on this rank's shard. @internal */
export function runPendingFactory(op: AnyOp, params: object): Tensor[] {
  const { op: name, mesh, placements } = pending as PendingFactory;
  pending = null;
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

/** Whether the op's rule can shard its result; rounded ranges, for example, are computed whole. */
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
