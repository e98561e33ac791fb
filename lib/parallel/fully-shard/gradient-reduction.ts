/** The reduction of a group's gradients: pack, reduce-scatter, all-reduce over replicas, unpack. */
import { allReduce, reduceScatterTensor, withCallSite } from '../../distributed/index.js';
import { type Device, type DType, empty, float16, keep, type Tensor } from '../../index.js';
import { RefillableBuffer } from '../common/refillable-buffer.js';
import type { CommContext } from './comm-context.js';
import type { OffloadPolicy } from './policies.js';
import type { ShardMesh } from './shard-mesh.js';
import type { ShardedParameter } from './sharded-parameter.js';
import { packGradients } from './transfers.js';

type Gradients = readonly (Tensor | null)[];

/** What a reduction needs to know of its group. */
export interface ReductionPlan {
  readonly parameters: readonly ShardedParameter[];
  readonly mesh: ShardMesh;
  readonly device: Device;
  /** The dtype of shards and of their gradients. */
  readonly dtype: DType;
  readonly reduceDtype: DType;
  readonly offload: OffloadPolicy;
  /** The group in words, for errors of its collectives. */
  readonly site: string;
}

export class GradientReduction {
  private readonly plan: ReductionPlan;
  private readonly input: RefillableBuffer;
  /** Unsharded gradients of backward passes that did not reduce, in the dtype of reductions. */
  private accumulated: (Tensor | null)[];

  constructor(plan: ReductionPlan) {
    this.plan = plan;
    const { parameters, mesh, reduceDtype, device } = plan;
    const each = parameters.reduce((sum, { paddedNumel }) => sum + paddedNumel, 0);
    this.input = new RefillableBuffer(each * mesh.ranks, reduceDtype, device);
    this.accumulated = parameters.map(() => null);
  }

  get hasAccumulated(): boolean {
    return this.accumulated.some((grad) => grad !== null);
  }

  /** Adds gradients to those that a later reduction takes along. */
  accumulate(grads: Gradients): void {
    const { reduceDtype, parameters } = this.plan;
    for (const [i, grad] of grads.entries()) {
      if (grad === null) continue;
      const local = (parameters[i] as ShardedParameter).localGradient(grad).detach();
      const before = this.accumulated[i];
      if (before) before.add_(local);
      else this.accumulated[i] = keep(local.to(reduceDtype, { copy: true }).contiguous());
    }
  }

  /** Drops what has accumulated. */
  clear(): void {
    for (const grad of this.accumulated) grad?.dispose();
    this.accumulated.fill(null);
  }

  /**
   * Reduces the gradients of the whole parameters. Returns those of the shards, as distributed
   * tensors on one buffer; null where neither a gradient came nor one has accumulated.
   */
  run(grads: Gradients, comm: CommContext, allReduces: boolean): (Tensor | null)[] {
    if (this.hasAccumulated) this.accumulate(grads);
    const complete = this.hasAccumulated ? [...this.accumulated] : grads;
    const { parameters } = this.plan;
    const present = parameters.filter((_, i) => complete[i] !== null);
    if (present.length === 0) return parameters.map(() => null);
    comm.freeReduced(this.input);
    const flat = this.reduce(this.pack(complete, present), allReduces);
    this.clear();
    let offset = 0;
    return parameters.map((parameter, i) => {
      if (complete[i] === null) return null;
      const grad = parameter.distributed(flat, offset);
      offset += parameter.paddedNumel;
      return grad;
    });
  }

  private pack(grads: Gradients, present: readonly ShardedParameter[]): Tensor {
    const { parameters, mesh } = this.plan;
    const each = present.reduce((sum, { paddedNumel }) => sum + paddedNumel, 0);
    const packed = this.input.allocate().narrow(0, 0, each * mesh.ranks);
    const local = grads.flatMap((grad, i) =>
      grad === null ? [] : [(parameters[i] as ShardedParameter).localGradient(grad)],
    );
    packGradients(local, present, packed, mesh.ranks);
    return packed;
  }

  private reduce(packed: Tensor, allReduces: boolean): Tensor {
    const { mesh, reduceDtype, dtype, device, offload, site } = this.plan;
    const flat = empty([packed.numel() / mesh.ranks], { dtype: reduceDtype, device });
    const replicas = allReduces ? mesh.replicas : null;
    const total = mesh.ranks * (replicas === null ? 1 : mesh.mesh.size(0));
    // The sum of many float16 gradients overflows, their average may vanish: half of each.
    const before = reduceDtype === float16 ? powerOfTwoNearRoot(total) : 1;
    if (before > 1) packed.div_(before);
    const op = reduceDtype === float16 ? 'sum' : 'avg';
    withCallSite(site, () => {
      reduceScatterTensor(flat, packed, { op, group: mesh.group });
      if (replicas !== null) allReduce(flat, { op, group: replicas });
    });
    // On the stream of the reduction, so that compute does not wait for it.
    return (replicas ?? mesh.group).onStream(device, () => {
      if (reduceDtype === float16) flat.div_(total / before);
      const cast = reduceDtype === dtype ? flat : flat.to(dtype);
      return offload.toCpu ? cast.to('cpu', { nonBlocking: true }) : cast;
    });
  }
}

/** A power of two near the square root, as PyTorch divides before a reduction in float16. */
function powerOfTwoNearRoot(ranks: number): number {
  let factor = 1;
  while (ranks % factor === 0 && ranks / factor > factor) factor *= 2;
  return factor;
}
