/** Hooks of modules, and the call of a module that runs them around `forward` and backward. */
import { Function as AutogradFunction, type FunctionContext } from '../autograd/function.js';
import { isGradEnabled } from '../autograd/grad-mode.js';
import { describeHook } from '../autograd/made-hooks.js';
import type { HookHandle, Node } from '../autograd/node.js';
import { callContext, insideModule } from '../core/call-context.js';
import { ArgumentError } from '../core/errors.js';
import { inRegion, layers } from '../core/hooks.js';
import { type ModuleCall, moduleCalls } from '../core/module-calls.js';
import { countChange } from '../core/module-changes.js';
import { checkFlag, checkFunction, optionsOf } from '../core/options.js';
import { Tensor } from '../core/tensor.js';
import { callLocated } from './locate-error.js';
import type { AnyModule } from './module.js';

type Gradients = readonly (Tensor | null)[];
type Hooks<F> = Map<number, F>;

// Every module must be assignable to AnyModule, so the types of hooks must be bivariant. They are
// declared as methods, whose parameters are, and have a property, without which TypeScript compares
// the parameters of a callback in one direction only.
type Marked = { readonly name?: string };

/** The argument of {@link Module.registerForwardPreHook}. */
export type ForwardPreHook<M, Args> = {
  hook(module: M, args: Args): Args | undefined | void;
}['hook'] &
  Marked;
/** The argument of {@link Module.registerForwardHook}. */
export type ForwardHook<M, Args, Result> = {
  hook(module: M, args: Args, result: Result): Result | undefined | void;
}['hook'] &
  Marked;
/**
 * The argument of {@link Module.registerFullBackwardPreHook}. Outputs are the result, if that is a
 * tensor, or the tensors of an array. Those in other objects are not followed, as in PyTorch: the
 * hook does not run for them.
 */
export type BackwardPreHook<M> = {
  hook(module: M, gradOutput: Gradients): Gradients | undefined | void;
}['hook'] &
  Marked;
/**
 * The argument of {@link Module.registerFullBackwardHook}. Inputs are the arguments that are
 * tensors, outputs as for {@link BackwardPreHook}: the hook runs when backward has come to these.
 */
export type BackwardHook<M> = {
  hook(module: M, gradInput: Gradients, gradOutput: Gradients): Gradients | undefined | void;
}['hook'] &
  Marked;

/** Options of the methods that register hooks. */
export interface HookOptions {
  /** Run before the hooks registered so far. */
  prepend?: boolean;
}

/** Options of {@link Module.registerForwardHook}. */
export interface ForwardHookOptions extends HookOptions {
  /**
   * Run also if a hook or `forward` throws, with `undefined` as the result; the error is thrown
   * after it.
   */
  alwaysCall?: boolean;
}

/** @internal */
export interface ModuleHooks {
  forwardPre: Hooks<(module: AnyModule, args: never[]) => unknown>;
  forward: Hooks<(module: AnyModule, args: never[], result: unknown) => unknown>;
  /** Hooks of `forward` that run also after an error. */
  always: Hooks<(module: AnyModule, args: never[], result: unknown) => unknown>;
  backwardPre: Hooks<(module: AnyModule, gradOutput: Gradients) => Gradients | undefined | void>;
  backward: Hooks<
    (module: AnyModule, gradInput: Gradients, gradOutput: Gradients) => Gradients | undefined | void
  >;
}

export function makeHooks(): ModuleHooks {
  return {
    forwardPre: new Map(),
    forward: new Map(),
    always: new Map(),
    backwardPre: new Map(),
    backward: new Map(),
  };
}

let nextId = 0;

export function addHook<F>(hooks: Hooks<F>, hook: F, options: HookOptions = {}): HookHandle {
  checkFunction('registering a hook', 'hook', hook);
  const { prepend = false } = optionsOf('registering a hook', options, 'prepend');
  const id = nextId++;
  const later = prepend ? [...hooks] : [];
  if (prepend) hooks.clear();
  hooks.set(id, hook);
  for (const [key, value] of later) hooks.set(key, value);
  return { remove: () => void hooks.delete(id) };
}

/** Adds a hook of one kind to a module. */
export function addModuleHook<K extends keyof ModuleHooks>(
  module: AnyModule,
  kind: K,
  hook: ModuleHooks[K] extends Hooks<infer F> ? F : never,
  options: HookOptions = {},
): HookHandle {
  const handle = addHook(module.hooks[kind] as Hooks<unknown>, hook, options);
  countChange(module);
  return {
    remove: () => {
      handle.remove();
      countChange(module);
    },
  };
}

/** @throws ArgumentError for options that are none */
export function addForwardHook(
  module: AnyModule,
  hook: (module: AnyModule, args: never[], result: unknown) => unknown,
  options: ForwardHookOptions = {},
): HookHandle {
  const { alwaysCall = false, ...others } = optionsOf(
    'registerForwardHook',
    options,
    'prepend alwaysCall',
  );
  checkFlag('registerForwardHook', 'alwaysCall', alwaysCall);
  const handle = addModuleHook(module, 'forward', hook, others);
  if (!alwaysCall) return handle;
  const again = addModuleHook(module, 'always', hook, others);
  return {
    remove: () => {
      handle.remove();
      again.remove();
    },
  };
}

/** Calls a module: runs its compiled form if it has one, else its hooks and `forward`. */
export function callModule(module: AnyModule, args: never[]): unknown {
  const { run } = moduleCalls;
  return run === null || module.compiled !== null
    ? callItself(module, args)
    : run(module, args, callItself as ModuleCall);
}

function callItself(module: AnyModule, args: never[]): unknown {
  const run = module.compiled === null ? callWithHooks : callCompiled;
  return callContext.moduleObservers === 0
    ? callLocated(run, module, args)
    : insideModule(module, () => inRegion('module', module, () => callLocated(run, module, args)));
}

function callCompiled(module: AnyModule, args: never[]): unknown {
  return (module.compiled as NonNullable<AnyModule['compiled']>)(...args);
}

/** Runs `forward`, or what stands for it, with the hooks of the module. */
export function callWithHooks(
  module: AnyModule,
  args: never[],
  forward: Forward | null = null,
): unknown {
  if (module.forward === undefined)
    throw new ArgumentError(`${module.constructor.name}: this module has no method forward`, {
      module: module.constructor.name,
    });
  layers.backend.capture?.usesModule(module);
  const { hooks } = module;
  const plain =
    hooks.forwardPre.size === 0 &&
    hooks.forward.size === 0 &&
    hooks.backward.size === 0 &&
    hooks.backwardPre.size === 0;
  if (plain) return runForward(module, args, forward);
  if (hooks.always.size === 0) return runHooks(module, args, [], forward);
  const done: unknown[] = [];
  try {
    return runHooks(module, args, done, forward);
  } catch (error) {
    for (const hook of hooks.always.values())
      if (!done.includes(hook)) hook(module, args, undefined);
    throw error;
  }
}

type Forward = (...args: never[]) => unknown;

const runForward = (module: AnyModule, args: never[], forward: Forward | null): unknown =>
  forward === null ? module.forward(...(args as never)) : forward(...args);

/** Runs `forward` between its hooks; `done` becomes the list of forward hooks that have run. */
function runHooks(
  module: AnyModule,
  args: never[],
  done: unknown[],
  forward: Forward | null,
): unknown {
  const { hooks } = module;
  let given = args;
  for (const hook of hooks.forwardPre.values()) {
    const replaced = hook(module, given);
    if (replaced !== undefined)
      given = (Array.isArray(replaced) ? replaced : [replaced]) as never[];
  }
  const run =
    isGradEnabled() && (hooks.backward.size > 0 || hooks.backwardPre.size > 0)
      ? new HookedCall(module)
      : null;
  if (run !== null) given = run.inputs(given);
  let result: unknown = runForward(module, given, forward);
  for (const hook of hooks.forward.values()) {
    done.push(hook);
    const replaced = hook(module, given, result);
    if (replaced !== undefined) result = replaced;
  }
  return run === null ? result : run.outputs(result);
}

/** Identity with a node of its own, at which backward hooks are registered. */
class IdentityNode extends AutogradFunction {
  static forward(_ctx: FunctionContext, ...tensors: Tensor[]): Tensor[] {
    return tensors.map((t) => t.detach());
  }

  static backward(_ctx: FunctionContext, ...grads: (Tensor | null)[]): (Tensor | null)[] {
    return grads;
  }
}

/** Calls a function that a capture records as one node, because it registers hooks on nodes. */
function asOneCall(
  tensors: readonly Tensor[],
  apply: (tensors: readonly Tensor[]) => readonly Tensor[],
): readonly Tensor[] {
  const fn = {
    name: 'moduleBackwardHooks',
    apply: (...given: readonly unknown[]) => apply(given as readonly Tensor[]),
  };
  const { capture } = layers.backend;
  return capture === null ? apply(tensors) : capture.applies(fn, tensors, () => apply(tensors));
}

/** The positions of the tensors of a list that need gradients. */
const tracked = (list: readonly unknown[]): number[] =>
  list.flatMap((a, i) => (a instanceof Tensor && a.requiresGrad ? [i] : []));

/** The list with other tensors at these positions. */
const replacedAt = (
  list: readonly unknown[],
  at: readonly number[],
  tensors: readonly Tensor[],
): unknown[] => list.map((a, i) => (at.includes(i) ? tensors[at.indexOf(i)] : a));

/** The runs of calls by the first input that they passed on. */
const runs = new WeakMap<Tensor, BackwardHookRun>();

/** Passes the inputs and outputs of one call of a module through nodes with backward hooks. */
class HookedCall {
  private readonly module: AnyModule;
  private firstPassed: Tensor | null = null;

  constructor(module: AnyModule) {
    this.module = module;
  }

  /** Passes the inputs through a node whose gradients the hooks see. */
  inputs(args: never[]): never[] {
    const list: readonly unknown[] = args;
    const at = tracked(list);
    if (at.length === 0) return args;
    const { module } = this;
    const passed = asOneCall(
      at.map((i) => list[i] as Tensor),
      (tensors) => {
        const run = new BackwardHookRun(module, true);
        const results = IdentityNode.apply(...tensors);
        run.watchInputs((results[0] as Tensor).gradFn as Node, at, list.length);
        runs.set(results[0] as Tensor, run);
        return results;
      },
    );
    this.firstPassed = passed[0] as Tensor;
    return replacedAt(list, at, passed) as never[];
  }

  /** Passes the outputs through a node whose gradients the hooks see. */
  outputs(result: unknown): unknown {
    const many = Array.isArray(result);
    const list = (many ? result : [result]) as unknown[];
    const at = tracked(list);
    if (at.length === 0) return result;
    const { module, firstPassed } = this;
    const hasInputNode = firstPassed !== null;
    const given = at.map((i) => list[i] as Tensor);
    const passed = asOneCall(hasInputNode ? [firstPassed, ...given] : given, (tensors) => {
      const run = hasInputNode
        ? runs.get(tensors[0] as Tensor)
        : new BackwardHookRun(module, false);
      const results = IdentityNode.apply(...(hasInputNode ? tensors.slice(1) : tensors));
      run?.watchOutputs((results[0] as Tensor).gradFn as Node);
      return results;
    });
    const spread = replacedAt(list, at, passed);
    return many ? spread : spread[0];
  }
}

/** Runs the backward hooks of one call: first with the outputs' gradients, then the inputs'. */
class BackwardHookRun {
  private readonly module: AnyModule;
  /** Null until backward has come to the outputs: it may reach the inputs past them. */
  private gradOutput: Gradients | null = null;
  private readonly hasInputNode: boolean;

  constructor(module: AnyModule, hasInputNode: boolean) {
    this.module = module;
    this.hasInputNode = hasInputNode;
  }

  /** `at`: the positions of the node's inputs among `count` arguments. */
  watchInputs(node: Node, at: readonly number[], count: number): void {
    const spread = (grads: Gradients): (Tensor | null)[] =>
      Array.from({ length: count }, (_, i) => grads[at.indexOf(i)] ?? null);
    const hook = (gradInputs: Gradients): (Tensor | null)[] | undefined => {
      const replaced = this.afterInputs(spread(gradInputs));
      return replaced === undefined ? undefined : at.map((i) => replaced[i] ?? null);
    };
    node.registerHook(this.described(hook, () => ['inputs', at, count, this.after()]));
  }

  watchOutputs(node: Node): void {
    const hook = (grads: Gradients): Gradients | undefined => this.beforeOutputs(grads);
    const { backwardPre } = this.module.hooks;
    const facts = (): unknown[] => [
      'outputs',
      [...backwardPre.values()],
      this.hasInputNode ? null : this.after(),
    ];
    node.registerPrehook(this.described(hook, facts));
  }

  private described<F extends object>(hook: F, facts: () => readonly unknown[]): F {
    const { module } = this;
    return describeHook(hook, { owner: this, module, facts: () => [module, ...facts()] });
  }

  private after(): unknown[] {
    return [...this.module.hooks.backward.values()];
  }

  private beforeOutputs(grads: Gradients): Gradients | undefined {
    let current = grads;
    for (const hook of this.module.hooks.backwardPre.values())
      current = this.run(() => hook(this.module, current)) ?? current;
    this.gradOutput = current;
    // If no input needs a gradient, there is no later node to run the hooks at.
    if (!this.hasInputNode) this.afterInputs([]);
    return current === grads ? undefined : current;
  }

  private run<R>(hook: () => R): R {
    const { capture } = layers.backend;
    return capture === null ? hook() : capture.runsModuleHook(this.module, hook);
  }

  private afterInputs(gradInput: Gradients): Gradients | undefined {
    const { gradOutput } = this;
    if (gradOutput === null) return undefined;
    this.gradOutput = null;
    let current: Gradients | undefined;
    for (const hook of this.module.hooks.backward.values()) {
      const replaced = this.run(() => hook(this.module, current ?? gradInput, gradOutput));
      if (replaced !== undefined) current = replaced;
    }
    return current;
  }
}
