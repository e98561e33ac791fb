/** The methods that `fullyShard` adds to a module. */
import { checkFlag, optionsOf, unexpected } from '../../core/options.js';
import { graphBreak, type nn, ShardingError } from '../../index.js';
import { type FSDPState, stateOf } from './fsdp-state.js';

/** What {@link FSDPModule.unshard} returns with `asyncOp`. */
export interface UnshardHandle {
  /** The parameters are whole for what follows. */
  wait(): void;
}

/**
 * What `fullyShard` adds to a module.
 *
 * @see PyTorch `torch.distributed.fsdp.FSDPModule`
 */
export interface FSDPModule {
  /**
   * Gathers the parameters of this module's group; the module holds whole parameters until
   * {@link reshard}. With `asyncOp` it returns a handle, and the parameters are whole after its
   * `wait()`.
   */
  unshard(options?: { asyncOp?: boolean }): UnshardHandle | null;
  /** Frees the whole parameters. The module holds its sharded ones again. */
  reshard(): void;
  /** Whether the next backward is the last of a step; then it frees all that it used. */
  setIsLastBackward(isLastBackward: boolean): void;
  /** Whether backward reduces gradients; if not, they accumulate unsharded. */
  setRequiresGradientSync(requiresGradientSync: boolean, options?: RecurseOptions): void;
  /**
   * Whether backward reduces gradients over the replicas of hybrid sharding; if not, sums of shards
   * wait for a pass that does.
   */
  setRequiresAllReduce(requiresAllReduce: boolean, options?: RecurseOptions): void;
  /** Whether whole parameters are freed after forward. */
  setReshardAfterForward(reshardAfterForward: boolean, options?: RecurseOptions): void;
  /** Whether whole parameters are freed after backward. */
  setReshardAfterBackward(reshardAfterBackward: boolean, options?: RecurseOptions): void;
  /** The modules to gather while this one runs forward. */
  setModulesToForwardPrefetch(modules: readonly nn.AnyModule[]): void;
  /** The modules to gather while this one runs backward, in place of the one before it. */
  setModulesToBackwardPrefetch(modules: readonly nn.AnyModule[]): void;
  /** Whether the parameters are gathered before backward; false for a module that needs none. */
  setUnshardInBackward(unshardInBackward: boolean): void;
}

/** Options of the setters of {@link FSDPModule}. */
export interface RecurseOptions {
  /** Whether the sharded modules below are set, too. True by default. */
  recurse?: boolean;
}

/** The states of the sharded modules that a setter is about. */
function statesBelow(op: string, module: nn.AnyModule, options: RecurseOptions): FSDPState[] {
  const { recurse = true } = optionsOf(op, options, 'recurse');
  checkFlag(op, 'recurse', recurse);
  const modules = recurse ? [...module.modules()] : [module];
  return [...new Set(modules.flatMap((each) => stateOf(each) ?? []))];
}

function statesOf(op: string, modules: readonly nn.AnyModule[]): FSDPState[] {
  if (!Array.isArray(modules)) throw unexpected(op, 'modules', 'a list of modules', modules);
  const states = modules.map((module) => {
    const state = stateOf(module);
    if (state !== null) return state;
    throw new ShardingError(
      `${op}: expected modules that fullyShard was called on, got ${module?.constructor?.name}`,
      { op },
    );
  });
  return [...new Set(states)];
}

const methods: FSDPModule & ThisType<nn.AnyModule> = {
  unshard(options = {}) {
    const { asyncOp = false } = optionsOf('unshard', options, 'asyncOp');
    checkFlag('unshard', 'asyncOp', asyncOp);
    const state = stateOf(this as nn.AnyModule) as FSDPState;
    state.initialize();
    state.group.freeStale();
    state.group.unshard();
    const wait = (): void => {
      state.group.waitForUnshard();
      state.group.useWhole();
    };
    if (asyncOp) return { wait };
    wait();
    return null;
  },
  reshard() {
    (stateOf(this as nn.AnyModule) as FSDPState).group.reshard();
  },
  setIsLastBackward(isLastBackward) {
    checkFlag('setIsLastBackward', 'isLastBackward', isLastBackward);
    for (const state of statesBelow('setIsLastBackward', this as nn.AnyModule, {}))
      state.isLastBackward = isLastBackward;
  },
  setRequiresGradientSync(value, options = {}) {
    const op = 'setRequiresGradientSync';
    checkFlag(op, 'requiresGradientSync', value);
    for (const { group } of statesBelow(op, this as nn.AnyModule, options)) {
      group.reducesGradients = value;
      group.allReducesGradients = value;
    }
  },
  setRequiresAllReduce(value, options = {}) {
    checkFlag('setRequiresAllReduce', 'requiresAllReduce', value);
    for (const { group } of statesBelow('setRequiresAllReduce', this as nn.AnyModule, options))
      group.allReducesGradients = value;
  },
  setReshardAfterForward(value, options = {}) {
    checkFlag('setReshardAfterForward', 'reshardAfterForward', value);
    for (const state of statesBelow('setReshardAfterForward', this as nn.AnyModule, options))
      state.setReshardAfterForward(value);
  },
  setReshardAfterBackward(value, options = {}) {
    checkFlag('setReshardAfterBackward', 'reshardAfterBackward', value);
    for (const { group } of statesBelow('setReshardAfterBackward', this as nn.AnyModule, options))
      group.reshardsAfterBackward = value;
  },
  setModulesToForwardPrefetch(modules) {
    (stateOf(this as nn.AnyModule) as FSDPState).forwardPrefetch = statesOf(
      'setModulesToForwardPrefetch',
      modules,
    );
  },
  setModulesToBackwardPrefetch(modules) {
    (stateOf(this as nn.AnyModule) as FSDPState).backwardPrefetch = statesOf(
      'setModulesToBackwardPrefetch',
      modules,
    );
  },
  setUnshardInBackward(value) {
    checkFlag('setUnshardInBackward', 'unshardInBackward', value);
    (stateOf(this as nn.AnyModule) as FSDPState).group.unshardsInBackward = value;
  },
};

/** What they change is not in graphs, which would repeat what followed the first call. */
const outsideGraphs = Object.entries(methods).map(([name, method]) => {
  const value = function (this: nn.AnyModule, ...args: readonly unknown[]): unknown {
    graphBreak(`${name}() of a sharded module was called`);
    return Reflect.apply(method, this, args);
  };
  return [name, value] as const;
});

/** Adds the methods as properties that do not count as members of the module. */
export function addMethods<M extends nn.AnyModule>(module: M): M & FSDPModule {
  for (const [name, value] of outsideGraphs)
    Object.defineProperty(module, name, {
      value,
      writable: true,
      configurable: true,
      enumerable: false,
    });
  return module as M & FSDPModule;
}
