/** What the layers below DTensor know of a distributed tensor. */
import type { DType } from './dtype.js';
import type { DrawPlace } from './mesh-rng.js';
import type { Placement } from './placement.js';
import type { Shape } from './shape.js';
import type { Tensor } from './tensor.js';

/**
 * What a rank holds of a tensor that several ranks hold together. `local` is this rank's part, an
 * ordinary tensor on the same storage; it lives and dies with the whole.
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
  /** Of its ranks: what they draw for it. */
  readonly draws: DrawPlace;
  /** The whole tensor on this rank, for the caller to dispose of: ranks communicate. */
  full(op: string): Tensor;
  /**
   * Memory for a tensor of the same ranks: held alike if it has the same shape, else replicated.
   */
  empty(shape: Shape, dtype: DType): Tensor;
  /** A plain tensor that every rank has alike, as a tensor of the same ranks. */
  replicated(t: Tensor): Tensor;
  /** The tensor itself, held alike but for terms, which are reduced. */
  reduced(t: Tensor): Tensor;
  /** The tensor itself, whole on every rank, as a plain one with its history. */
  whole(t: Tensor): Tensor;
  /** A gradient of the tensor, held as the tensor is. */
  fit(gradient: Tensor): Tensor;
}

/** What this rank holds of a tensor: all of one that is not distributed. @internal */
export function heldOf(t: Tensor): Tensor {
  return t.sharding?.local ?? t;
}
