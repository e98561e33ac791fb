/** The local shard of a distributed tensor, and the check of its shape. */
import type { CollectiveGroup } from '../../core/collective.js';
import type { Device } from '../../core/device.js';
import type { DType } from '../../core/dtype.js';
import { ShardingError } from '../../core/errors.js';
import type { DrawPlace } from '../../core/mesh-rng.js';
import { formatShape, type Shape, sameShape } from '../../core/shape.js';
import type { Sharding } from '../../core/sharding.js';
import type { Tensor } from '../../core/tensor.js';
import type { DeviceMesh } from '../../distributed/device-mesh/device-mesh.js';
import { shardAt } from './shard-geometry.js';
import type { DTensorSpec } from './spec.js';

/**
 * The `sharding` of a distributed tensor: this rank's local shard and the spec. The methods are
 * implemented in `dtensor/ops.ts`, because they redistribute, which this folder may not import.
 * @internal
 */
export abstract class LocalShard implements Sharding {
  readonly local: Tensor;
  readonly spec: DTensorSpec;
  /**
   * The reason why a result that should be a view has its own memory, or null. Such a tensor
   * refuses in-place changes, which would not reach the base.
   */
  noView: string | null = null;

  constructor(local: Tensor, spec: DTensorSpec) {
    this.local = local;
    this.spec = spec;
  }

  get draws(): DrawPlace {
    return (this.spec.mesh as DeviceMesh).draws;
  }

  group(): CollectiveGroup | null {
    const mesh = this.spec.mesh as DeviceMesh;
    return mesh.getCoordinate() === null ? null : mesh.groupAcross([...mesh.shape.keys()]);
  }

  shardsAlong(dim: number): number {
    const { mesh, placements } = this.spec;
    return mesh.shape.reduce((n, ranks, i) => (placements[i]?.isShard(dim) ? n * ranks : n), 1);
  }

  abstract full(op: string): Tensor;
  abstract empty(shape: Shape, dtype: DType, device?: Device): Tensor;
  abstract emptyAround(shape: Shape, dims: readonly (number | null)[], isPartial: boolean): Tensor;
  abstract replicated(t: Tensor): Tensor;
  abstract reduced(t: Tensor): Tensor;
  abstract whole(t: Tensor): Tensor;
  abstract shard(t: Tensor): Tensor;
  abstract fit(gradient: Tensor): Tensor;
  abstract shardLike(gradient: Tensor, like: Sharding['spec']): Tensor;
  abstract withLocal(local: Tensor): Tensor;
  abstract gradient(local: Tensor): Tensor;
}

/** Null for a tensor that is not distributed. @internal */
export function localShardOf(t: Tensor): LocalShard | null {
  return t.sharding as LocalShard | null;
}

/** The mesh of a spec, with its groups. @internal */
export function meshOf(spec: DTensorSpec): DeviceMesh {
  return spec.mesh as DeviceMesh;
}

/**
 * @param advice ends the error, unless the tensor has the shape of the whole tensor
 * @throws ShardingError unless the tensor has the shape of this rank's shard
 * @internal
 */
export function checkLocalShape(
  op: string,
  local: Tensor,
  spec: DTensorSpec,
  advice = 'A spec has the shape of the whole tensor.',
): void {
  const { shape } = shardAt(spec, spec.mesh.getCoordinate());
  if (sameShape(local.sizes, shape)) return;
  const hint = sameShape(local.sizes, spec.shape)
    ? 'That is the shape of the whole tensor: shard it with distributeTensor(t, mesh, ' +
      'placements), or use [Replicate()] if every rank has all of it.'
    : advice;
  throw new ShardingError(
    `${op}: expected the local shard of ${spec} to have shape ${formatShape(shape)}, got ` +
      `${formatShape(local.sizes)}. ${hint}`,
    {
      op,
      spec: String(spec),
      expected: shape,
      given: local.sizes,
    },
  );
}
