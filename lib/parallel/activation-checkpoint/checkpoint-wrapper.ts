/** Modules whose forward runs as a checkpoint, under the names that they had. */
import { declareExports } from '../../core/library-exports.js';
import { checkFunction, checkOneOf, optionsOf, unexpected } from '../../core/options.js';
import { nn } from '../../index.js';
import { isContainer } from '../common/containers.js';
import { type CheckpointOptions, checkedOptions, runCheckpoint } from './checkpoint.js';

/** How a wrapped module is recomputed: only `NO_REENTRANT` is supported. */
export const CheckpointImpl = { NO_REENTRANT: 'NO_REENTRANT' } as const;
/** The name of a way to recompute. */
export type CheckpointImplName = (typeof CheckpointImpl)[keyof typeof CheckpointImpl];

/** Options of {@link checkpointWrapper}: its own, and those of `checkpoint`. */
export interface CheckpointWrapperOptions extends CheckpointOptions {
  /** Default: `'NO_REENTRANT'`. */
  checkpointImpl?: CheckpointImplName;
  /**
   * Runs the module in place of {@link checkpoint}: with the module, its arguments, and then those
   * options that are not of the wrapper, if there are any.
   */
  checkpointFn?: (...args: never[]) => unknown;
}

type Call = (...args: unknown[]) => unknown;
type Run = (module: Call, args: readonly unknown[]) => unknown;

class CheckpointWrapper extends nn.Module<unknown[], unknown> {
  constructor(module: nn.AnyModule, run: Run) {
    super();
    // The empty name is that of a wrapped module: names below stay as they were. A wrapper of
    // another kind may take its place.
    const children = this as unknown as Record<'', Call>;
    children[''] = module as unknown as Call;
    forward(this, module);
    hide(this, '_checkpointWrappedModule', { get: () => children[''] });
    hide(this, 'forward', { value: (...args: unknown[]) => run(children[''], args) });
    this.training = module.training;
  }

  declare forward: (...args: unknown[]) => unknown;
}

declareExports({ CheckpointWrapper });

function hide(target: object, name: string | symbol, property: PropertyDescriptor): void {
  Object.defineProperty(target, name, { configurable: true, enumerable: false, ...property });
}

/** The names of what a wrapper has itself; the empty one is that of the module in it. */
const OWN_NAMES: ReadonlySet<string | symbol> = new Set(['', 'forward', 'constructor']);

/** Makes the members and methods of a module readable and writable on its wrapper. */
function forward(wrapper: nn.AnyModule, module: nn.AnyModule): void {
  const from = module as unknown as Record<string | symbol, unknown>;
  const names = new Set<string | symbol>(Object.keys(module));
  for (
    let type = Object.getPrototypeOf(module) as object;
    type !== nn.Module.prototype;
    type = Object.getPrototypeOf(type) as object
  )
    for (const name of Reflect.ownKeys(type)) names.add(name);
  for (const name of names) {
    if (name in nn.Module.prototype || OWN_NAMES.has(name)) continue;
    hide(wrapper, name, {
      get: () => {
        const value = from[name];
        const isMethod = typeof value === 'function' && !(value instanceof nn.Module);
        return isMethod ? value.bind(module) : value;
      },
      set: (value: unknown) => {
        from[name] = value;
      },
    });
  }
}

/** A module that {@link checkpointWrapper} has wrapped. */
export interface CheckpointWrapped<M extends nn.AnyModule> {
  /** The module that is recomputed. */
  readonly _checkpointWrappedModule: M;
}

/**
 * Wraps a module, so that each call of it is a {@link checkpoint}. Names of parameters, buffers and
 * modules below stay as they were, those of state dicts too, and members of the module are members
 * of the wrapper. Hooks of the module run again in the recomputation, those of the wrapper do not.
 *
 * @throws ArgumentError for what is no module, and for options that are none
 * @see PyTorch `torch.distributed.algorithms._checkpoint.checkpoint_wrapper.checkpoint_wrapper`
 * @example
 * class Net extends nn.Module {
 *   block = checkpointWrapper(new nn.Linear(8, 8), { preserveRngState: false });
 *   forward(x: Tensor) {
 *     return this.block(x).relu();
 *   }
 * }
 * new Net()(x).shape; // [4, 8]
 */
export function checkpointWrapper<M extends nn.AnyModule>(
  module: M,
  options: CheckpointWrapperOptions = {},
): M & CheckpointWrapped<M> {
  const op = 'checkpointWrapper';
  if (!(module instanceof nn.Module)) throw unexpected(op, 'module', 'an nn.Module', module);
  const {
    checkpointImpl = CheckpointImpl.NO_REENTRANT,
    checkpointFn,
    ...others
  } = optionsOf(op, options);
  checkOneOf(op, 'checkpointImpl', checkpointImpl, Object.values(CheckpointImpl));
  if (checkpointFn === undefined) {
    checkedOptions(op, others);
    return wrapped(module, (call, args) => runCheckpoint('checkpoint', call, args, others));
  }
  checkFunction(op, 'checkpointFn', checkpointFn);
  const run = checkpointFn as Call;
  const last = Object.keys(others).length === 0 ? [] : [others];
  return wrapped(module, (call, args) => run(call, ...args, ...last));
}

function wrapped<M extends nn.AnyModule>(module: M, run: Run): M & CheckpointWrapped<M> {
  return new CheckpointWrapper(module, run) as unknown as M & CheckpointWrapped<M>;
}

/** Options of {@link applyActivationCheckpointing}. */
export interface ActivationCheckpointingOptions {
  /** Wraps a module. Default: {@link checkpointWrapper}. */
  checkpointWrapperFn?: (module: nn.AnyModule) => nn.AnyModule;
  /** Which modules with `forward` below the model are wrapped. Default: all. */
  checkFn?: (module: nn.AnyModule) => boolean;
}

/**
 * Wraps modules of a model in place: those below it for which `checkFn` is true, wherever the model
 * has them. The model itself stays.
 *
 * @throws ArgumentError for what is no module or no function
 * @see PyTorch `apply_activation_checkpointing`
 * @example
 * applyActivationCheckpointing(model, { checkFn: (module) => module instanceof nn.Linear });
 */
export function applyActivationCheckpointing(
  model: nn.AnyModule,
  options: ActivationCheckpointingOptions = {},
): void {
  const op = 'applyActivationCheckpointing';
  if (!(model instanceof nn.Module)) throw unexpected(op, 'model', 'an nn.Module', model);
  const { checkpointWrapperFn = wrapAny, checkFn = () => true } = optionsOf(
    op,
    options,
    'checkpointWrapperFn checkFn',
  );
  checkFunction(op, 'checkpointWrapperFn', checkpointWrapperFn);
  checkFunction(op, 'checkFn', checkFn);
  const wrappers = new Map<nn.AnyModule, nn.AnyModule>();
  const parents = [...model.modules()];
  for (const module of parents) {
    if (module === model || !canRun(module) || !checkFn(module)) continue;
    const wrapper = checkpointWrapperFn(module);
    if (!(wrapper instanceof nn.Module))
      throw unexpected(op, 'what checkpointWrapperFn returns', 'an nn.Module', wrapper);
    wrappers.set(module, wrapper);
  }
  for (const parent of parents) {
    if (parent instanceof CheckpointWrapper) continue; // it is wrapped already
    for (const [name, child] of parent.namedChildren()) {
      const wrapper = wrappers.get(child);
      if (wrapper !== undefined) (parent as unknown as Record<string, unknown>)[name] = wrapper;
    }
  }
}

function wrapAny(module: nn.AnyModule): nn.AnyModule {
  return checkpointWrapper(module);
}

/** Whether a call of the module runs something of its own. */
function canRun(module: nn.AnyModule): boolean {
  return (
    module.forward !== undefined && !(module instanceof CheckpointWrapper) && !isContainer(module)
  );
}
