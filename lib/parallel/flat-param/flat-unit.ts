/** The flat parameter of one wrapper, with its group and the hooks that drive it. */
import { allGatherIntoTensor, broadcast, markGradientShard } from '../../distributed/index.js';
import {
  empty,
  float32,
  keep,
  type nn,
  noGrad,
  promoteTypes,
  ShardingError,
  type Tensor,
} from '../../index.js';
import { FSDPState } from '../fully-shard/fsdp-state.js';
import { FSDPParamGroup } from '../fully-shard/param-group.js';
import { CPUOffloadPolicy, MixedPrecisionPolicy } from '../fully-shard/policies.js';
import type { ShardMesh } from '../fully-shard/shard-mesh.js';
import { localOf } from '../fully-shard/sharded-parameter.js';
import type { GradientPart } from './clip-gradients.js';
import { notFlattened } from './flat-entries.js';
import { FlatShardedParameter } from './flat-shard.js';
import type { Settings } from './fsdp-options.js';
import { FlatParamHandle } from './handle.js';
import { withoutPrefix } from './state-hooks.js';
import { reshardsAfterForward } from './strategies.js';
import { meshOf } from './strategy-mesh.js';

/** What may give whole parameters to modules. */
type Summoner = 'summonFullParams' | 'stateDict' | 'loadStateDict';

const units = new WeakMap<nn.AnyModule, FlatUnit>();

/** The units of the wrappers among a module and those below, outermost first. */
export function unitsBelow(module: nn.AnyModule, recurse = true): FlatUnit[] {
  const modules = recurse ? [...module.modules()] : [module];
  return modules.flatMap((each) => units.get(each) ?? []);
}

export class FlatUnit {
  /** Null for a module without parameters of its own. */
  readonly handle: FlatParamHandle | null;
  /** Null for a module without parameters. */
  readonly state: FSDPState | null;
  private readonly shards: ShardMesh | null;
  /** The whole flat parameter, while modules hold whole parameters. */
  private whole: Tensor | null = null;
  /** What gave them to modules. */
  private summoner: Summoner | null = null;
  private readonly wrapper: nn.AnyModule;
  private below: readonly FlatUnit[] | null = null;

  /** @throws ArgumentError, DtypeError, DeviceError as {@link FlatParamHandle} */
  constructor(wrapper: nn.AnyModule, module: nn.AnyModule, settings: Settings) {
    units.set(wrapper, this);
    this.wrapper = wrapper;
    const ignored = ignoredOf(settings);
    const own = notFlattened(module).filter((p) => !ignored.has(p));
    const [first] = module.parameters();
    if (first === undefined) {
      this.handle = null;
      this.state = null;
      this.shards = null;
      return;
    }
    const { shardingStrategy, deviceMesh, processGroup, mixedPrecision, cpuOffload } = settings;
    // Flat parameters below may be offloaded.
    const type = (own[0] ?? first).device.type === 'cuda' ? 'cuda' : 'cpu';
    const { strategy, shards, group } = meshOf(shardingStrategy, deviceMesh, processGroup, type);
    if (settings.syncModuleStates) copyFromFirst([...own, ...module.buffers()], shards);
    const offloadParams = cpuOffload?.offloadParams ?? false;
    this.shards = shards;
    this.handle =
      own.length === 0
        ? null
        : new FlatParamHandle(own, module, {
            shardingStrategy: strategy,
            offloadParams,
            mpParamDtype: mixedPrecision?.paramDtype ?? null,
            mpReduceDtype: mixedPrecision?.reduceDtype ?? null,
            keepLowPrecisionGrads: mixedPrecision?.keepLowPrecisionGrads ?? false,
            processGroup: group,
            useOrigParams: settings.useOrigParams,
          });
    const precision = new MixedPrecisionPolicy({
      paramDtype: mixedPrecision?.paramDtype ?? null,
      reduceDtype: mixedPrecision?.reduceDtype ?? null,
      castForwardInputs: mixedPrecision?.castForwardInputs ?? false,
    });
    const paramGroup = new FSDPParamGroup(
      this.handle === null ? [] : [new FlatShardedParameter(this.handle, shards)],
      wrapper,
      shards,
      null,
      shards.mesh.device,
      precision,
      offloadParams ? new CPUOffloadPolicy() : null,
    );
    paramGroup.op = 'FullyShardedDataParallel';
    paramGroup.limitsGathers = settings.limitAllGathers;
    this.handle?.tensors.nameBy((name) =>
      withoutPrefix(paramGroup.path === '' ? name : `${paramGroup.path}.${name}`),
    );
    // The root keeps whole parameters for backward, which begins with it.
    const reshards = reshardsAfterForward(strategy) ? null : false;
    this.state = new FSDPState([wrapper], paramGroup, precision, reshards);
    // Graphs have no op for views that are distributed tensors.
    this.state.isInGraphs = this.handle?.tensors.isTensorParallel !== true;
    this.state.beforeStep = () => this.takeOver();
    this.handle?.tensors.useShard();
    this.markGradients(shards);
    if (settings.useOrigParams && shards.ranks > 1) this.handle?.tensors.refuseParts();
  }

  /** Lets scalers of the loss find an overflow of any rank that has a part of the gradients. */
  private markGradients({ mesh }: ShardMesh): void {
    const groups = new Set(this.gradientParts().flatMap((part) => part.groups));
    for (const p of this.handle?.tensors.trainedParameters ?? [])
      markGradientShard(p, [...groups], mesh.device);
  }

  /** Whether modules hold whole parameters. */
  get isSummoned(): boolean {
    return this.whole !== null;
  }

  /** This unit and those below. The module is as it was made. */
  private get all(): readonly FlatUnit[] {
    this.below ??= unitsBelow(this.wrapper);
    return this.below;
  }

  /** Whether a root has something to {@link takeOver} that decides what its forward is. */
  get isStale(): boolean {
    return this.state?.isRoot === true && this.all.some(({ handle }) => handle?.tensors.isStale);
  }

  /** Takes over what the program has changed between steps, of this unit and those below. */
  takeOver(): void {
    for (const { handle } of this.all) handle?.tensors.takeOver();
  }

  /** The gradients on this rank, with the groups of those who hold the others. */
  gradientParts(): GradientPart[] {
    const { handle, shards } = this;
    if (handle === null || shards === null) return [];
    const own = shards.ranks === 1 ? [] : [shards.group];
    const { device } = shards.mesh;
    const dtype = promoteTypes(handle.flatParam.dtype, float32);
    return [...handle.tensors.gradientsByMesh()].map(([mesh, grads]) => ({
      grads,
      dtype,
      device,
      groups: [...own, ...(mesh === null ? [] : mesh.shape.map((_, dim) => mesh.getGroup(dim)))],
    }));
  }

  /**
   * Gathers the parameters, in the dtype of shards, and gives them to modules. Returns whether they
   * were not there before.
   *
   * @throws ShardingError in forward and backward
   */
  summon(op: Summoner): boolean {
    const { handle, state, shards } = this;
    this.endUnfinished();
    if (handle === null || state === null || shards === null || this.whole !== null) return false;
    if (state.trainingState !== 'IDLE')
      throw new ShardingError(
        `${op}: expected a module that is not in forward or backward, got one in ` +
          `${state.trainingState}. Call it between steps.`,
        { op, state: state.trainingState },
      );
    handle.tensors.takeOver();
    state.group.reshard();
    this.whole = noGrad(() => {
      const { flatParam } = handle;
      const shard = flatParam.detach().to({ device: shards.mesh.device });
      const { dtype, device } = shard;
      const whole = keep(empty([shard.numel() * shards.ranks], { dtype, device }));
      if (shards.ranks === 1) whole.copy_(shard);
      else allGatherIntoTensor(whole, shard, { group: shards.group });
      return whole;
    });
    this.summoner = op;
    handle.tensors.useParameters(this.whole);
    return true;
  }

  /** Whether an error in a hook stopped a save or load. */
  get isUnfinished(): boolean {
    return this.isSummoned && this.summoner !== 'summonFullParams';
  }

  /** Ends such a save or load. */
  endUnfinished(): void {
    if (this.isUnfinished) this.leaveWhole();
  }

  /**
   * Gives modules back what they hold between steps, and frees the whole parameters. With
   * `writeback`, shards take over changes.
   */
  endSummon(writeback: boolean): void {
    const { handle, shards, whole } = this;
    if (handle === null || shards === null || whole === null) return;
    try {
      if (!writeback) return;
      handle.tensors.takeParameters(whole);
      const each = whole.numel() / shards.ranks;
      noGrad(() => handle.flatParam.detach().copy_(whole.narrow(0, each * shards.rank, each)));
    } finally {
      this.leaveWhole();
      whole.untypedStorage().resize_(0);
    }
  }

  /** Gives modules back what they hold between steps. A state dict has the whole parameters. */
  leaveWhole(): void {
    if (this.whole === null) return;
    this.whole = null;
    this.summoner = null;
    this.handle?.tensors.leaveParameters();
  }
}

/** The parameters that stay as they are. */
function ignoredOf({ ignoredStates }: Settings): ReadonlySet<nn.Parameter> {
  return new Set(
    ignoredStates.flatMap((each) => ('parameters' in each ? [...each.parameters()] : [each])),
  );
}

/** All ranks get the values of the first. */
function copyFromFirst(tensors: readonly Tensor[], { mesh }: ShardMesh): void {
  noGrad(() => {
    for (const t of tensors)
      for (let dim = mesh.ndim - 1; dim >= 0; dim--) {
        const group = mesh.getGroup(dim);
        const local = localOf(t).detach();
        if (group.size > 1) broadcast(local, group.ranks[0] as number, { group });
      }
  });
}
