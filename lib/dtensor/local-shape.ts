/** Where the local shard of a distributed tensor lies in the whole one. */
import { unexpected } from '../core/options.js';
import type { Shape } from '../core/shape.js';
import { shardAt } from './spec/shard-geometry.js';
import { DTensorSpec } from './spec/spec.js';

/** A hyper-rectangle of a tensor. */
export interface ShardRegion {
  /** The sizes of the shard. */
  readonly shape: Shape;
  /** Its first index in each dim of the whole tensor. */
  readonly offsets: Shape;
}

/**
 * The shape of this rank's shard of a tensor, and where it begins in the whole tensor. A rank
 * outside of the mesh has shape [0].
 *
 * @param spec - of the tensor: `t._spec`
 * @throws ArgumentError unless it is a spec
 * @see PyTorch `torch.distributed.tensor._utils.compute_local_shape_and_global_offset`
 */
export function computeLocalShapeAndGlobalOffset(spec: DTensorSpec): ShardRegion {
  if (!(spec instanceof DTensorSpec))
    throw unexpected('computeLocalShapeAndGlobalOffset', 'spec', 'a DTensorSpec', spec);
  const { shape, offsets } = shardAt(spec, spec.mesh.getCoordinate());
  return { shape, offsets };
}
