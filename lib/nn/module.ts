/**
 * Modules: trees of parameters with a forward function. A module is a function object: `model(x)` runs its hooks and `forward`.
 * Parameters, buffers and children are plain properties; assigning one registers it.
 */

import { noGrad } from '../autograd/grad-mode.js';
import type { HookHandle } from '../autograd/node.js';
import type { Device, DeviceName } from '../core/device.js';
import { bfloat16, DType, float16, float32, float64 } from '../core/dtype.js';
import { ArgumentError } from '../core/errors.js';
import { setGrad, swapData, Tensor } from '../core/tensor.js';
import { describeModule } from './describe.js';
import { addHook, callWithHooks, type ModuleHooks, makeHooks } from './module-hooks.js';
import { Parameter } from './parameter.js';
import { collectState, type LoadResult, loadState, type StateDict } from './state-dict.js';

/** A module of any arguments and result. */
// biome-ignore lint/suspicious/noExplicitAny: hooks make the type invariant, and TypeScript has no existential types.
export type AnyModule = Module<any, any>;

/** What `module.to` takes. */
export interface ModuleTarget {
  dtype?: DType;
  device?: DeviceName | Device;
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
  /** True while training; changes what Dropout and its like do. */
  training!: boolean;
  /** @internal */
  readonly hooks!: ModuleHooks;
  /** @internal */
  readonly bufferNames!: Map<string, boolean>;

  constructor() {
    const self = ((...args: Args): Result => callWithHooks(self as unknown as AnyModule, args as unknown as never[]) as Result) as unknown as this;
    Object.setPrototypeOf(self, new.target.prototype);
    // A function's own properties would shadow fields of these names.
    delete (self as { name?: string }).name;
    delete (self as { length?: number }).length;
    hide(self, 'training', true);
    hide(self, 'hooks', makeHooks());
    hide(self, 'bufferNames', new Map<string, boolean>());
    // biome-ignore lint/correctness/noConstructorReturn: this is what makes modules callable.
    return self;
  }

  /** What the module computes; call the module itself, so that hooks run. */
  abstract forward(...args: Args): Result;

  /** Adds a tensor that is part of the state but not trained; with `persistent: false` it is left out of the state dict. */
  registerBuffer(name: string, tensor: Tensor | null, { persistent = true } = {}): void {
    checkName(name);
    this.bufferNames.set(name, persistent);
    (this as Record<string, unknown>)[name] = tensor;
  }

  /** Adds a parameter by name, as assigning the property does. */
  registerParameter(name: string, parameter: Parameter | null): void {
    checkName(name);
    (this as Record<string, unknown>)[name] = parameter;
  }

  /** Adds a child by name, as assigning the property does. */
  registerModule(name: string, module: AnyModule): void {
    checkName(name);
    (this as Record<string, unknown>)[name] = module;
  }

  /** Direct children with their names. */
  *namedChildren(): Generator<[string, AnyModule]> {
    for (const [name, value] of Object.entries(this)) if (value instanceof Module) yield [name, value as unknown as AnyModule];
  }

  *children(): Generator<AnyModule> {
    for (const [, child] of this.namedChildren()) yield child;
  }

  /** This module and all below, each once, with dotted paths; this one's is the prefix. */
  *namedModules(prefix = '', seen: Set<AnyModule> = new Set()): Generator<[string, AnyModule]> {
    const self = this as unknown as AnyModule;
    if (seen.has(self)) return;
    seen.add(self);
    yield [prefix, self];
    for (const [name, child] of this.namedChildren()) yield* child.namedModules(join(prefix, name), seen);
  }

  *modules(): Generator<AnyModule> {
    for (const [, module] of this.namedModules()) yield module;
  }

  /** Parameters with dotted names, each once (a shared one under its first name). */
  *namedParameters(prefix = '', { recurse = true, removeDuplicate = true } = {}): Generator<[string, Parameter]> {
    const seen = new Set<Tensor>();
    for (const [path, module] of recurse ? this.namedModules(prefix) : [[prefix, this as unknown as AnyModule] as const]) {
      for (const [name, value] of Object.entries(module)) {
        if (!(value instanceof Parameter) || (removeDuplicate && seen.has(value))) continue;
        seen.add(value);
        yield [join(path, name), value];
      }
    }
  }

  *parameters({ recurse = true } = {}): Generator<Parameter> {
    for (const [, parameter] of this.namedParameters('', { recurse })) yield parameter;
  }

  /** Buffers with dotted names. */
  *namedBuffers(prefix = '', { recurse = true } = {}): Generator<[string, Tensor]> {
    const seen = new Set<Tensor>();
    for (const [path, module] of recurse ? this.namedModules(prefix) : [[prefix, this as unknown as AnyModule] as const]) {
      for (const name of module.bufferNames.keys()) {
        const value = (module as unknown as Record<string, unknown>)[name];
        if (!(value instanceof Tensor) || seen.has(value)) continue;
        seen.add(value);
        yield [join(path, name), value];
      }
    }
  }

  *buffers(): Generator<Tensor> {
    for (const [, buffer] of this.namedBuffers()) yield buffer;
  }

  /** The module at a dotted path. @throws ArgumentError if there is none */
  getSubmodule(path: string): AnyModule {
    let module = this as unknown as AnyModule;
    for (const name of path === '' ? [] : path.split('.')) {
      const next = (module as unknown as Record<string, unknown>)[name];
      if (!(next instanceof Module)) throw new ArgumentError(`getSubmodule: no module at "${path}": ${describeModule(module, 0)} has no child "${name}"`, { path });
      module = next as unknown as AnyModule;
    }
    return module;
  }

  /** The parameter at a dotted path. @throws ArgumentError if there is none */
  getParameter(path: string): Parameter {
    const dot = path.lastIndexOf('.');
    const owner = this.getSubmodule(dot < 0 ? '' : path.slice(0, dot));
    const value = (owner as unknown as Record<string, unknown>)[path.slice(dot + 1)];
    if (!(value instanceof Parameter)) throw new ArgumentError(`getParameter: no parameter at "${path}"`, { path });
    return value;
  }

  /** Parameters and persistent buffers by dotted name, sharing memory with the module. */
  stateDict(): StateDict {
    return collectState(this as unknown as AnyModule);
  }

  /**
   * Copies values into parameters and buffers.
   *
   * @throws CheckpointError listing missing and unexpected names (unless `strict` is false) and wrong shapes
   */
  loadStateDict(state: StateDict | ReadonlyMap<string, Tensor>, { strict = true } = {}): LoadResult {
    return loadState(this as unknown as AnyModule, state, strict);
  }

  /** Moves and converts all parameters and buffers, in place; only floating ones change dtype. Returns the module. */
  to(target: DType | DeviceName | Device | ModuleTarget): this {
    const { dtype, device } = moduleTarget(target);
    return this.convertTensors((t) => t.to({ ...(dtype && t.dtype.isFloatingPoint ? { dtype } : {}), ...(device ? { device } : {}) }));
  }

  half(): this {
    return this.to(float16);
  }

  bfloat16(): this {
    return this.to(bfloat16);
  }

  float(): this {
    return this.to(float32);
  }

  double(): this {
    return this.to(float64);
  }

  cuda(index = 0): this {
    return this.to(`cuda:${index}`);
  }

  cpu(): this {
    return this.to('cpu');
  }

  /** Sets the training flag of this module and all below. */
  train(mode = true): this {
    for (const module of this.modules()) module.training = mode;
    return this;
  }

  eval(): this {
    return this.train(false);
  }

  /** Turns gradients of all parameters on or off. */
  requiresGrad_(value = true): this {
    for (const parameter of this.parameters()) parameter.requiresGrad_(value);
    return this;
  }

  /** Drops the gradients of all parameters, or sets them to zero. */
  zeroGrad({ setToNone = true } = {}): void {
    for (const parameter of this.parameters()) {
      if (setToNone) setGrad(parameter, null);
      else parameter.gradTensor?.detach().zero_();
    }
  }

  /** Calls `fn` on every module, children first. */
  apply(fn: (module: AnyModule) => void): this {
    for (const child of this.children()) child.apply(fn);
    fn(this as unknown as AnyModule);
    return this;
  }

  /** Runs before forward; may return other arguments (an array). */
  registerForwardPreHook(hook: (module: this, args: Args) => Args | undefined | void): HookHandle {
    return addHook(this.hooks.forwardPre, hook as never);
  }

  /** Runs after forward; may return another result. */
  registerForwardHook(hook: (module: this, args: Args, result: Result) => Result | undefined | void): HookHandle {
    return addHook(this.hooks.forward, hook as never);
  }

  /** Runs when the gradients of the module's outputs are known; may return replacements. */
  registerFullBackwardPreHook(hook: (module: this, gradOutput: readonly (Tensor | null)[]) => readonly (Tensor | null)[] | undefined | void): HookHandle {
    return addHook(this.hooks.backwardPre, hook as never);
  }

  /** Runs when the gradients of the module's inputs are known, after its parameters' `.grad` is set; may return replacements. */
  registerFullBackwardHook(
    hook: (module: this, gradInput: readonly (Tensor | null)[], gradOutput: readonly (Tensor | null)[]) => readonly (Tensor | null)[] | undefined | void,
  ): HookHandle {
    return addHook(this.hooks.backward, hook as never);
  }

  /** Extra facts in the printed form, such as sizes. */
  extraRepr(): string {
    return '';
  }

  toString(): string {
    return describeModule(this as unknown as AnyModule, Number.POSITIVE_INFINITY);
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
          const converted = convert(each.detach());
          if (converted.storage === each.storage) continue;
          swapData(each, converted);
        }
      }
    });
    return this;
  }
}

function moduleTarget(target: DType | DeviceName | Device | ModuleTarget): ModuleTarget {
  if (target instanceof DType) return { dtype: target };
  if (typeof target === 'string' || 'code' in target) return { device: target as DeviceName | Device };
  return target;
}

function hide(target: object, key: string, value: unknown): void {
  Object.defineProperty(target, key, { value, writable: true, configurable: true, enumerable: false });
}

function join(prefix: string, name: string): string {
  return prefix === '' ? name : `${prefix}.${name}`;
}

function checkName(name: string): void {
  if (name === '' || name.includes('.')) throw new ArgumentError(`a parameter, buffer or module name must not be empty or contain a dot, got "${name}"`, { name });
}
