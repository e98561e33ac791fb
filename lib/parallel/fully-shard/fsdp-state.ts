/**
 * The hooks that make a module gather its parameters before forward and backward, and what the
 * modules below one root share. The first module that runs is the root.
 */
import { autograd, compiler, graphBreak, isGradEnabled, type nn, tree } from '../../index.js';
import { castTensors } from '../common/cast-tensors.js';
import { CommContext } from './comm-context.js';
import { ForwardHooks } from './forward-hooks.js';
import { hasNoRoot, ranBefore } from './group-checks.js';
import { GroupForward } from './group-forward.js';
import type { GroupUser } from './ops.js';
import type { FSDPParamGroup } from './param-group.js';
import type { MixedPrecisionPolicy } from './policies.js';
import { TrainingState, type TrainingStateName } from './training-state.js';

/** The state of each module that was sharded. */
const states = new WeakMap<nn.AnyModule, FSDPState>();

export const stateOf = (module: nn.AnyModule): FSDPState | null => states.get(module) ?? null;

/** What the modules of one root share. */
interface Root {
  readonly state: FSDPState;
  readonly comm: CommContext;
  readonly all: readonly FSDPState[];
  /** Where the forward of the root runs: in the program, or in a capture; null outside of it. */
  forward: 'program' | 'capture' | null;
  /** Whether a backward pass is running. */
  inBackward: boolean;
}

export class FSDPState implements GroupUser {
  trainingState: TrainingStateName = TrainingState.IDLE;
  /** Usually one; several are one group. */
  readonly modules: readonly nn.AnyModule[];
  readonly group: FSDPParamGroup;
  /** Groups that the program wants to be gathered early, instead of the one that ran before. */
  forwardPrefetch: readonly FSDPState[] = [];
  backwardPrefetch: readonly FSDPState[] = [];
  /** Whether the one that ran before is gathered before this one's backward. */
  prefetchesBefore = true;
  /** Whether the next backward pass is the last one of a step. */
  isLastBackward = true;
  /** Whether graphs may have the hooks' ops. */
  isInGraphs = true;
  /** Runs when a root begins a forward, before it gathers. */
  beforeStep: (() => void) | null = null;
  /** Runs when the parameters of a forward are whole. */
  afterGather: (() => void) | null = null;
  private readonly precision: MixedPrecisionPolicy;
  /** True: frees whole parameters after forward; null: unless the module is the root. */
  private reshards: boolean | null;
  private root: Root | null = null;
  private readonly forward: GroupForward;
  /** The hooks of forwards that graphs repeat. */
  private readonly sharedHooks: ForwardHooks;
  /** Those of the forward that is running. */
  private hooks: ForwardHooks;
  /** Forwards of a frozen group that backward has begun and not passed. */
  private readonly inBackward = new Set<ForwardHooks>();

  constructor(
    modules: readonly nn.AnyModule[],
    group: FSDPParamGroup,
    precision: MixedPrecisionPolicy,
    reshards: boolean | null,
  ) {
    this.modules = modules;
    this.forward = new GroupForward(modules);
    this.group = group;
    this.precision = precision;
    this.reshards = reshards;
    this.sharedHooks = new ForwardHooks(this, null);
    this.hooks = this.sharedHooks;
    group.user = this;
    for (const module of modules) {
      states.set(module, this);
      this.registerHooks(module);
      module.registerStateDictPreHook(() => this.useSharded());
      module.registerLoadStateDictPreHook(() => this.useSharded());
    }
  }

  /** What the hooks do beside ops is done where ops run, so that graphs repeat it. */
  private registerHooks(module: nn.AnyModule): void {
    const { disable } = compiler;
    const options = {
      reason: `a module that ${this.group.op} shards was called`,
      when: () => !this.isInGraphs || compiler.config.skipFsdpHooks,
    };
    const preForward = (_: unknown, args: readonly unknown[]): unknown => this.preForward(args);
    module.registerForwardPreHook(disable(preForward, options) as never, { prepend: true });
    const postForward = (_: unknown, __: unknown, result: unknown): unknown =>
      this.postForward(result, module);
    module.registerForwardHook(disable(postForward, options) as never, { alwaysCall: true });
  }

  /** Whether it is the root, which the first forward decides. */
  get isRoot(): boolean {
    return this.root?.state === this;
  }

  setReshardAfterForward(value: boolean): void {
    this.reshards = value;
    this.group.reshardsAfterForward = value;
  }

  private useSharded(): void {
    if (this.trainingState === TrainingState.IDLE) this.group.reshard();
  }

  /** Makes this the root of all sharded modules below, before its first forward or unshard. */
  initialize(): Root {
    if (this.root !== null) return this.root;
    const [module, ...others] = this.modules as [nn.AnyModule, ...nn.AnyModule[]];
    if (others.length > 0) throw hasNoRoot(this.group.op, this.modules);
    const paths = new Map<FSDPState, string[]>();
    for (const [path, each] of module.namedModules()) {
      const state = stateOf(each);
      if (state === null) continue;
      if (state.root !== null) throw ranBefore(this.group.op, module, path);
      paths.set(state, [...(paths.get(state) ?? []), path]);
    }
    const all = [...paths.keys()];
    const comm = new CommContext();
    const root: Root = { state: this, comm, all, forward: null, inBackward: false };
    for (const state of all) {
      state.group.path = (paths.get(state) as string[]).join(', ');
      state.nameParameters(module);
      state.group.initialize(comm);
      state.group.reshardsAfterForward = state.reshards ?? state !== this;
    }
    for (const state of all) state.root = root;
    return root;
  }

  private nameParameters(root: nn.AnyModule): void {
    const paths = new Map([...root.namedParameters()].map(([path, p]) => [p, path]));
    for (const each of this.group.parameters) each.path = paths.get(each.parameter) ?? each.path;
  }

  private preForward(args: readonly unknown[]): readonly unknown[] {
    const given = this.castInputs(args);
    if (this.runsAgain) {
      (this.group.inStep ?? this.group).useWholeOfForward();
      return given;
    }
    const { root, group } = this;
    // A graph of one of several modules would not have the begin and the end of their forward.
    if (this.modules.length > 1 && root?.forward !== 'capture')
      graphBreak(`one of several modules that ${group.op} shards as a group was called`);
    if (root === null) compiler.beforeCapture(() => this.initialize());
    else if (group.isConverted) compiler.beforeCapture(() => group.initialize(root.comm));
    if (this.root?.state === this) this.rootBegins(this.root);
    if (this.forward.begins()) {
      const whole = group.preForward();
      this.hooks = whole && isGradEnabled() ? new ForwardHooks(this, whole) : this.sharedHooks;
    }
    this.watchInputs(given);
    return given;
  }

  private rootBegins(root: Root): void {
    if (this.isInOrder) root.comm.order.forget();
    root.forward = compiler.isCompiling() ? 'capture' : 'program';
  }

  /** Ends the forwards of groups of which a module has not run. */
  private rootEnds(root: Root): void {
    root.forward = null;
    for (const state of root.all) {
      if (!state.forward.isRunning) continue;
      state.forward.clear();
      state.endForward(root);
    }
  }

  private endForward(root: Root): void {
    this.group.postForward();
    if (this.isInOrder && isGradEnabled()) root.comm.order.ended(this.group);
  }

  /**
   * Whether a forward runs while backward holds the whole parameters, as those of activation
   * checkpoints and of hooks do. Other forwards in backward gather them for themselves.
   */
  private get runsAgain(): boolean {
    const { inStep, isHeldForBackward } = this.group;
    if (inStep !== null) return inStep.inBackward;
    return isHeldForBackward && !compiler.isCompiling();
  }

  /** Whether the capture of a whole step counts a forward, as ops do elsewhere. */
  private get isInOrder(): boolean {
    return this.group.inStep !== null && !autograd.isInBackward();
  }

  /** A forward begins. False where backward holds the parameters. @internal */
  forwardBegins(): boolean {
    if (this.trainingState === TrainingState.PRE_BACKWARD) return false;
    const root = this.initialize();
    // A checkpoint or a hook in backward begins no step.
    if (root.state === this && !autograd.isInBackward()) this.beginStep(root);
    this.trainingState = TrainingState.FORWARD;
    return true;
  }

  private beginStep(root: Root): void {
    this.beforeStep?.();
    const isUnfinished =
      root.inBackward || root.all.some((s) => s.trainingState !== TrainingState.IDLE);
    if (isUnfinished) this.recover(root);
    else root.comm.order.forget();
  }

  /** The parameters of a forward are whole: those that are wanted early come next. @internal */
  forwardGathered(): void {
    for (const state of this.forwardPrefetch) state.group.unshard();
    this.afterGather?.();
  }

  /** A forward has ended. @internal */
  forwardEnds(): void {
    const { root } = this;
    if (root?.state === this) root.comm.freePassed();
    this.trainingState = TrainingState.IDLE;
  }

  private castInputs(args: readonly unknown[]): readonly unknown[] {
    const dtype = this.group.inputDtype;
    if (dtype === null) return args;
    return castTensors(args, dtype);
  }

  /**
   * Frees frozen parameters when backward has passed the module, and no other forward of it that it
   * has begun. Others are freed with their gradients.
   */
  private watchInputs(args: readonly unknown[]): void {
    const isCounted = !this.group.isTrainable && isGradEnabled();
    const inputs = isCounted ? tree.tensorsWithin(args).filter((t) => t.requiresGrad) : [];
    if (inputs.length > 0)
      autograd.registerMultiGradHook(inputs, this.hooks.passed, { mode: 'all' });
  }

  /** `result` is undefined after an error. */
  private postForward(result: unknown, module: nn.AnyModule): unknown {
    if (this.runsAgain) {
      // A checkpoint in a checkpoint runs a part of the module again after this.
      if (this.group.inStep?.holdsWhole === false) this.group.useSharded();
      return this.castOutputs(result);
    }
    const { root } = this;
    if (root === null) return undefined;
    // A capture that fails has run no op.
    if (result === undefined && compiler.isCompiling()) return this.captureFails(root);
    // A checkpoint ends its second run as soon as it has what backward needs.
    if (result === undefined && !autograd.isInBackward()) return this.afterError(root);
    if (root.state === this) this.rootEnds(root);
    const waits = root.forward !== null && !autograd.isInBackward();
    if (this.forward.ends(module, waits)) this.endForward(root);
    if (result === undefined) return undefined;
    this.watchOutputs(result);
    return this.castOutputs(result);
  }

  /** Undefined if they stay as they are. */
  private castOutputs(result: unknown): unknown {
    const { outputDtype } = this.precision;
    if (outputDtype === null || result === undefined) return undefined;
    return castTensors(result, outputDtype);
  }

  private captureFails(root: Root): void {
    this.forward.clear();
    if (root.state === this) root.forward = null;
  }

  /** A module without a result is treated as one that threw: nothing of it reaches backward. */
  private afterError(root: Root): void {
    if (root.state === this) {
      root.forward = null;
      this.recover(root);
    } else this.reset();
  }

  private reset(): void {
    this.trainingState = TrainingState.IDLE;
    this.forward.clear();
    this.forgetUses();
    this.group.reset();
  }

  /** Brings all modules of the root back to the state between steps. */
  recover(root: Root): void {
    root.inBackward = false;
    for (const state of root.all) state.reset();
    root.comm.backwardEnded();
  }

  private watchOutputs(result: unknown): void {
    if (!isGradEnabled()) return;
    const outputs = tree.tensorsWithin(result).filter((t) => t.requiresGrad);
    if (outputs.length === 0) return;
    autograd.registerMultiGradHook(outputs, this.hooks.before, { mode: 'any' });
  }

  /** Backward has come to the results of a forward. @internal */
  preBackward(hooks: ForwardHooks): void {
    const holdsWhole = this.trainingState === TrainingState.PRE_BACKWARD;
    this.backwardBegins(hooks);
    this.group.preBackward(hooks.whole);
    // Those of an earlier result may be gone again.
    if (holdsWhole) return;
    for (const group of this.prefetched()) group.unshardForBackward();
  }

  /** Records the ops that do the same, where a whole step is captured. @internal */
  preBackwardInStep(hooks: ForwardHooks): void {
    const { all, comm } = this.root as Root;
    const groups = all.flatMap(({ group }) => group.inStep ?? []);
    const end = (): void => {
      for (const group of groups) group.endBackward();
      if (this.isLastBackward) comm.order.forget();
    };
    if (!groups.some(({ inBackward }) => inBackward)) autograd.queueCallback(end, end);
    const { inStep } = this.group;
    const holdsWhole = inStep?.holdsWhole === true;
    inStep?.preBackward(hooks);
    if (holdsWhole) return;
    for (const group of this.prefetched()) group.inStep?.startGather();
  }

  /** @internal */
  backwardSettings(): object {
    const { isLastBackward, prefetchesBefore, backwardPrefetch, group } = this;
    const { unshardsInBackward, reshardsAfterBackward } = group;
    return {
      isLastBackward,
      prefetchesBefore,
      backwardPrefetch: backwardPrefetch.map((state) => state.group.path),
      unshardsInBackward,
      reshardsAfterBackward,
    };
  }

  /** What a backward pass counts before it gathers. @internal */
  backwardBegins(hooks: ForwardHooks): void {
    const root = this.root as Root;
    if (!root.inBackward) {
      root.inBackward = true;
      autograd.queueCallback(
        () => this.afterBackward(root),
        () => this.recover(root),
      );
    }
    if (!this.group.isTrainable) {
      hooks.begun++;
      this.inBackward.add(hooks);
    }
    this.trainingState = TrainingState.PRE_BACKWARD;
    this.group.backwardBegins();
  }

  /** Backward has passed the inputs of a forward of a frozen group. @internal */
  backwardPassed(hooks: ForwardHooks): void {
    if (hooks.begun === 0) return;
    hooks.begun--;
    if (hooks.begun === 0) this.inBackward.delete(hooks);
    if (this.inBackward.size === 0) this.group.afterBackward();
  }

  /** Backward is done with the parameters, until it comes to another forward. @internal */
  backwardEnded(): void {
    this.trainingState = TrainingState.IDLE;
  }

  private forgetUses(): void {
    for (const hooks of this.inBackward) hooks.begun = 0;
    this.inBackward.clear();
  }

  /** The groups to gather beside the backward of this one. */
  private prefetched(): FSDPParamGroup[] {
    if (this.backwardPrefetch.length > 0) return this.backwardPrefetch.map(({ group }) => group);
    const before = this.prefetchesBefore ? this.root?.comm.order.before(this.group) : null;
    return before ? [before] : [];
  }

  private afterBackward(root: Root): void {
    for (const state of root.all) {
      state.group.reduceAccumulated();
      state.forgetUses();
      state.group.endBackward();
      state.trainingState = TrainingState.IDLE;
    }
    root.inBackward = false;
    if (this.isLastBackward) root.comm.backwardEnded();
  }
}
