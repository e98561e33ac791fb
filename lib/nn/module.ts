/**
 * The base class of modules: trees of parameters with a forward function. A module is a function
 * object, so `model(x)` runs its hooks and `forward`. Parameters, buffers and children are plain
 * properties; assigning one registers it.
 */

import type { HookHandle } from '../autograd/node.js';
import type { Device, DeviceName } from '../core/device.js';
import { bfloat16, type DTypeLike, float16, float32, float64 } from '../core/dtype.js';
import { ArgumentError } from '../core/errors.js';
import { layers } from '../core/hooks.js';
import { markLibraryGenerator } from '../core/library-generators.js';
import { CHANGES, countChange, countingPrototype } from '../core/module-changes.js';
import { checkFlag, checkFunction, checkNumber, unexpected } from '../core/options.js';
import { keep } from '../core/scope.js';
import { gradOf, setGrad } from '../core/set-grad.js';
import { type ArgumentsOf, defineArguments } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { zeroGradArguments } from '../core/zero-grad-arguments.js';
import { describe, requireTensor } from '../ops/operand.js';
import { convertModule, type EmptyTarget, emptyModule, type ModuleTarget } from './convert.js';
import { describeModule } from './describe.js';
import { bufferAt, members, parameterAt, quoted, setMember, valueAt } from './members.js';
import {
  addForwardHook,
  addModuleHook,
  type BackwardHook,
  type BackwardPreHook,
  callModule,
  type ForwardHook,
  type ForwardHookOptions,
  type ForwardPreHook,
  type HookOptions,
  type ModuleHooks,
  makeHooks,
} from './module-hooks.js';
import { Parameter } from './parameter.js';
import {
  seconds,
  type WalkOptions,
  walk,
  walkBuffers,
  walkModules,
  walkParameters,
} from './walks.js';

export type { EmptyTarget, ModuleTarget, WalkOptions };

/**
 * A module of any arguments and result. Every module is assignable to it; to call one, state its
 * arguments: `module as Module<[x: Tensor]>`.
 */
export type AnyModule = Module<never, unknown>;

const bufferArguments = defineArguments(
  'registerBuffer(name, tensor, persistent)',
  (name: string, tensor: Tensor | null, persistent = true) => {
    checkFlag('registerBuffer', 'persistent', persistent);
    return { name, tensor, persistent };
  },
);

function* walkChildren(module: AnyModule): Generator<[string, AnyModule]> {
  for (const [name, value] of members(module)) if (value instanceof Module) yield [name, value];
}
markLibraryGenerator(walkChildren);

export interface Module<Args extends readonly unknown[] = [input: Tensor], Result = Tensor> {
  (...args: Args): Result;
}

/**
 * Base class of all modules. A forward of two arguments: `nn.Module<[x: Tensor, mask: Tensor]>`.
 *
 * @see PyTorch `torch.nn.Module`
 * @example
 * class Net extends nn.Module {
 *   fc = new nn.Linear(8, 2);
 *   forward(x: Tensor) { return this.fc(x).relu(); }
 * }
 * new Net()(randn([4, 8])).shape; // [4, 2]
 */
export abstract class Module<Args extends readonly unknown[] = [input: Tensor], Result = Tensor> {
  /**
   * @internal the function that `compile()` returned; a call runs it instead of hooks and forward
   */
  compiled!: ((...args: never[]) => unknown) | null;
  /** @internal */
  trainingFlag!: boolean;
  /** @internal */
  readonly hooks!: ModuleHooks;
  /** @internal */
  readonly bufferNames!: Map<string, boolean>;
  /** @internal names in order of registration; null while JavaScript's order is the same */
  memberOrder!: string[] | null;

  constructor() {
    const self = ((...args: Args): Result =>
      callModule(self, args as unknown as never[]) as Result) as unknown as this;
    Object.setPrototypeOf(self, new.target.prototype);
    // A function's own properties would shadow fields of these names.
    delete (self as { name?: string }).name;
    delete (self as { length?: number }).length;
    hide(self, CHANGES, 0);
    hide(self, 'trainingFlag', true);
    hide(self, 'compiled', null);
    hide(self, 'hooks', makeHooks());
    hide(self, 'memberOrder', null);
    hide(self, 'bufferNames', new Map<string, boolean>());
    // biome-ignore lint/correctness/noConstructorReturn: this is what makes modules callable.
    return self;
  }

  /** True while training. Modules such as Dropout behave differently in evaluation. */
  get training(): boolean {
    layers.backend.capture?.usesModule(this);
    return this.trainingFlag;
  }

  set training(value: boolean) {
    this.trainingFlag = value;
    countChange(this);
  }

  /** Computes the result. Call the module itself, so that hooks run. */
  abstract forward(...args: Args): Result;

  /**
   * Adds a tensor that is part of the state but not trained. With `persistent: false` the state
   * dict leaves it out.
   */
  registerBuffer(...args: ArgumentsOf<typeof bufferArguments>): void {
    const { name, tensor, persistent } = bufferArguments(...args);
    if (tensor !== null) requireTensor(tensor, 'registerBuffer', quoted(name));
    if (tensor !== null) keep(tensor);
    layers.backend.observer?.mark(tensor?.storage ?? null, 'buffer');
    setMember(this, name, tensor);
    this.bufferNames.set(name, persistent);
  }

  /** Adds a parameter by name, as assigning the property does. */
  registerParameter(name: string, parameter: Parameter | null): void {
    if (parameter !== null && !(parameter instanceof Parameter))
      throw new ArgumentError(
        `registerParameter: expected ${quoted(name)} to be an nn.Parameter or null, got ` +
          `${describe(parameter)}`,
        { name },
      );
    setMember(this, name, parameter);
  }

  /**
   * Adds a child by name, as assigning the property does. Use this for a name that is a whole
   * number: JavaScript lists such properties first, and this keeps the order of registration.
   */
  registerModule(name: string, module: AnyModule): void {
    if (!(module instanceof Module))
      throw new ArgumentError(
        `registerModule: expected ${quoted(name)} to be a module, got ${describe(module)}`,
        { name },
      );
    setMember(this, name, module);
  }

  /** As {@link Module.registerModule}. */
  addModule(name: string, module: AnyModule): void {
    this.registerModule(name, module);
  }

  /** Direct children with their names; can be walked many times, as all below. */
  namedChildren(): Iterable<[string, AnyModule]> {
    return walk(() => walkChildren(this));
  }

  /** The direct submodules. */
  children(): Iterable<AnyModule> {
    return walk(() => seconds(this.namedChildren()));
  }

  /**
   * This module and all below, each once, with dotted paths that start with `prefix`. A given
   * `seen` has the modules to leave out, and gets those that are walked over.
   */
  namedModules(prefix = '', seen?: Set<AnyModule>): Iterable<[string, AnyModule]> {
    return walk(() => walkModules(this, prefix, seen));
  }

  /** This module and all submodules, each once. */
  modules(): Iterable<AnyModule> {
    return walk(() => seconds(this.namedModules()));
  }

  /** Parameters with dotted names, each once (a shared one under its first name). */
  namedParameters(
    prefix = '',
    options: WalkOptions & { removeDuplicate?: boolean } = {},
  ): Iterable<[string, Parameter]> {
    return walk(() => walkParameters(this, prefix, options));
  }

  /**
   * The parameters of this module and its submodules, each once.
   * @example [...new nn.Linear(8, 4).parameters()].map((p) => p.shape); // [[4, 8], [4]]
   */
  parameters(options: WalkOptions = {}): Iterable<Parameter> {
    return walk(() => seconds(this.namedParameters('', options)));
  }

  /** Buffers with dotted names. */
  namedBuffers(prefix = '', options: WalkOptions = {}): Iterable<[string, Tensor]> {
    return walk(() => walkBuffers(this, prefix, options));
  }

  /** The buffers of this module and its submodules, each once. */
  buffers(options: WalkOptions = {}): Iterable<Tensor> {
    return walk(() => seconds(this.namedBuffers('', options)));
  }

  /**
   * The module at a dotted path; state its class to call it. @throws ArgumentError if no module has
   * this path
   */
  getSubmodule<M extends AnyModule = Module>(path: string): M {
    if (typeof path !== 'string') throw unexpected('getSubmodule', 'path', 'a string', path);
    let module: AnyModule = this;
    for (const name of path === '' ? [] : path.split('.')) {
      const next = valueAt(module, name);
      if (!(next instanceof Module))
        throw new ArgumentError(
          `getSubmodule: no module at "${path}": ${describeModule(module, 0)} has no child ` +
            `"${name}"`,
          { path },
        );
      module = next;
    }
    return module as unknown as M;
  }

  /** The parameter at a dotted path. @throws ArgumentError if no parameter has this path */
  getParameter(path: string): Parameter {
    return parameterAt(this, path);
  }

  /** The buffer at a dotted path. @throws ArgumentError if no buffer has this path */
  getBuffer(path: string): Tensor {
    return bufferAt(this, path);
  }

  /**
   * Moves and converts all parameters and buffers in place; only floating ones change dtype.
   * Returns the module.
   */
  to(target: DTypeLike | DeviceName | Device | ModuleTarget): this {
    convertModule(this, target);
    return this;
  }

  /**
   * Gives all parameters and buffers new memory on a device, with undefined values: of the same
   * shapes, dtypes, placements and `requiresGrad`. Parameters stay the same objects, so shared ones
   * stay shared; gradients become null. A module on `meta` gets its memory so. Returns the module.
   *
   * @param target - `{ device, recurse }`, or the device alone
   * @throws DeviceError if the device is malformed or not there
   * @see PyTorch `torch.nn.Module.to_empty`
   * @example model.toEmpty({ device: 'cuda' });
   */
  toEmpty(target: DeviceName | Device | EmptyTarget): this {
    emptyModule(this, target);
    return this;
  }

  /** Converts floating parameters and buffers to float16. */
  half(): this {
    return this.to(float16);
  }

  /** Converts floating parameters and buffers to bfloat16. */
  bfloat16(): this {
    return this.to(bfloat16);
  }

  /** Converts floating parameters and buffers to float32. */
  float(): this {
    return this.to(float32);
  }

  /** Converts floating parameters and buffers to float64. */
  double(): this {
    return this.to(float64);
  }

  /** Moves the module to a CUDA device. @throws DeviceError */
  cuda(index = 0): this {
    checkNumber('cuda', 'index', index, { from: 0, to: 999, whole: true });
    return this.to(`cuda:${index}`);
  }

  /** Moves the module to the CPU. */
  cpu(): this {
    return this.to('cpu');
  }

  /** Sets the training flag of this module and of all below it. */
  train(mode = true): this {
    for (const module of this.modules()) module.training = mode;
    return this;
  }

  /** As `train(false)`. */
  eval(): this {
    return this.train(false);
  }

  /** Turns gradients of all parameters on or off. */
  requiresGrad_(value = true): this {
    for (const parameter of this.parameters()) parameter.requiresGrad_(value);
    return this;
  }

  /** Sets the gradients of all parameters to null, or to zero. */
  zeroGrad(...args: ArgumentsOf<typeof zeroGradArguments>): void {
    const setToNone = zeroGradArguments(...args);
    for (const parameter of this.parameters()) {
      if (setToNone) setGrad(parameter, null);
      else gradOf(parameter)?.detach().zero_();
    }
  }

  /** Calls `fn` on every module, children first. */
  apply(fn: (module: AnyModule) => void): this {
    checkFunction('apply', 'fn', fn);
    for (const child of this.children()) child.apply(fn);
    fn(this);
    return this;
  }

  /** Registers a hook that runs before `forward` and may return other arguments as an array. */
  registerForwardPreHook(hook: ForwardPreHook<this, Args>, options?: HookOptions): HookHandle {
    return addModuleHook(this, 'forwardPre', hook as never, options);
  }

  /**
   * Registers a hook that runs after `forward` and may return another result. With `alwaysCall` it
   * runs also after an error, with `undefined` as the result.
   */
  registerForwardHook(
    hook: ForwardHook<this, Args, Result>,
    options?: ForwardHookOptions,
  ): HookHandle {
    return addForwardHook(this, hook as never, options);
  }

  /** Registers a hook that sees the gradients of the outputs and may return replacements. */
  registerFullBackwardPreHook(hook: BackwardPreHook<this>, options?: HookOptions): HookHandle {
    return addModuleHook(this, 'backwardPre', hook as never, options);
  }

  /**
   * Registers a hook that sees the gradients of the inputs, after the parameters' `.grad` is set,
   * and may return replacements.
   */
  registerFullBackwardHook(hook: BackwardHook<this>, options?: HookOptions): HookHandle {
    return addModuleHook(this, 'backward', hook as never, options);
  }

  /** Text in the parentheses of the printed form, such as sizes. */
  extraRepr(): string {
    return '';
  }

  /** The module and its submodules as text, in PyTorch's form. */
  toString(): string {
    return describeModule(this, Number.POSITIVE_INFINITY);
  }

  [Symbol.for('nodejs.util.inspect.custom')](): string {
    return this.toString();
  }

  /** Frees the memory of all parameters, gradients and buffers now. */
  dispose(): void {
    for (const t of [...this.parameters(), ...this.buffers()]) {
      t.gradTensor?.dispose();
      t.dispose();
    }
  }
}

Object.setPrototypeOf(Module.prototype, countingPrototype);

/** Defines a property that does not count as a member. */
function hide(target: object, key: string | symbol, value: unknown): void {
  Object.defineProperty(target, key, {
    value,
    writable: true,
    configurable: true,
    enumerable: false,
  });
}
