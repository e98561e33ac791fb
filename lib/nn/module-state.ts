/** The methods of modules about their state: saving it, loading it, and hooks around both. */
import type { HookHandle } from '../autograd/node.js';
import { optionsOf } from '../core/options.js';
import { PREPARE_LOAD } from '../core/prepare-load.js';
import type { ArgumentsOf } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { type AnyModule, Module } from './module.js';
import {
  collectState,
  type LoadResult,
  loadArguments,
  loadState,
  prepareState,
  type StateDict,
  type StateDictOptions,
} from './state-dict.js';
import {
  addStateHook,
  type LoadStateDictPostHook,
  type LoadStateDictPreHook,
  type StateDictHook,
  type StateDictPreHook,
} from './state-hooks.js';

const methods = {
  stateDict(this: AnyModule, options: StateDictOptions = {}): StateDict {
    const { prefix = '', keepVars = false } = optionsOf('stateDict', options, 'prefix keepVars');
    return collectState(this, prefix, keepVars);
  },
  loadStateDict(
    this: AnyModule,
    state: StateDict | ReadonlyMap<string, Tensor>,
    ...options: ArgumentsOf<typeof loadArguments>
  ): LoadResult {
    return loadState(this, state, loadArguments(...options));
  },
  [PREPARE_LOAD](this: AnyModule, state: StateDict): (() => void) | null {
    return this.loadStateDict === methods.loadStateDict ? prepareState(this, state) : null;
  },
  registerStateDictPreHook(this: AnyModule, hook: unknown): HookHandle {
    return addStateHook(this, 'statePre', hook);
  },
  registerStateDictHook(this: AnyModule, hook: unknown): HookHandle {
    return addStateHook(this, 'state', hook);
  },
  registerLoadStateDictPreHook(this: AnyModule, hook: unknown): HookHandle {
    return addStateHook(this, 'loadPre', hook);
  },
  registerLoadStateDictPostHook(this: AnyModule, hook: unknown): HookHandle {
    return addStateHook(this, 'loadPost', hook);
  },
};
for (const name of Reflect.ownKeys(methods)) {
  const value = methods[name as keyof typeof methods];
  Object.defineProperty(Module.prototype, name, { value, writable: true, configurable: true });
}

declare module './module.js' {
  interface Module<Args extends readonly unknown[], Result> {
    /**
     * Parameters and persistent buffers by dotted name, sharing memory with the module.
     *
     * @example
     * const model = new nn.Linear(8, 4);
     * Object.keys(model.stateDict()); // ['weight', 'bias']
     */
    stateDict(options?: StateDictOptions): StateDict;
    /**
     * Copies values into parameters and buffers. With `assign`, the tensors of the state take the
     * place of parameters and buffers, with their own dtype and device; only `requiresGrad` stays.
     * An optimizer is made after that.
     *
     * @throws CheckpointError that lists wrong shapes and, unless `strict` is false, missing and
     * unexpected names
     * @see PyTorch `torch.nn.Module.load_state_dict`
     * @example
     * const [model, copy] = [new nn.Linear(8, 4), new nn.Linear(8, 4)];
     * copy.loadStateDict(model.stateDict());
     * copy.weight.equal(model.weight); // true
     */
    loadStateDict(
      state: StateDict | ReadonlyMap<string, Tensor>,
      ...options: ArgumentsOf<typeof loadArguments>
    ): LoadResult;
    /**
     * Registers a hook that runs before the state of this module is collected, as part of that of a
     * module above too. `prefix` is what its names begin with.
     *
     * @throws ArgumentError if it is no function; on collecting, if it returns something
     * @see PyTorch `torch.nn.Module.register_state_dict_pre_hook`
     */
    registerStateDictPreHook(hook: StateDictPreHook<this>): HookHandle;
    /**
     * Registers a hook that runs when this module and those below are collected, and may change the
     * state: that of the whole tree so far, in which the names of this module begin with `prefix`.
     *
     * @throws ArgumentError if it is no function; on collecting, if it returns something
     * @see PyTorch `torch.nn.Module.register_state_dict_post_hook`
     */
    registerStateDictHook(hook: StateDictHook<this>): HookHandle;
    /**
     * Registers a hook that runs before this module is loaded, as part of a module above too. It
     * may change the state, a copy with all names that begin with `prefix`: rename, add and remove
     * tensors, also those of the modules below.
     *
     * @throws ArgumentError if it is no function; on loading, if it returns something
     * @see PyTorch `torch.nn.Module.register_load_state_dict_pre_hook`
     */
    registerLoadStateDictPreHook(hook: LoadStateDictPreHook<this>): HookHandle;
    /**
     * Registers a hook that runs after this module was loaded, and after those of the modules
     * below. It may change the lists of missing and unexpected names: without names, a strict load
     * throws no error.
     *
     * @throws ArgumentError if it is no function; on loading, if it returns something
     * @see PyTorch `torch.nn.Module.register_load_state_dict_post_hook`
     */
    registerLoadStateDictPostHook(hook: LoadStateDictPostHook<this>): HookHandle;
  }
}
