/** The link between a distributed tensor and the part of it that this rank holds. */

import type { DType } from '../../core/dtype.js';
import { ShardingError } from '../../core/errors.js';
import type { DrawPlace } from '../../core/mesh-rng.js';
import { formatShape, type Shape, sameShape } from '../../core/shape.js';
import type { Sharding, Tensor } from '../../core/tensor.js';
import type { DeviceMesh } from '../../distributed/device-mesh/device-mesh.js';
import { shardAt } from './shard-geometry.js';
import type { DTensorSpec } from './spec.js';

/** The methods that run ops are in {@link DTensorSharding}, above this folder. @internal */
export abstract class LocalShard implements Sharding {
  readonly local: Tensor;
  readonly spec: DTensorSpec;
  /**
   * Of what should be a view and has memory of its own: why, so that changes are not lost silently.
   */
  noView: string | null = null;

  constructor(local: Tensor, spec: DTensorSpec) {
    this.local = local;
    this.spec = spec;
  }

  get draws(): DrawPlace {
    return (this.spec.mesh as DeviceMesh).draws;
  }

  abstract full(op: string): Tensor;
  abstract empty(shape: Shape, dtype: DType): Tensor;
  abstract replicated(t: Tensor): Tensor;
  abstract reduced(t: Tensor): Tensor;
  abstract whole(t: Tensor): Tensor;
  abstract fit(gradient: Tensor): Tensor;
}

/** @internal null for a tensor that is not distributed */
export function localShardOf(t: Tensor): LocalShard | null {
  return t.sharding as LocalShard | null;
}

/** The mesh of a spec, with its groups. @internal */
export function meshOf(spec: DTensorSpec): DeviceMesh {
  return spec.mesh as DeviceMesh;
}

/**
 * @throws ShardingError unless the tensor is the piece of this rank; what it says may be right is
 * added to `advice`, which has it for other cases @internal
 */
export function checkLocalShape(
  op: string,
  local: Tensor,
  spec: DTensorSpec,
  advice = 'A spec has the shape of the whole tensor.',
): void {
  const { shape } = shardAt(spec, spec.mesh.getCoordinate());
  if (sameShape(local.shape, shape)) return;
  const hint = sameShape(local.shape, spec.shape)
    ? 'That is the shape of the whole tensor: shard it with distributeTensor(t, mesh, placements), or use [Replicate()] if every rank has all of it.'
    : advice;
  throw new ShardingError(
    `${op}: expected the local shard of ${spec} to have shape ${formatShape(shape)}, got ${formatShape(local.shape)}. ${hint}`,
    {
      op,
      spec: String(spec),
      expected: shape,
      given: local.shape,
    },
  );
}
