/**
 * The memory of a group: a flat shard and whole parameters for each dtype of its parameters, which
 * one collective gathers.
 */
import { withCallSite } from '../../distributed/index.js';
import { noGrad, type Tensor } from '../../index.js';
import { ComparedCollectives } from '../common/same-parameters.js';
import { ByDtype } from './by-dtype.js';
import type { CommContext } from './comm-context.js';
import { gatherParts } from './gather.js';
import { flatShardOf, GroupMemory, type MemoryPlan } from './group-memory.js';
import type { Description } from './ops.js';
import type { ShardedParameter } from './sharded-parameter.js';

/** Puts the shards of the parameters on a flat tensor for each dtype. */
export function shardOnFlatTensors(
  plan: MemoryPlan,
  shardOf: (parameter: ShardedParameter) => Tensor,
): void {
  new ByDtype(plan.parameters, (parameters) => flatShardOf({ ...plan, parameters }, shardOf));
}

export class GroupMemories {
  private readonly plan: MemoryPlan;
  private readonly memories: ByDtype<GroupMemory>;
  private readonly all: readonly GroupMemory[];
  private readonly compared: ComparedCollectives;

  /** See {@link GroupMemory}. */
  constructor(plan: MemoryPlan, comm: CommContext, limitsGathers: boolean) {
    this.plan = plan;
    this.memories = new ByDtype(
      plan.parameters,
      (parameters) => new GroupMemory({ ...plan, parameters }, comm, limitsGathers),
    );
    this.all = this.memories.values;
    this.compared = new ComparedCollectives('parameters', plan.list);
  }

  /** Whether the parameters have the dtypes that they had. */
  hasDtypes(): boolean {
    return this.all.every((memory) => memory.hasDtype());
  }

  /** The metadata of the whole parameters. */
  describeWhole(): Description[] {
    return this.memories.join((memory) => memory.describeWhole());
  }

  /** Tensors on the memory of the whole parameters. */
  get wholeMemory(): readonly Tensor[] {
    return this.all.map((memory) => memory.wholeMemory);
  }

  /** Starts to gather the parameters: over the smaller mesh if that holds them. */
  startGather(): void {
    const { plan, compared } = this;
    const starting = this.all.filter((memory) => memory.beginGather());
    const [first] = starting;
    if (first === undefined) return;
    const { mesh } = first;
    // Casts and the memory of gathers are on the stream of the collectives: a gather does not wait
    // for the compute of the layer before it.
    plan.mesh.group.onStream(plan.device, () =>
      noGrad(() => {
        const parts = starting.map((memory) => memory.prepareGather());
        withCallSite(plan.site, () => gatherParts(parts, mesh, (fn) => compared.run(fn)));
      }),
    );
  }

  /** The gathered parameters are where modules use them. */
  finishGather(keepsRows: boolean): void {
    for (const memory of this.all) memory.finishGather(keepsRows);
  }

  /** The whole parameters as new tensors without history. */
  wholeParameters(): Tensor[] {
    return this.memories.join((memory) => memory.wholeParameters());
  }

  /** The whole parameters as tensors that are the same at every call. */
  lastingWhole(): readonly Tensor[] {
    return this.memories.join((memory) => memory.lastingWhole());
  }

  /** See {@link GroupMemory.free}. */
  free(all: boolean, later: boolean): void {
    for (const memory of this.all) memory.free(all, later);
  }

  /** Frees a gather that nobody completes. */
  abandonGather(): void {
    for (const memory of this.all) memory.abandonGather();
  }
}
