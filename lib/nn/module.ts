/**
 * Modules: trees of parameters with a forward function. A module is a function object: `model(x)`
 * runs its hooks and `forward`. Parameters, buffers and children are plain properties; assigning
 * one registers it.
 */

import { noGrad } from '../autograd/grad-mode.js';
import type { HookHandle } from '../autograd/node.js';
import type { Device, DeviceName } from '../core/device.js';
import {
  bfloat16,
  type DType,
  type DTypeLike,
  dtypeOf,
  float16,
  float32,
  float64,
} from '../core/dtype.js';
import { ArgumentError } from '../core/errors.js';
import { keep } from '../core/keep.js';
import { memoryRoles } from '../core/memory-roles.js';
import { checkFunction, checkNumber, optionsOf, unexpected } from '../core/options.js';
import { swapData } from '../core/set-storage.js';
import type { ArgumentsOf } from '../core/signature.js';
import { setGrad, Tensor } from '../core/tensor.js';
import { dtypeOrDevice } from '../core/to-target.js';
import { moduleWatch } from '../core/watch.js';
import { zeroGradArguments } from '../core/zero-grad-arguments.js';
import { describe, requireTensor } from '../ops/operand.js';
import { describeModule } from './describe.js';
import { members, quoted, setMember } from './members.js';
import { bufferArguments, strictArguments } from './module-arguments.js';
import {
  addHook,
  type BackwardHook,
  type BackwardPreHook,
  callModule,
  type ForwardHook,
  type ForwardPreHook,
  type HookOptions,
  type ModuleHooks,
  makeHooks,
} from './module-hooks.js';
import { Parameter } from './parameter.js';
import {
  collectState,
  type LoadResult,
  loadState,
  type StateDict,
  type StateDictOptions,
} from './state-dict.js';

/**
 * A module of whatever arguments and result. Every module is one; to call it, say what it takes:
 * `module as Module<[x: Tensor]>`.
 */
export type AnyModule = Module<never, unknown>;

/** What `module.to` takes. */
export interface ModuleTarget {
  /** The dtype of floating-point parameters and buffers. */
  dtype?: DTypeLike;
  /** The device of parameters and buffers. */
  device?: DeviceName | Device;
}

/** Options of the walks over parameters and buffers. */
export interface WalkOptions {
  /** Those of modules below, too. */
  recurse?: boolean;
}

export interface Module<Args extends readonly unknown[] = [input: Tensor], Result = Tensor> {
  (...args: Args): Result;
}

/**
 * Base class of all modules.
 *
 * @see PyTorch `torch.nn.Module`
 * @example
 * class Net extends nn.Module {
 *   fc = new nn.Linear(4, 2);
 *   forward(x: Tensor) { return this.fc(x).relu(); }
 * }
 * const y = new Net()(x);
 */
export abstract class Module<Args extends readonly unknown[] = [input: Tensor], Result = Tensor> {
  /** @internal the form that `compile()` made, called instead of hooks and forward */
  compiled!: ((...args: never[]) => unknown) | null;
  /** @internal */
  trainingFlag!: boolean;
  /** @internal */
  readonly hooks!: ModuleHooks;
  /** @internal */
  readonly bufferNames!: Map<string, boolean>;
  /** @internal names in order of registration, where JavaScript's order is another */
  memberOrder!: string[] | null;

  constructor() {
    const self = ((...args: Args): Result =>
      callModule(self, args as unknown as never[]) as Result) as unknown as this;
    Object.setPrototypeOf(self, new.target.prototype);
    // A function's own properties would shadow fields of these names.
    delete (self as { name?: string }).name;
    delete (self as { length?: number }).length;
    hide(self, 'trainingFlag', true);
    hide(self, 'compiled', null);
    hide(self, 'hooks', makeHooks());
    hide(self, 'memberOrder', null);
    hide(self, 'bufferNames', new Map<string, boolean>());
    // biome-ignore lint/correctness/noConstructorReturn: this is what makes modules callable.
    return self;
  }

  /** True while training; changes what Dropout and its like do. */
  get training(): boolean {
    moduleWatch.saw?.(this);
    return this.trainingFlag;
  }

  set training(value: boolean) {
    this.trainingFlag = value;
  }

  /** What the module computes; call the module itself, so that hooks run. */
  abstract forward(...args: Args): Result;

  /**
   * Adds a tensor that is part of the state but not trained; with `persistent: false` it is left
   * out of the state dict.
   */
  registerBuffer(...args: ArgumentsOf<typeof bufferArguments>): void {
    const { name, tensor, persistent } = bufferArguments(...args);
    if (tensor !== null) requireTensor(tensor, 'registerBuffer', quoted(name));
    if (tensor !== null) keep(tensor);
    memoryRoles.mark?.(tensor?.storage ?? null, 'buffer');
    setMember(this, name, tensor);
    this.bufferNames.set(name, persistent);
  }

  /** Adds a parameter by name, as assigning the property does. */
  registerParameter(name: string, parameter: Parameter | null): void {
    if (parameter !== null && !(parameter instanceof Parameter))
      throw new ArgumentError(
        `registerParameter: expected ${quoted(name)} to be an nn.Parameter or null, got ${describe(parameter)}`,
        { name },
      );
    setMember(this, name, parameter);
  }

  /**
   * Adds a child by name, as assigning the property does. A name that is a whole number keeps its
   * place among the others only this way: JavaScript puts such properties first.
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

  /** Direct children with their names. */
  *namedChildren(): Generator<[string, AnyModule]> {
    for (const [name, value] of members(this)) if (value instanceof Module) yield [name, value];
  }

  /** The direct submodules. */
  *children(): Generator<AnyModule> {
    for (const [, child] of this.namedChildren()) yield child;
  }

  /** This module and all below, each once, with dotted paths; this one's is the prefix. */
  *namedModules(prefix = '', seen: Set<AnyModule> = new Set()): Generator<[string, AnyModule]> {
    if (typeof prefix !== 'string') throw unexpected('namedModules', 'prefix', 'a string', prefix);
    if (!(seen instanceof Set)) throw unexpected('namedModules', 'seen', 'a set of modules', seen);
    if (seen.has(this)) return;
    seen.add(this);
    yield [prefix, this];
    for (const [name, child] of this.namedChildren())
      yield* child.namedModules(join(prefix, name), seen);
  }

  /** This module and all submodules, each once. */
  *modules(): Generator<AnyModule> {
    for (const [, module] of this.namedModules()) yield module;
  }

  /** Parameters with dotted names, each once (a shared one under its first name). */
  *namedParameters(
    prefix = '',
    options: WalkOptions & { removeDuplicate?: boolean } = {},
  ): Generator<[string, Parameter]> {
    const { recurse = true, removeDuplicate = true } = optionsOf(
      'namedParameters',
      options,
      'recurse removeDuplicate',
    );
    const seen = new Set<Tensor>();
    for (const [path, module] of recurse ? this.namedModules(prefix) : [[prefix, this] as const]) {
      for (const [name, value] of members(module)) {
        if (!(value instanceof Parameter) || (removeDuplicate && seen.has(value))) continue;
        seen.add(value);
        yield [join(path, name), value];
      }
    }
  }

  /** The parameters of this module and its submodules, each once. */
  *parameters(options: WalkOptions = {}): Generator<Parameter> {
    for (const [, parameter] of this.namedParameters('', options)) yield parameter;
  }

  /** Buffers with dotted names. */
  *namedBuffers(prefix = '', options: WalkOptions = {}): Generator<[string, Tensor]> {
    const { recurse = true } = optionsOf('namedBuffers', options, 'recurse');
    const seen = new Set<Tensor>();
    for (const [path, module] of recurse ? this.namedModules(prefix) : [[prefix, this] as const]) {
      for (const name of module.bufferNames.keys()) {
        const value = valueAt(module, name);
        if (!(value instanceof Tensor) || seen.has(value)) continue;
        seen.add(value);
        yield [join(path, name), value];
      }
    }
  }

  /** The buffers of this module and its submodules, each once. */
  *buffers(options: WalkOptions = {}): Generator<Tensor> {
    for (const [, buffer] of this.namedBuffers('', options)) yield buffer;
  }

  /**
   * The module at a dotted path; say which kind it is to call it. @throws ArgumentError if there is
   * none
   */
  getSubmodule<M extends AnyModule = Module>(path: string): M {
    if (typeof path !== 'string') throw unexpected('getSubmodule', 'path', 'a string', path);
    let module: AnyModule = this;
    for (const name of path === '' ? [] : path.split('.')) {
      const next = valueAt(module, name);
      if (!(next instanceof Module))
        throw new ArgumentError(
          `getSubmodule: no module at "${path}": ${describeModule(module, 0)} has no child "${name}"`,
          { path },
        );
      module = next;
    }
    return module as unknown as M;
  }

  /** The parameter at a dotted path. @throws ArgumentError if there is none */
  getParameter(path: string): Parameter {
    const [owner, name] = this.ownerOf(path);
    const value = valueAt(owner, name);
    if (!(value instanceof Parameter))
      throw new ArgumentError(`getParameter: no parameter at "${path}"`, { path });
    return value;
  }

  /** The buffer at a dotted path. @throws ArgumentError if there is none */
  getBuffer(path: string): Tensor {
    const [owner, name] = this.ownerOf(path);
    const value = valueAt(owner, name);
    if (!owner.bufferNames.has(name) || !(value instanceof Tensor))
      throw new ArgumentError(`getBuffer: no buffer at "${path}"`, { path });
    return value;
  }

  private ownerOf(path: string): [AnyModule, string] {
    if (typeof path !== 'string')
      throw unexpected('getParameter and getBuffer', 'path', 'a string', path);
    const dot = path.lastIndexOf('.');
    return [this.getSubmodule<AnyModule>(dot < 0 ? '' : path.slice(0, dot)), path.slice(dot + 1)];
  }

  /** Parameters and persistent buffers by dotted name, sharing memory with the module. */
  stateDict(options: StateDictOptions = {}): StateDict {
    const { prefix = '', keepVars = false } = optionsOf('stateDict', options, 'prefix keepVars');
    return collectState(this, prefix, keepVars);
  }

  /**
   * Copies values into parameters and buffers.
   *
   * @throws CheckpointError listing missing and unexpected names (unless `strict` is false) and
   * wrong shapes
   */
  loadStateDict(
    state: StateDict | ReadonlyMap<string, Tensor>,
    ...strict: ArgumentsOf<typeof strictArguments>
  ): LoadResult {
    return loadState(this, state, strictArguments(...strict));
  }

  /**
   * Moves and converts all parameters and buffers, in place; only floating ones change dtype.
   * Returns the module.
   */
  to(target: DTypeLike | DeviceName | Device | ModuleTarget): this {
    const { dtype, device } = moduleTarget(target);
    return this.convertTensors((t) =>
      t.to({
        ...(dtype && t.dtype.isFloatingPoint ? { dtype } : {}),
        ...(device ? { device } : {}),
      }),
    );
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

  /** Sets the training flag of this module and all below. */
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

  /** Drops the gradients of all parameters, or sets them to zero. */
  zeroGrad(...args: ArgumentsOf<typeof zeroGradArguments>): void {
    const setToNone = zeroGradArguments(...args);
    for (const parameter of this.parameters()) {
      if (setToNone) setGrad(parameter, null);
      else parameter.gradTensor?.detach().zero_();
    }
  }

  /** Calls `fn` on every module, children first. */
  apply(fn: (module: AnyModule) => void): this {
    checkFunction('apply', 'fn', fn);
    for (const child of this.children()) child.apply(fn);
    fn(this);
    return this;
  }

  /** Runs before forward; may return other arguments (an array). */
  registerForwardPreHook(hook: ForwardPreHook<this, Args>, options?: HookOptions): HookHandle {
    return addHook(this.hooks.forwardPre, hook as never, options);
  }

  /** Runs after forward; may return another result. */
  registerForwardHook(hook: ForwardHook<this, Args, Result>, options?: HookOptions): HookHandle {
    return addHook(this.hooks.forward, hook as never, options);
  }

  /** Runs when the gradients of the module's outputs are known; may return replacements. */
  registerFullBackwardPreHook(hook: BackwardPreHook<this>, options?: HookOptions): HookHandle {
    return addHook(this.hooks.backwardPre, hook as never, options);
  }

  /**
   * Runs when the gradients of the module's inputs are known, after its parameters' `.grad` is set;
   * may return replacements.
   */
  registerFullBackwardHook(hook: BackwardHook<this>, options?: HookOptions): HookHandle {
    return addHook(this.hooks.backward, hook as never, options);
  }

  /** Extra facts in the printed form, such as sizes. */
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

  private convertTensors(convert: (t: Tensor) => Tensor): this {
    noGrad(() => {
      for (const t of [...this.parameters(), ...this.buffers()]) {
        for (const each of [t, t.gradTensor]) {
          if (each === null) continue;
          const seen = each.detach();
          const converted = convert(seen);
          if (converted.storage !== each.storage) swapData(each, converted);
          // Temporaries let go of the memory, so that the old one goes now and the new one is the
          // module's alone.
          if (converted !== seen) converted.dispose();
          seen.dispose();
        }
      }
    });
    return this;
  }
}

function moduleTarget(target: DTypeLike | DeviceName | Device | ModuleTarget): {
  dtype?: DType;
  device?: DeviceName | Device;
} {
  const given: ModuleTarget | null =
    dtypeOrDevice(target) ?? (typeof target === 'object' ? (target as ModuleTarget | null) : null);
  if (given === null)
    throw unexpected('to', 'target', 'a dtype, a device, or an object of both', target);
  const { dtype, ...place } = optionsOf('to', given, 'dtype device');
  return { ...place, ...(dtype === undefined ? {} : { dtype: dtypeOf(dtype, 'to') }) };
}

function valueAt(module: AnyModule, name: string): unknown {
  return (module as unknown as Record<string, unknown>)[name];
}

function hide(target: object, key: string, value: unknown): void {
  Object.defineProperty(target, key, {
    value,
    writable: true,
    configurable: true,
    enumerable: false,
  });
}

function join(prefix: string, name: string): string {
  return prefix === '' ? name : `${prefix}.${name}`;
}
