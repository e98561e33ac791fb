/** A flat parameter as the one parameter of a group, which gathers it and reduces its gradient. */
import type { Tensor } from '../../index.js';
import type { ShardMesh } from '../fully-shard/shard-mesh.js';
import { ShardedParameter } from '../fully-shard/sharded-parameter.js';
import type { FlatParamHandle } from './handle.js';

/**
 * The shard of a flat parameter is a plain tensor of equal size on each rank, and modules use views
 * of the whole.
 */
export class FlatShardedParameter extends ShardedParameter {
  private readonly handle: FlatParamHandle;

  /** Pads the flat parameter; the group that gets this divides it. */
  constructor(handle: FlatParamHandle, shards: ShardMesh) {
    handle.tensors.padFor(shards.ranks, shards.rank);
    super('_flat_param', [{ module: handle as never, name: 'flatParam' }], 0, shards);
    this.handle = handle;
  }

  override get isWhole(): boolean {
    return this.handle.flatParam._isWhole;
  }

  override shardIn(flat: Tensor, offset: number): Tensor {
    return flat.narrow(0, offset, this.paddedNumel);
  }

  override overShard(local: Tensor): Tensor {
    return local;
  }

  override pathAt(offset: number): string {
    return this.handle.tensors.nameAt(offset);
  }

  override describe(): string[] {
    return this.handle.describe();
  }

  override set(tensor: Tensor): void {
    if (tensor === this.parameter) this.handle.tensors.useShard();
    else this.handle.tensors.useViews(tensor);
  }
}
