/**
 * The memory of a group's parameters of one dtype: the flat shard, and the whole parameters that a
 * gather fills. Starting a gather, completing it and freeing the whole parameters are the only
 * changes.
 */
import {
  type Device,
  DistributedError,
  type DType,
  device as deviceOf,
  keep,
  noGrad,
  type Tensor,
} from '../../index.js';
import { RefillableBuffer } from '../common/refillable-buffer.js';
import { numberedOn, type ParameterList } from '../common/same-parameters.js';
import { adviceOnShard, adviceOnWhole, type Owner } from './advice.js';
import type { CommContext } from './comm-context.js';
import { FlatShard, type Layout, layoutOf, pathAt } from './flat-shard.js';
import { Gather, type GatherPart } from './gather.js';
import type { Description } from './ops.js';
import type { OffloadPolicy } from './policies.js';
import type { ShardMesh } from './shard-mesh.js';
import type { ShardedParameter } from './sharded-parameter.js';

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

/** A plan before the root says where the module is. */
export const unnamedPlan = (
  owner: Owner,
  plan: Omit<MemoryPlan, 'site' | 'owner' | 'list'>,
): MemoryPlan => {
  const list = { owner: '', number: numberedOn(plan.mesh.group), texts: [] };
  return { ...plan, site: 'fullyShard', owner, list };
};

/** The plan with who calls the collectives: `op` on the module at a path. */
export function namedPlan(plan: MemoryPlan, op: string, path: string): MemoryPlan {
  const owner = path === '' ? 'the root' : `"${path}"`;
  const prefix = path === '' ? '' : `${path}.`;
  const texts = plan.parameters.flatMap((parameter) => parameter.describe(prefix));
  return { ...plan, site: `${op} of ${path || owner}`, list: { ...plan.list, owner, texts } };
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
  private readonly comm: CommContext;
  private readonly limitsGathers: boolean;
  /** The dtype of whole parameters. */
  readonly computeDtype: DType;
  private shard: FlatShard;
  private readonly whole: RefillableBuffer;
  private readonly gather: Gather;
  /** This rank's part of what was gathered, between forward and backward. */
  private postForwardRows: Tensor | null = null;
  /** Whether modules use the shards themselves, which are whole and need no cast. */
  private readonly usesShards: boolean;
  private lasting: readonly Tensor[] | null = null;

  /**
   * @param limitsGathers - whether a gather takes the memory of an earlier one as soon as compute
   * is done with it, or memory besides
   */
  constructor(plan: MemoryPlan, comm: CommContext, limitsGathers: boolean) {
    this.plan = plan;
    this.comm = comm;
    this.limitsGathers = limitsGathers;
    this.layout = layoutOf(plan.parameters, plan.mesh.ranks);
    this.shard = flatShardOf(plan, (parameter) => parameter.shard());
    const { dtype } = this.shard.tensor;
    this.computeDtype = dtype.isFloatingPoint ? (plan.paramDtype ?? dtype) : dtype;
    const { layout, computeDtype } = this;
    const isCast = dtype !== computeDtype || plan.offload.toCpu;
    this.usesShards = !isCast && plan.parameters.every(({ isWhole }) => isWhole);
    this.whole = new RefillableBuffer(layout.wholeNumel, computeDtype, plan.device, (offset) =>
      adviceOnWhole(plan.owner, pathAt(plan.parameters, layout.inWhole, offset)),
    );
    this.gather = new Gather(plan, layout, this.whole, isCast);
  }

  /** Whether the parameters have the dtype that they had: `module.to` may have converted some. */
  hasDtype(): boolean {
    const { dtype } = this.shard.tensor;
    return this.plan.parameters.every(({ parameter }) => parameter.dtype === dtype);
  }

  /** The metadata of the whole parameters. */
  describeWhole(): Description[] {
    const { computeDtype: dtype, plan } = this;
    return plan.parameters.map(({ shape }) => ({ shape, dtype, device: plan.device }));
  }

  /** A tensor on the memory of the whole parameters. */
  get wholeMemory(): Tensor {
    return this.usesShards ? this.shard.tensor : this.whole.memory;
  }

  /** Bytes of whole parameters in memory. */
  get wholeBytes(): number {
    return this.whole.size;
  }

  /** Before a gather. False if modules use the shards themselves. */
  beginGather(): boolean {
    const { plan } = this;
    if (!this.shard.isCurrent()) this.shard = flatShardOf(plan, (parameter) => parameter.shard());
    if (this.usesShards) return false;
    this.comm.keepInMemory(this);
    return true;
  }

  /** The ranks that together hold the parameters now. */
  get mesh(): ShardMesh {
    const { mesh, postForwardMesh } = this.plan;
    return this.postForwardRows === null ? mesh : (postForwardMesh as ShardMesh);
  }

  /** What a gather moves, on the stream of the collectives. */
  prepareGather(): GatherPart {
    return this.gather.prepare(this.shard.tensor, this.postForwardRows);
  }

  private onStream(fn: () => void): void {
    this.plan.mesh.group.onStream(this.plan.device, fn);
  }

  /** The gathered parameters are where modules use them. */
  finishGather(keepsRows: boolean): void {
    const { gather, plan } = this;
    if (this.usesShards) return;
    this.dropRows();
    noGrad(() => {
      gather.copyOut();
      if (keepsRows) this.postForwardRows = keep(gather.rowsOf(plan.postForwardMesh as ShardMesh));
    });
    this.onStream(() => gather.freeCopied());
    this.comm.freePassed();
  }

  private dropRows(): void {
    this.postForwardRows?.dispose();
    this.postForwardRows = null;
  }

  /** The whole parameters as new tensors without history. */
  wholeParameters(): Tensor[] {
    if (this.usesShards) return this.plan.parameters.map((parameter) => parameter.shard());
    const flat = this.whole.view();
    return noGrad(() =>
      this.plan.parameters.map((parameter, i) =>
        parameter.unsharded(flat, this.layout.inWhole[i] as number),
      ),
    );
  }

  /** The whole parameters as tensors that are the same at every call. */
  lastingWhole(): readonly Tensor[] {
    if (this.usesShards) return this.wholeParameters();
    this.lasting ??= this.wholeParameters();
    return this.lasting;
  }

  /**
   * Frees the whole parameters, and with `all` what is kept for backward, too.
   *
   * @param later - the next module is about to be gathered, beside the compute of this one
   */
  free(all: boolean, later: boolean): void {
    // The CPU uses memory in the order of calls, and gathers without a limit wait for nothing.
    if (later && this.plan.device.type === 'cuda' && this.limitsGathers) this.comm.freeLater(this);
    else this.freeNow();
    if (all) this.dropRows();
  }

  /**
   * Later gathers may use the memory, and wait for the compute that uses it. Without a limit it is
   * freed in the order of compute: gathers find it when that has run.
   */
  freeNow(): void {
    if (this.whole.size === 0) return;
    if (this.limitsGathers) this.freeInOrder(() => this.whole.free());
    else this.whole.free();
  }

  /** The stream is gone with a group that has ended, and nothing will be gathered there. */
  private freeInOrder(free: () => void): void {
    try {
      this.onStream(free);
    } catch (error) {
      if (!(error instanceof DistributedError)) throw error;
      free();
    }
  }

  /** Frees a gather that nobody completes. */
  abandonGather(): void {
    this.freeInOrder(() => {
      this.gather.freeCopied();
      this.whole.free();
    });
  }
}
