/** Plain gradients that are shards: which ranks have the others. */
import type { CollectiveGroup } from './collective.js';
import type { Device } from './device.js';
import type { Tensor } from './tensor.js';

/** The groups of a shard, and the device of their collectives. @internal */
export interface GradientShard {
  readonly groups: readonly CollectiveGroup[];
  readonly device: Device;
}

const shards = new WeakMap<Tensor, GradientShard>();

/**
 * Declares that the gradient of a plain parameter is a shard, of which the ranks of `groups` have
 * the others, as `FullyShardedDataParallel` does. `GradScaler` skips the steps of all of them if
 * one gradient is not finite. Distributed tensors need no such mark.
 *
 * @param device - where collectives of the groups run
 * @example
 * const weight = ones([2], { requiresGrad: true });
 * markGradientShard(weight, [worldGroup()], weight.device);
 */
export function markGradientShard(
  parameter: Tensor,
  groups: readonly CollectiveGroup[],
  device: Device,
): void {
  shards.set(parameter, { groups, device });
}

/** Null for a gradient that is no shard. @internal */
export const gradientShardOf = (parameter: Tensor): GradientShard | null =>
  shards.get(parameter) ?? null;
