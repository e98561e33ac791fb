/** The link between a distributed tensor and the part of it that this rank holds. */

import type { DType } from '../../core/dtype.js';
import { ShardingError } from '../../core/errors.js';
import type { DrawPlace } from '../../core/mesh-rng.js';
import { contiguousStrides, formatShape, type Shape, sameShape } from '../../core/shape.js';
import { type Sharding, Tensor } from '../../core/tensor.js';
import type { DeviceMesh } from '../../distributed/device-mesh/device-mesh.js';
import { shardAt } from './shard-geometry.js';
import { type DTensorSpec, internSpec, reducedPlacements, replicatedSpec } from './spec.js';

/**
 * What the parts do with the tensors they belong to; handed over by the files that can. @internal
 */
export const shardMethods = {
  full: null as unknown as (t: LocalShard, op: string) => Tensor,
  reduced: null as unknown as (shard: LocalShard, t: Tensor) => Tensor,
  whole: null as unknown as (shard: LocalShard, t: Tensor) => Tensor,
  fit: null as unknown as (t: LocalShard, gradient: Tensor) => Tensor,
};

/** @internal */
export class LocalShard implements Sharding {
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

  full(op: string): Tensor {
    return shardMethods.full(this, op);
  }

  empty(shape: Shape, dtype: DType): Tensor {
    const { mesh, placements, order } = this.spec;
    const alike = sameShape(shape, this.spec.shape);
    const meta = { shape, strides: contiguousStrides(shape), dtype };
    const spec = alike
      ? internSpec(mesh, reducedPlacements(placements), order, meta)
      : replicatedSpec(mesh, meta);
    return distributed(
      this.local.newEmpty(shardAt(spec, mesh.getCoordinate()).shape, { dtype }),
      spec,
    );
  }

  replicated(t: Tensor): Tensor {
    const { mesh } = this.spec;
    const spec = replicatedSpec(mesh, t);
    return distributed(mesh.getCoordinate() === null ? t.newEmpty([0]) : t, spec);
  }

  reduced(t: Tensor): Tensor {
    return shardMethods.reduced(this, t);
  }

  whole(t: Tensor): Tensor {
    return shardMethods.whole(this, t);
  }

  fit(gradient: Tensor): Tensor {
    return shardMethods.fit(this, gradient);
  }
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

/**
 * A distributed tensor over a fresh local one, whose share in its memory it takes over.
 *
 * @throws ShardingError if the local tensor is not the piece that the spec says
 * @internal
 */
export function distributed(local: Tensor, spec: DTensorSpec): Tensor {
  checkLocalShape('DTensor', local, spec);
  const { shape, strides, dtype } = spec.tensorMeta;
  const whole = new Tensor(shape, strides, 0, dtype, local.device, local.storage);
  if (local.storage !== null) local.storage.refs--;
  whole.sharding = new LocalShard(local, spec);
  return whole;
}
