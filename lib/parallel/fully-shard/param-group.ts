/**
 * A group of parameters that one all-gather makes whole and whose gradients one reduce-scatter
 * reduces: a state machine, which the hooks of modules drive. See `fsdp-state.ts` for the hooks.
 */
import { unexpected } from '../../core/options.js';
import {
  autograd,
  compiler,
  type Device,
  type DType,
  isGradEnabled,
  nn,
  noGrad,
  type Tensor,
} from '../../index.js';
import { namesOf } from './advice.js';
import { GroupInStep, OfStep } from './captured-step.js';
import type { CommContext } from './comm-context.js';
import { checkMaterialized } from './group-checks.js';
import { GroupMemories, shardOnFlatTensors } from './group-memories.js';
import { type MemoryPlan, namedPlan, unnamedPlan } from './group-memory.js';
import { GroupReductions } from './group-reductions.js';
import { placeAsParameters, placeSharded, placeUsed, WholeInBackward } from './in-modules.js';
import {
  type Description,
  endForward,
  type GroupOfOps,
  type GroupUser,
  type KeptForBackward,
  reduceInto,
  reshard,
  unshard,
  type WholeOfForward,
} from './ops.js';
import { MixedPrecisionPolicy, OffloadPolicy } from './policies.js';
import type { ShardMesh } from './shard-mesh.js';
import { type ShardedParameter, versionOf } from './sharded-parameter.js';
import { type ShardedStateName, TrainingState, type TrainingStateName } from './training-state.js';

type Gradients = readonly (Tensor | null)[];

/**
 * The parameters of one call of `fullyShard`.
 *
 * @see PyTorch `torch.distributed.fsdp._fully_shard._fsdp_param_group.FSDPParamGroup`
 */
export class FSDPParamGroup implements GroupOfOps {
  /** What the group is doing. */
  trainingState: TrainingStateName = TrainingState.IDLE;
  /** Where its parameters are. */
  shardedState: ShardedStateName = 'SHARDED';
  /** The path of the module from the root, for errors. @internal */
  path = '';
  /** What made the group, for errors. @internal */
  op = 'fullyShard';
  /** @internal */
  reshardsAfterForward = false;
  /** @internal */
  reshardsAfterBackward = true;
  /** Whether gathers wait until the memory of earlier ones is free. @internal */
  limitsGathers = true;
  /** Whether backward reduces gradients; otherwise they accumulate unsharded. @internal */
  reducesGradients = true;
  /** Whether the parameters are gathered for backward. @internal */
  unshardsInBackward = true;
  /** Whether gradients are also reduced over the replicas of hybrid sharding. @internal */
  allReducesGradients = true;
  /** @internal */
  user: GroupUser | null = null;
  /** @internal */
  readonly parameters: readonly ShardedParameter[];
  /** @internal */
  readonly modules: readonly nn.AnyModule[];
  private readonly plan: MemoryPlan | null;
  private readonly precision: MixedPrecisionPolicy;
  private comm: CommContext | null = null;
  private memory: GroupMemories | null = null;
  private reduction: GroupReductions | null = null;
  /** The whole parameters of the forward that is running. */
  private inUse: readonly Tensor[] = [];
  private readonly inBackward: WholeInBackward;
  private isGathering = false;
  private readonly ofStep = new OfStep(() => new GroupInStep(this));
  /** The version of the shards in the whole parameters. */
  private gathered = -1;

  /** A group without parameters needs neither a mesh nor a device. */
  constructor(
    parameters: readonly ShardedParameter[],
    modules: nn.AnyModule | readonly nn.AnyModule[],
    mesh: ShardMesh | null,
    postForwardMesh: ShardMesh | null,
    device: Device | null,
    precision: MixedPrecisionPolicy | null,
    offload: OffloadPolicy | null,
  ) {
    this.modules = modules instanceof nn.Module ? [modules] : modules;
    if (!Array.isArray(this.modules) || !this.modules.every((each) => each instanceof nn.Module))
      throw unexpected('FSDPParamGroup', 'modules', 'modules', modules);
    this.parameters = parameters;
    this.inBackward = new WholeInBackward(parameters);
    this.precision = precision ?? new MixedPrecisionPolicy();
    this.plan = null;
    if (parameters.length === 0 || mesh === null || device === null) return;
    const { paramDtype } = this.precision;
    const memory = { mesh, postForwardMesh, device, paramDtype };
    this.plan = unnamedPlan(this, {
      ...memory,
      parameters,
      offload: offload ?? new OffloadPolicy(),
    });
    shardOnFlatTensors(this.plan, (parameter) => parameter.takeShard(parameter.shard()));
  }

  /** Runs `fn` in a training state. The state before comes back, also after an error. */
  useTrainingState<T>(state: TrainingStateName, fn: () => T): T {
    const before = this.trainingState;
    this.trainingState = state;
    try {
      return fn();
    } finally {
      this.trainingState = before;
    }
  }

  /** The dtype to which arguments of `forward` are cast; null if they stay. @internal */
  get inputDtype(): DType | null {
    return this.precision.castForwardInputs ? this.precision.paramDtype : null;
  }

  /** What the capture of a whole step knows of the group; null outside of one. @internal */
  get inStep(): GroupInStep | null {
    return this.ofStep.now;
  }

  /** Whether the parameters are whole because backward has come to the module. @internal */
  get isHeldForBackward(): boolean {
    const isThere = this.memory === null || this.shardedState === 'UNSHARDED';
    return isThere && this.trainingState === TrainingState.PRE_BACKWARD;
  }

  /** @internal */
  get isTrainable(): boolean {
    return this.parameters.some(({ parameter }) => parameter.requiresGrad);
  }

  /** Prepares the group for the first forward of the root. @internal */
  initialize(comm: CommContext): void {
    this.comm = comm;
    if (this.plan === null) return;
    checkMaterialized(this.parameters);
    const plan = namedPlan(this.plan, this.op, this.path);
    this.memory = new GroupMemories(plan, comm, this.limitsGathers);
    const { reduceDtype, paramDtype } = this.precision;
    this.reduction = new GroupReductions(plan, reduceDtype ?? paramDtype);
  }

  /** Whether `module.to` gave parameters another dtype since the memory was made. @internal */
  get isConverted(): boolean {
    return this.memory?.hasDtypes() === false;
  }

  /** Starts to gather the parameters, unless they are whole or a gather is under way. @internal */
  unshard(): void {
    if (this.memory === null || this.shardedState === 'UNSHARDED' || this.isGathering) return;
    if (this.isConverted) this.initialize(this.comm as CommContext);
    this.memory.startGather();
    this.gathered = versionOf(this.parameters);
    this.isGathering = true;
  }

  /** Frees whole parameters whose shards have changed since they were gathered. @internal */
  freeStale(): void {
    if (this.shardedState === 'SHARDED' && !this.isGathering) return;
    if (this.gathered !== versionOf(this.parameters)) this.freeAll();
  }

  /** Frees all that was gathered, also what a smaller group keeps for backward. */
  private freeAll(): void {
    this.dropGather();
    this.useSharded();
    this.memory?.free(true, false);
    this.shardedState = 'SHARDED';
  }

  /** The parameters are whole for all that is submitted from now on. @internal */
  waitForUnshard(keepsRows = false): void {
    if (this.memory === null || this.shardedState === 'UNSHARDED') return;
    this.unshard();
    this.memory.finishGather(keepsRows);
    this.isGathering = false;
    this.shardedState = 'UNSHARDED';
  }

  /** What is kept of the whole parameters of this forward. */
  private keptForBackward(): KeptForBackward {
    // Without a backward pass nothing would free them before the optimizer changes the shards.
    if (!isGradEnabled()) return 'nothing';
    if (!this.reshardsAfterForward) return 'all';
    return (this.plan?.postForwardMesh ?? null) === null ? 'nothing' : 'rows';
  }

  /** Frees the whole parameters; modules hold the sharded ones again. @internal */
  reshard(): void {
    this.useSharded();
    this.freeWhole(false);
  }

  private freeWhole(keepsRows: boolean): void {
    if (this.memory === null || this.shardedState !== 'UNSHARDED') return;
    this.memory.free(!keepsRows, this.trainingState === TrainingState.FORWARD);
    this.shardedState = keepsRows ? 'SHARDED_POST_FORWARD' : 'SHARDED';
  }

  /** @internal */
  useSharded(): void {
    placeSharded(this.parameters);
  }

  /** Modules hold whole parameters without history, to be read or written. @internal */
  useWhole(): void {
    if (this.memory !== null) placeAsParameters(this.parameters, this.memory.wholeParameters());
  }

  /** Modules hold the whole parameters of the forward to which backward has come. @internal */
  useWholeOfForward(): void {
    this.inBackward.place(this.memory?.lastingWhole() ?? []);
  }

  /** @internal */
  beginForward(): void {
    if (this.user?.forwardBegins() !== false) this.trainingState = TrainingState.FORWARD;
    this.freeStale();
    this.unshard();
  }

  /** @internal */
  finishUnshard(keepsRows: boolean, isInGraph: boolean): readonly Tensor[] {
    const isForward = this.trainingState === TrainingState.FORWARD;
    this.waitForUnshard(keepsRows && isForward);
    // Autograd gives each forward a history of its own; graphs have none.
    const whole = (isInGraph ? this.memory?.lastingWhole() : this.memory?.wholeParameters()) ?? [];
    if (!isForward) return whole;
    this.user?.forwardGathered();
    return whole;
  }

  /** @internal */
  endForward(kept: KeptForBackward, isRecorded: boolean): void {
    if (this.trainingState !== TrainingState.FORWARD) return;
    if (kept !== 'all') this.freeWhole(kept === 'rows');
    if (isRecorded && !autograd.isInBackward()) this.comm?.order.ended(this);
    this.trainingState = TrainingState.IDLE;
    this.user?.forwardEnds();
  }

  /** @internal */
  describeWhole(): Description[] {
    return this.memory?.describeWhole() ?? [];
  }

  /** Returns what backward gives modules again; null in a capture, whose runs have others. @internal */
  preForward(): WholeOfForward {
    const shards = this.parameters.map(({ parameter }) => parameter);
    const whole = unshard(shards, this, this.keptForBackward() === 'rows');
    this.inUse = whole.map((t, i) => (t.requiresGrad && !shards[i]?.requiresGrad ? t.detach() : t));
    const used = placeUsed(this.parameters, this.inUse);
    this.inStep?.forwardBegan(used);
    return compiler.isCompiling() ? null : used;
  }

  /** @internal */
  postForward(): void {
    const { inUse } = this;
    this.inUse = [];
    this.useSharded();
    const kept = this.keptForBackward();
    const isRecorded = isGradEnabled();
    if (kept === 'all') noGrad(() => endForward(inUse, this));
    else noGrad(() => reshard(inUse, this, kept === 'rows', isRecorded));
    this.inStep?.forwardEnded(kept === 'all');
  }

  /** Starts to gather the parameters for backward, unless that needs none. @internal */
  unshardForBackward(): void {
    if (this.unshardsInBackward) this.unshard();
  }

  /** @internal */
  backwardBegins(): void {
    if (this.unshardsInBackward) this.trainingState = TrainingState.PRE_BACKWARD;
  }

  /** Backward has come to a forward, of which `whole` is. @internal */
  preBackward(whole: WholeOfForward): void {
    if (!this.unshardsInBackward) return;
    this.waitForUnshard();
    this.inBackward.comesTo(whole);
  }

  /** @internal */
  willReduce(given: readonly boolean[]): boolean[] {
    if (!this.reducesGradients || this.reduction === null) return given.map(() => false);
    return this.reduction.willReduce(given, this.allReducesGradients);
  }

  /** @internal */
  describeReduced(given: readonly boolean[]): Description[] {
    const will = this.willReduce(given);
    return this.parameters.flatMap(({ shardShape: shape, parameter: { dtype, device } }, i) =>
      will[i] === true ? [{ shape, dtype, device }] : [],
    );
  }

  /** @internal */
  distributed(reduced: Tensor, i: number): Tensor {
    return (this.parameters[i] as ShardedParameter).overShard(reduced);
  }

  /** @internal */
  gradientState(): object {
    const { reducesGradients, allReducesGradients, reshardsAfterForward, reduction } = this;
    if (!reducesGradients) return { reshardsAfterForward, reducesGradients };
    const pending = reduction?.pendingState(allReducesGradients) ?? null;
    return { reshardsAfterForward, reducesGradients, allReducesGradients, pending };
  }

  /** The memory that backward fills. @internal */
  get wholeMemory(): readonly Tensor[] {
    return this.memory?.wholeMemory ?? [];
  }

  /** Reduces the gradients of the whole parameters, or adds them to those that wait. @internal */
  reduceGradients(grads: Gradients): (Tensor | null)[] {
    this.trainingState = TrainingState.POST_BACKWARD;
    const reduction = this.reduction as GroupReductions;
    let results: (Tensor | null)[] = grads.map(() => null);
    if (this.reducesGradients)
      results = reduction.run(grads, this.comm as CommContext, this.allReducesGradients);
    else reduction.accumulate(grads);
    this.afterBackward();
    return results;
  }

  /** @internal */
  afterBackward(): void {
    this.inBackward.leave();
    if (this.reshardsAfterBackward) this.freeWhole(false);
    this.trainingState = TrainingState.IDLE;
    this.user?.backwardEnded();
  }

  /** Frees what backward left: of modules without gradients, and unneeded gathers. @internal */
  endBackward(): void {
    this.dropGather();
    if (this.trainingState !== TrainingState.IDLE) this.afterBackward();
  }

  private dropGather(): void {
    if (this.isGathering) this.memory?.abandonGather();
    this.isGathering = false;
  }

  /** Reduces into `.grad` what accumulated without a gradient of the last backward. @internal */
  reduceAccumulated(): void {
    const { reduction } = this;
    if (!this.reducesGradients || !reduction?.hasPending(this.allReducesGradients)) return;
    const grads = reduceInto(this, Array(this.parameters.length).fill(null));
    for (const [i, grad] of grads.entries()) if (grad) this.parameters[i]?.addGradient(grad);
  }

  /** Brings the group back to its state between steps, after an error anywhere. @internal */
  reset(): void {
    this.freeAll();
    this.reduction?.clear();
    this.trainingState = TrainingState.IDLE;
    this.inBackward.leave();
    this.comm?.order.remove(this);
  }

  /** The paths and the classes of its modules. */
  toString(): string {
    return `FSDPParamGroup(${this.path || 'root'}, ${namesOf(this.modules)})`;
  }
}
