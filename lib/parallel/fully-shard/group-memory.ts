/**
 * The memory of a group's parameters: the flat shard, the buffer that a gather fills, and the whole
 * parameters. Starting a gather, completing it and freeing the whole parameters are the only
 * changes.
 */
import { allGatherIntoTensor, type ProcessGroup, withCallSite } from '../../distributed/index.js';
import {
  type Device,
  type DType,
  device as deviceOf,
  keep,
  noGrad,
  type Tensor,
} from '../../index.js';
import { RefillableBuffer } from '../common/refillable-buffer.js';
import { comparingParameters, type ParameterList } from '../common/same-parameters.js';
import { adviceOnShard, adviceOnWhole, type Owner } from './advice.js';
import { FlatShard, type Layout, layoutOf, pathAt } from './flat-shard.js';
import type { OffloadPolicy } from './policies.js';
import type { ShardMesh } from './shard-mesh.js';
import type { ShardedParameter } from './sharded-parameter.js';
import { CopyOut } from './transfers.js';

/** What the memory of a group depends on. */
export interface MemoryPlan {
  readonly parameters: readonly ShardedParameter[];
  readonly mesh: ShardMesh;
  /** The smaller mesh that holds the whole parameters between forward and backward, if any. */
  readonly postForwardMesh: ShardMesh | null;
  readonly device: Device;
  /** The dtype of whole parameters; that of the shards if null. */
  readonly paramDtype: DType | null;
  readonly offload: OffloadPolicy;
  /** Who calls the collectives, for errors. */
  readonly site: string;
  /** Who shards the parameters, for errors. */
  readonly owner: Owner;
  /** What the ranks must have in common. */
  readonly list: ParameterList;
}

/** Puts the shards of the parameters on one flat tensor. */
export function flatShardOf(
  plan: MemoryPlan,
  shardOf: (parameter: ShardedParameter) => Tensor,
): FlatShard {
  const { parameters, mesh, offload, device, owner } = plan;
  const { parameter } = parameters[0] as ShardedParameter;
  const options = {
    dtype: parameter.dtype,
    device: offload.toCpu ? deviceOf('cpu') : parameter.device,
    pinMemory: offload.pinMemory && device.type === 'cuda',
  };
  const explain = (path: string): string => adviceOnShard(owner, path);
  return new FlatShard(parameters, layoutOf(parameters, mesh.ranks), shardOf, options, explain);
}

export class GroupMemory {
  readonly layout: Layout;
  private readonly plan: MemoryPlan;
  /** The dtype of whole parameters. */
  readonly computeDtype: DType;
  private shard: FlatShard;
  /** The flat shard in the dtype of compute, while it is gathered; null if it needs no cast. */
  private readonly cast: RefillableBuffer | null;
  /** A row for each rank, while the parameters are gathered. */
  private readonly gathered: RefillableBuffer;
  private readonly whole: RefillableBuffer;
  private readonly copyOut: CopyOut;
  /** This rank's part of the gathered rows, between forward and backward. */
  private postForwardRows: Tensor | null = null;
  /** Whether the ranks have compared their parameters. */
  private isCompared = false;
  /** Whether modules use the shards themselves, which are whole and need no cast. */
  private readonly isInPlace: boolean;

  constructor(plan: MemoryPlan) {
    this.plan = plan;
    this.layout = layoutOf(plan.parameters, plan.mesh.ranks);
    this.shard = flatShardOf(plan, (parameter) => parameter.shard());
    this.computeDtype = plan.paramDtype ?? this.shard.tensor.dtype;
    const { layout, computeDtype } = this;
    const gatheredNumel = layout.shardNumel * plan.mesh.ranks;
    const isCast = this.shard.tensor.dtype !== computeDtype || plan.offload.toCpu;
    this.isInPlace = !isCast && plan.parameters.every(({ isWhole }) => isWhole);
    this.cast = isCast ? new RefillableBuffer(layout.shardNumel, computeDtype, plan.device) : null;
    this.gathered = new RefillableBuffer(gatheredNumel, computeDtype, plan.device);
    this.whole = new RefillableBuffer(layout.wholeNumel, computeDtype, plan.device, (offset) =>
      adviceOnWhole(plan.owner, pathAt(plan.parameters, layout.inWhole, offset)),
    );
    this.copyOut = noGrad(
      () =>
        new CopyOut(
          plan.parameters,
          layout,
          plan.mesh.ranks,
          this.gathered.view(),
          this.whole.view(),
        ),
    );
  }

  /** Whether the parameters have the dtype that they had: `module.to` may have converted them. */
  hasDtype(): boolean {
    const { parameter } = this.plan.parameters[0] as ShardedParameter;
    return parameter.dtype === this.shard.tensor.dtype;
  }

  /** The device of whole parameters. */
  get device(): Device {
    return this.plan.device;
  }

  /** A tensor on the memory of the whole parameters. */
  get wholeMemory(): Tensor {
    return this.isInPlace ? this.shard.tensor : this.whole.memory;
  }

  /** Bytes of whole parameters in memory. */
  get wholeBytes(): number {
    return this.whole.size;
  }

  /** Starts to gather the parameters: over the smaller mesh if that holds them. */
  startGather(): void {
    const { plan } = this;
    if (!this.shard.isCurrent()) this.shard = flatShardOf(plan, (parameter) => parameter.shard());
    if (this.isInPlace) return;
    const mesh = this.postForwardRows === null ? plan.mesh : (plan.postForwardMesh as ShardMesh);
    this.onStream(() =>
      noGrad(() => {
        const input = this.postForwardRows ?? this.computeShard();
        const output = this.gathered.allocate();
        if (mesh.ranks === 1) output.copy_(input);
        else this.gather(output, input, mesh.group);
        this.cast?.free();
      }),
    );
  }

  /** The first gather compares the parameters of the ranks. */
  private gather(output: Tensor, input: Tensor, group: ProcessGroup): void {
    const { plan, isCompared } = this;
    const gather = (): unknown => allGatherIntoTensor(output, input, { group });
    this.isCompared = true;
    withCallSite(plan.site, () => (isCompared ? gather() : comparingParameters(plan.list, gather)));
  }

  /**
   * Casts and the memory of gathers are on the stream of the collectives: a gather does not wait
   * for the compute of the layer before it.
   */
  private onStream(fn: () => void): void {
    this.plan.mesh.group.onStream(this.plan.device, fn);
  }

  /** This rank's flat shard in the dtype and on the device of compute. */
  private computeShard(): Tensor {
    const { cast, shard } = this;
    return cast === null ? shard.tensor : cast.allocate().copy_(shard.tensor);
  }

  /** Copies the gathered parameters to where modules use them. */
  finishGather(keepsRows: boolean): void {
    const { plan, gathered, whole } = this;
    if (this.isInPlace) return;
    this.dropRows();
    whole.allocate();
    noGrad(() => {
      this.copyOut.run();
      if (keepsRows) this.keepRows(gathered.view(), plan.postForwardMesh as ShardMesh);
    });
    this.onStream(() => gathered.free());
  }

  /** The ranks of the smaller mesh together keep all rows. */
  private keepRows(rows: Tensor, { ranks, rank }: ShardMesh): void {
    const each = rows.numel() / ranks;
    this.postForwardRows = keep(rows.narrow(0, rank * each, each).clone());
  }

  private dropRows(): void {
    this.postForwardRows?.dispose();
    this.postForwardRows = null;
  }

  /** The whole parameters as new tensors without history. */
  wholeParameters(): Tensor[] {
    if (this.isInPlace) return this.plan.parameters.map((parameter) => parameter.shard());
    const flat = this.whole.view();
    return noGrad(() =>
      this.plan.parameters.map((parameter, i) =>
        parameter.unsharded(flat, this.layout.inWhole[i] as number),
      ),
    );
  }

  /** Frees the whole parameters, and with `all` what is kept for backward, too. */
  free(all: boolean): void {
    this.whole.free();
    if (all) this.dropRows();
  }

  /** Frees a gather that nobody completes. */
  abandonGather(): void {
    this.onStream(() => this.gathered.free());
  }
}
