/** The part of a distributed tensor that layers below DTensor know. */
import type { CollectiveGroup } from './collective.js';
import type { Device } from './device.js';
import type { DType } from './dtype.js';
import type { DrawPlace } from './mesh-rng.js';
import type { Placement } from './placement.js';
import type { Shape } from './shape.js';
import type { Tensor } from './tensor.js';

/**
 * The sharding of a distributed tensor. `local` is the local shard of this rank: a plain tensor on
 * the same storage, which lives as long as the distributed tensor.
 *
 * @internal
 */
export interface Sharding {
  readonly local: Tensor;
  /** Placements and mesh; interned. */
  readonly spec: {
    readonly id: number;
    readonly placements: readonly Placement[];
    meshInWords(): string;
    toString(): string;
  };
  /** The state of random draws on the mesh. */
  readonly draws: DrawPlace;
  /** The number of shards along a dim: the product of the mesh dims that shard it. */
  shardsAlong(dim: number): number;
  /** The whole tensor on this rank; the caller disposes of it. Ranks communicate. */
  full(op: string): Tensor;
  /**
   * An uninitialized tensor on the same mesh, with the same placements if it has the same shape,
   * else replicated. On the device of the local shard unless given.
   */
  empty(shape: Shape, dtype: DType, device?: Device): Tensor;
  /**
   * An uninitialized tensor of any shape, sharded as this one: `dims` gives for each of its dims
   * the dim of this tensor that has the same elements, or null. Where another dim of this tensor is
   * sharded, the result is whole. Partial is kept if `isPartial`, else whole.
   */
  emptyAround(shape: Shape, dims: readonly (number | null)[], isPartial: boolean): Tensor;
  /** A plain tensor that is equal on all ranks, as a replicated tensor on the mesh. */
  replicated(t: Tensor): Tensor;
  /** The tensor itself; partial values are reduced. */
  reduced(t: Tensor): Tensor;
  /** The tensor itself as a plain tensor on every rank, with its history. */
  whole(t: Tensor): Tensor;
  /** The shard of this rank of the tensor itself as a plain tensor, with its history. */
  shard(t: Tensor): Tensor;
  /** The group of all ranks of the mesh; null on ranks that are none of them. */
  group(): CollectiveGroup | null;
  /** A gradient of the tensor, redistributed to the placements of the tensor. */
  fit(gradient: Tensor): Tensor;
  /**
   * A gradient of this spec, sharded where it is whole on all ranks and a tensor of the other is
   * not. No ranks communicate.
   */
  shardLike(gradient: Tensor, like: Sharding['spec']): Tensor;
  /** A distributed tensor of the same spec over another local shard. */
  withLocal(local: Tensor): Tensor;
  /** A gradient of the tensor, in the placements that {@link fit} gives, over a local shard. */
  gradient(local: Tensor): Tensor;
}

/** The local shard of a tensor; a plain tensor is its own local shard. @internal */
export function heldOf(t: Tensor): Tensor {
  return t.sharding?.local ?? t;
}
