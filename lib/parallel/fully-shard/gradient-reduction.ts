/** The reduction of a group's gradients: pack, reduce-scatter, all-reduce over replicas, unpack. */
import {
  allReduce,
  reduceScatterTensor,
  withCallSite,
  withPurpose,
} from '../../distributed/index.js';
import { type Device, type DType, empty, float16, keep, type Tensor, zeros } from '../../index.js';
import { RefillableBuffer } from '../common/refillable-buffer.js';
import {
  ComparedCollectives,
  comparingOwners,
  type ParameterList,
} from '../common/same-parameters.js';
import type { CommContext } from './comm-context.js';
import type { OffloadPolicy } from './policies.js';
import type { ShardMesh } from './shard-mesh.js';
import type { ShardedParameter } from './sharded-parameter.js';
import { packGradients } from './transfers.js';

type Gradients = readonly (Tensor | null)[];

/** The start of each parameter in a flat gradient; null for parameters that have none. */
type Starts = readonly (number | null)[];

/** What a reduction needs to know of its group. */
export interface ReductionPlan {
  readonly parameters: readonly ShardedParameter[];
  readonly mesh: ShardMesh;
  readonly device: Device;
  /** The dtype of shards and of their gradients. */
  readonly dtype: DType;
  readonly reduceDtype: DType;
  readonly offload: OffloadPolicy;
  /** Who calls the collectives, for errors. */
  readonly site: string;
  /** What the ranks must have in common. */
  readonly list: ParameterList;
}

export class GradientReduction {
  private readonly plan: ReductionPlan;
  private readonly input: RefillableBuffer;
  /** Unsharded gradients of backward passes that did not reduce, in the dtype of reductions. */
  private accumulated: (Tensor | null)[];
  /** The sum of shards of passes that did not reduce over the replicas. */
  private partial: { readonly flat: Tensor; readonly starts: Starts } | null = null;

  /** Those over replicas: gathers are among the ranks that shard. */
  private readonly compared: ComparedCollectives;

  constructor(plan: ReductionPlan) {
    this.plan = plan;
    this.compared = new ComparedCollectives('gradients', plan.list);
    const { parameters, mesh, reduceDtype, device } = plan;
    const each = parameters.reduce((sum, { paddedNumel }) => sum + paddedNumel, 0);
    this.input = new RefillableBuffer(each * mesh.ranks, reduceDtype, device);
    this.accumulated = parameters.map(() => null);
  }

  private get hasAccumulated(): boolean {
    return this.accumulated.some((grad) => grad !== null);
  }

  /** Whether a reduction has something to take along that no gradient has come with. */
  hasPending(allReduces: boolean): boolean {
    return this.hasAccumulated || (allReduces && this.partial !== null);
  }

  /** Adds gradients to those that a later reduction takes along. */
  accumulate(grads: Gradients): void {
    const { reduceDtype } = this.plan;
    for (const [i, grad] of grads.entries()) {
      if (grad === null) continue;
      const before = this.accumulated[i];
      if (before) before.add_(grad.detach());
      else this.accumulated[i] = keep(grad.detach().to(reduceDtype, { copy: true }).contiguous());
    }
  }

  /** Drops all that waits for a later reduction. */
  clear(): void {
    this.clearAccumulated();
    this.partial?.flat.dispose();
    this.partial = null;
  }

  private clearAccumulated(): void {
    for (const grad of this.accumulated) grad?.dispose();
    this.accumulated.fill(null);
  }

  /** Whether {@link run} returns a gradient for each parameter, if these come with one. */
  willReduce(given: readonly boolean[], allReduces: boolean): boolean[] {
    const isComplete = this.plan.mesh.replicas === null || allReduces;
    return given.map(
      (came, i) =>
        isComplete &&
        (came || this.accumulated[i] !== null || (this.partial?.starts[i] ?? null) !== null),
    );
  }

  /**
   * Reduces the gradients of the whole parameters. Returns those of the shards, as local tensors on
   * one buffer; null where neither a gradient came nor one has accumulated, and where
   * they are to be reduced over the replicas later.
   */
  run(grads: Gradients, comm: CommContext, allReduces: boolean): (Tensor | null)[] {
    if (this.hasAccumulated) this.accumulate(grads);
    const complete = this.withPartial(this.hasAccumulated ? [...this.accumulated] : grads);
    const { parameters, mesh } = this.plan;
    const present = parameters.filter((_, i) => complete[i] !== null);
    if (present.length === 0) return parameters.map(() => null);
    comm.freeReduced(this.input);
    const starts = startsOf(parameters, complete);
    const packed = this.pack(complete, present);
    const sum =
      present.length === parameters.length
        ? comparingOwners('gradients', this.plan.list, () => this.scatter(packed, starts))
        : withPurpose(purposeOf(present, this.plan.list), () => this.scatter(packed, starts));
    this.clearAccumulated();
    if (mesh.replicas !== null && !allReduces) {
      this.partial = { flat: keep(sum), starts };
      return parameters.map(() => null);
    }
    const flat = this.overReplicas(sum);
    return parameters.map((parameter, i) => {
      const start = starts[i] ?? null;
      return start === null ? null : parameter.shardIn(flat, start);
    });
  }

  /** Zeros for parameters without a gradient that an earlier pass had one for. */
  private withPartial(grads: Gradients): Gradients {
    const { partial, plan } = this;
    if (partial === null) return grads;
    const dtype = grads.find((grad) => grad !== null)?.dtype ?? plan.reduceDtype;
    return grads.map((grad, i) => {
      if (grad !== null || (partial.starts[i] ?? null) === null) return grad;
      return zeros((plan.parameters[i] as ShardedParameter).shape, { dtype, device: plan.device });
    });
  }

  private pack(grads: Gradients, present: readonly ShardedParameter[]): Tensor {
    const { mesh } = this.plan;
    const each = present.reduce((sum, { paddedNumel }) => sum + paddedNumel, 0);
    const packed = this.input.allocate().narrow(0, 0, each * mesh.ranks);
    const local = grads.filter((grad) => grad !== null);
    packGradients(local, present, packed, mesh.ranks);
    return packed;
  }

  private get rankCount(): number {
    const { ranks, replicas, mesh } = this.plan.mesh;
    return ranks * (replicas === null ? 1 : mesh.size(0));
  }

  /** The sum of many float16 gradients overflows, their average may vanish: half of each. */
  private get divisorBefore(): number {
    return this.plan.reduceDtype === float16 ? powerOfTwoNearRoot(this.rankCount) : 1;
  }

  private get op(): 'sum' | 'avg' {
    return this.plan.reduceDtype === float16 ? 'sum' : 'avg';
  }

  /** This rank's shards, reduced over the ranks that shard, with those of earlier passes. */
  private scatter(packed: Tensor, starts: Starts): Tensor {
    const { mesh, reduceDtype: dtype, device, site } = this.plan;
    const flat = empty([packed.numel() / mesh.ranks], { dtype, device });
    if (this.divisorBefore > 1) packed.div_(this.divisorBefore);
    withCallSite(site, () => reduceScatterTensor(flat, packed, { op: this.op, group: mesh.group }));
    if (this.partial !== null) mesh.group.onStream(device, () => this.addPartial(flat, starts));
    return flat;
  }

  private addPartial(flat: Tensor, starts: Starts): void {
    const { partial, plan } = this;
    for (const [i, { paddedNumel }] of plan.parameters.entries()) {
      const start = partial?.starts[i] ?? null;
      if (partial === null || start === null) continue;
      const target = flat.narrow(0, starts[i] as number, paddedNumel);
      target.add_(partial.flat.narrow(0, start, paddedNumel));
    }
    partial?.flat.dispose();
    this.partial = null;
  }

  /** The gradients of the shards, from their sums over the ranks that shard. */
  private overReplicas(flat: Tensor): Tensor {
    const { mesh, reduceDtype, dtype, device, offload, site } = this.plan;
    const { replicas } = mesh;
    if (replicas !== null) {
      const reduce = (): unknown => allReduce(flat, { op: this.op, group: replicas });
      withCallSite(site, () => this.compared.run(reduce));
    }
    // On the stream of the reduction, so that compute does not wait for it.
    return (replicas ?? mesh.group).onStream(device, () => {
      if (reduceDtype === float16) flat.div_(this.rankCount / this.divisorBefore);
      const cast = reduceDtype === dtype ? flat : flat.to(dtype);
      return offload.toCpu ? cast.to('cpu', { nonBlocking: true }) : cast;
    });
  }
}

/** Gradients of other parameters may have the same size. */
function purposeOf(present: readonly ShardedParameter[], { number }: ParameterList): string {
  const names = present.map(({ path }) => path).join(', ');
  return `of the gradients of ${number}: ${names}\nUse the same parameters on all ranks.`;
}

function startsOf(parameters: readonly ShardedParameter[], grads: Gradients): Starts {
  let next = 0;
  return parameters.map(({ paddedNumel }, i) => {
    if (grads[i] === null) return null;
    next += paddedNumel;
    return next - paddedNumel;
  });
}

/** A power of two near the square root, as PyTorch divides before a reduction in float16. */
function powerOfTwoNearRoot(ranks: number): number {
  let factor = 1;
  while (ranks % factor === 0 && ranks / factor > factor) factor *= 2;
  return factor;
}
