/**
 * The hooks that make a module gather its parameters before forward and backward, and what the
 * modules below one root share. The first module that runs is the root.
 */
import { autograd, compiler, isGradEnabled, type nn, ShardingError, tree } from '../../index.js';
import { CommContext } from './comm-context.js';
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
  /** Whether a backward pass is running. */
  inBackward: boolean;
}

/** One forward of a frozen group. */
type Use = object;

export class FSDPState {
  trainingState: TrainingStateName = TrainingState.IDLE;
  readonly module: nn.AnyModule;
  readonly group: FSDPParamGroup;
  /** Groups that the program wants to be gathered early, instead of the one that ran before. */
  forwardPrefetch: readonly FSDPState[] = [];
  backwardPrefetch: readonly FSDPState[] = [];
  /** Whether the one that ran before is gathered before this one's backward. */
  prefetchesBefore = true;
  /** Whether the next backward pass is the last one of a step. */
  isLastBackward = true;
  private readonly precision: MixedPrecisionPolicy;
  /** True: frees whole parameters after forward; null: unless the module is the root. */
  private reshards: boolean | null;
  private root: Root | null = null;
  /** The forward that is running, if the group is frozen. */
  private use: Use | null = null;
  /** Forwards of a frozen group that backward has begun and not passed. */
  private readonly usesInBackward = new Set<Use>();

  constructor(
    module: nn.AnyModule,
    group: FSDPParamGroup,
    precision: MixedPrecisionPolicy,
    reshards: boolean | null,
  ) {
    this.module = module;
    this.group = group;
    this.precision = precision;
    this.reshards = reshards;
    states.set(module, this);
    this.registerHooks();
    module.registerStateDictPreHook(() => this.useSharded());
    module.registerLoadStateDictPreHook(() => this.useSharded());
  }

  /** Gathers change this object, which a graph would not repeat: it runs between them. */
  private registerHooks(): void {
    const { module, group } = this;
    const { disable } = compiler;
    const options = { reason: `a module that ${group.op} shards was called` };
    const before = (_: unknown, args: readonly unknown[]): unknown => this.preForward(args);
    module.registerForwardPreHook(disable(before, options) as never, { prepend: true });
    const after = (_: unknown, __: unknown, result: unknown): unknown => this.postForward(result);
    module.registerForwardHook(disable(after, options) as never, { alwaysCall: true });
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
    const all: FSDPState[] = [];
    const comm = new CommContext();
    const root: Root = { state: this, comm, all, inBackward: false };
    for (const [path, module] of this.module.namedModules()) {
      const state = stateOf(module);
      if (state === null) continue;
      if (state.root !== null) throw this.ranBefore(path);
      state.group.path = path;
      all.push(state);
    }
    for (const state of all) {
      state.nameParameters(this.module);
      state.group.initialize(comm);
      state.group.reshardsAfterForward = state.reshards ?? state !== this;
    }
    for (const state of all) state.root = root;
    return root;
  }

  private ranBefore(path: string): ShardingError {
    return new ShardingError(
      `${this.group.op}: expected the first forward to be that of the root, got one of ` +
        `${this.module.constructor.name} after one of its module "${path}", which became a root ` +
        'of its own. Run the outermost sharded module first.',
      { op: this.group.op, module: path },
    );
  }

  private nameParameters(root: nn.AnyModule): void {
    const paths = new Map([...root.namedParameters()].map(([path, p]) => [p, path]));
    for (const each of this.group.parameters) each.path = paths.get(each.parameter) ?? each.path;
  }

  private preForward(args: readonly unknown[]): readonly unknown[] {
    // Backward runs the forward of an activation checkpoint again: the parameters are whole.
    if (this.trainingState === TrainingState.PRE_BACKWARD) {
      this.group.useWholeOfForward();
      return args;
    }
    const root = this.initialize();
    if (root.state === this) this.beginStep(root);
    this.trainingState = TrainingState.FORWARD;
    const given = this.castInputs(args);
    this.group.preForward();
    for (const state of this.forwardPrefetch) state.group.unshard();
    this.reshardAfter(given);
    return given;
  }

  private beginStep(root: Root): void {
    const isUnfinished =
      root.inBackward || root.all.some((s) => s.trainingState !== TrainingState.IDLE);
    if (isUnfinished) this.recover(root);
    else root.comm.forgetOrder();
  }

  private castInputs(args: readonly unknown[]): readonly unknown[] {
    const dtype = this.group.inputDtype;
    if (dtype === null) return args;
    return tree.map((t) => (t.dtype.isFloatingPoint ? t.to(dtype) : t), args);
  }

  /**
   * Frees frozen parameters when backward has passed the module, and no other forward of it that it
   * has begun. Others are freed with their gradients.
   */
  private reshardAfter(args: readonly unknown[]): void {
    if (this.group.isTrainable || !isGradEnabled()) return;
    const use: Use = {};
    this.use = use;
    const inputs = tree.tensors(args).filter((t) => t.requiresGrad);
    if (inputs.length === 0) return;
    const passed = (): void => {
      const uses = this.usesInBackward;
      if (uses.delete(use) && uses.size === 0) this.group.afterBackward();
    };
    const hook = autograd.opaqueHook(passed, ['passed', this]);
    autograd.registerMultiGradHook(inputs, hook, { mode: 'all' });
  }

  /** `result` is undefined after an error. */
  private postForward(result: unknown): unknown {
    if (this.trainingState === TrainingState.PRE_BACKWARD) {
      // A checkpoint in a checkpoint runs a part of the module again after this.
      if (this.group.trainingState !== TrainingState.PRE_BACKWARD) this.group.useSharded();
      return undefined;
    }
    const { root, use } = this;
    this.use = null;
    if (root === null) return undefined;
    if (result === undefined) return this.afterError(root);
    this.group.postForward(root.comm);
    if (root.state === this) root.comm.freePassed();
    this.trainingState = TrainingState.IDLE;
    this.beforeBackward(result, use);
    const { outputDtype } = this.precision;
    if (outputDtype === null) return undefined;
    return tree.map((t) => (t.dtype.isFloatingPoint ? t.to(outputDtype) : t), result);
  }

  /** A module without a result is treated as one that threw: nothing of it reaches backward. */
  private afterError(root: Root): void {
    this.trainingState = TrainingState.IDLE;
    if (root.state === this) this.recover(root);
    else this.group.reset();
  }

  /** Brings all modules of the root back to the state between steps. */
  recover(root: Root): void {
    root.inBackward = false;
    for (const state of root.all) {
      state.trainingState = TrainingState.IDLE;
      state.usesInBackward.clear();
      state.group.reset();
    }
    root.comm.backwardEnded();
  }

  private beforeBackward(result: unknown, use: Use | null): void {
    if (!isGradEnabled()) return;
    const outputs = tree.tensors(result).filter((t) => t.requiresGrad);
    if (outputs.length === 0) return;
    const hook = autograd.opaqueHook(() => this.preBackward(use), ['preBackward', this], {
      memory: () => this.group.wholeMemory,
    });
    autograd.registerMultiGradHook(outputs, hook, { mode: 'any' });
  }

  private preBackward(use: Use | null): void {
    const root = this.root as Root;
    if (!root.inBackward) {
      root.inBackward = true;
      autograd.queueCallback(
        () => this.afterBackward(root),
        () => this.recover(root),
      );
    }
    if (use !== null) this.usesInBackward.add(use);
    this.trainingState = TrainingState.PRE_BACKWARD;
    this.group.preBackward();
    this.prefetch(root);
  }

  private prefetch({ comm }: Root): void {
    if (this.backwardPrefetch.length > 0) {
      for (const state of this.backwardPrefetch) state.group.unshardForBackward();
    } else if (this.prefetchesBefore) {
      comm.before(this.group)?.unshardForBackward();
    }
  }

  private afterBackward(root: Root): void {
    for (const state of root.all) {
      state.group.reduceAccumulated();
      state.usesInBackward.clear();
      state.group.endBackward();
      state.trainingState = TrainingState.IDLE;
    }
    root.inBackward = false;
    if (this.isLastBackward) root.comm.backwardEnded();
  }
}
