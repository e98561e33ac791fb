/** Collects and loads the states of modules. */
import { noGrad } from '../autograd/grad-mode.js';
import { CheckpointError } from '../core/errors.js';
import { markLibraryGenerator } from '../core/library-generators.js';
import { checkFlag, unexpected } from '../core/options.js';
import { keep } from '../core/scope.js';
import { formatShape, type Shape, sameShape } from '../core/shape.js';
import { defineArguments } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { requireTensor } from '../ops/operand.js';
import { members, prefixOf, valueAt } from './members.js';
import type { AnyModule } from './module.js';
import { Parameter } from './parameter.js';
import {
  checkNothing,
  type LoadStateDictReport,
  type StateHooks,
  stateHooksOf,
} from './state-hooks.js';

/**
 * Tensors by dotted name, in the order of the module tree. As in any object, names that are whole
 * numbers come first.
 */
export type StateDict = Record<string, Tensor>;

/** The result of `loadStateDict`: names that did not match. */
export interface LoadResult {
  /** Names of the module that the state does not have. */
  missingKeys: string[];
  /** Names of the state that the module does not have. */
  unexpectedKeys: string[];
}

/** The parameters and persistent buffers of one module, without those of its children. */
function* ownEntries(module: AnyModule): Generator<[string, Tensor]> {
  for (const [name, value] of members(module)) if (value instanceof Parameter) yield [name, value];
  for (const [name, persistent] of module.bufferNames) {
    const value = valueAt(module, name) as Tensor | null;
    if (persistent && value) yield [name, value];
  }
}
markLibraryGenerator(ownEntries);

/** Options of {@link Module.stateDict}. */
export interface StateDictOptions {
  /** Prefix of every name. */
  prefix?: string;
  /** Return the parameters themselves instead of detached tensors on their memory. */
  keepVars?: boolean;
}

/** The arguments of `loadStateDict` after the state. @internal */
export const loadArguments = defineArguments(
  'loadStateDict(strict, assign)',
  (strict = true, assign = false): LoadOptions => {
    checkFlag('loadStateDict', 'strict', strict);
    checkFlag('loadStateDict', 'assign', assign);
    return { strict, assign };
  },
);

interface LoadOptions {
  readonly strict: boolean;
  readonly assign: boolean;
}

/** A shared parameter or buffer appears under each of its names. */
export function collectState(module: AnyModule, prefix: string, keepVars: boolean): StateDict {
  const state: StateDict = {};
  collectInto(state, module, prefix, keepVars);
  return state;
}

function collectInto(state: StateDict, module: AnyModule, prefix: string, keepVars: boolean): void {
  const hooks = stateHooksOf(module);
  for (const hook of hooks?.statePre.values() ?? [])
    checkNothing('registerStateDictPreHook', hook(module, prefix, keepVars));
  for (const [name, t] of ownEntries(module)) state[prefix + name] = keepVars ? t : t.detach();
  for (const [name, child] of module.namedChildren())
    collectInto(state, child, prefixOf(prefix, name), keepVars);
  for (const hook of hooks?.state.values() ?? [])
    checkNothing('registerStateDictHook', hook(module, state, prefix));
}

/** The child that a name belongs to: by its first part, or the one that the module wraps. */
function childOf(name: string, children: ReadonlyMap<string, AnyModule>): string | null {
  const dot = name.indexOf('.');
  const first = dot < 0 ? '' : name.slice(0, dot);
  if (children.has(first)) return first;
  return children.has('') ? '' : null;
}

/** A parameter or buffer and the tensor that it is loaded from. */
interface Target {
  readonly module: AnyModule;
  readonly name: string;
  readonly key: string;
  readonly own: Tensor;
  readonly source: Tensor;
}

/**
 * One load. The hooks before it run in all modules, then the whole state is checked, and only then
 * are values copied: a state that does not fit changes nothing.
 */
class Loading implements LoadStateDictReport {
  readonly missingKeys: string[] = [];
  readonly unexpectedKeys: string[] = [];
  readonly errors: string[] = [];
  readonly strict: boolean;
  private readonly assign: boolean;
  private readonly targets: Target[] = [];
  private readonly shapes = new Map<string, Shape>();
  /** In the order in which they run: those of children first. */
  private readonly postHooks: (() => unknown)[] = [];

  constructor({ strict, assign }: LoadOptions) {
    this.strict = strict;
    this.assign = assign;
  }

  /** Runs the hooks of a module and of those below, and finds the source of each of its tensors. */
  collect(module: AnyModule, given: ReadonlyMap<string, Tensor>, prefix: string): void {
    const hooks = stateHooksOf(module);
    const state = hooks === null ? given : this.runPreHooks(hooks, module, given, prefix);
    const own = new Map(ownEntries(module));
    const children = new Map(module.namedChildren());
    for (const [name, t] of own) this.addTarget(module, name, prefix + name, t, state);
    const below = this.split(state, prefix, own, children);
    for (const [name, child] of children)
      this.collect(child, below.get(name) ?? new Map(), prefixOf(prefix, name));
    for (const hook of hooks?.loadPost.values() ?? [])
      this.postHooks.push(() => hook(module, this.result));
  }

  /** Copies or assigns what was collected, unless the state does not fit. */
  load(kind: string): LoadResult {
    const isKnown = (): boolean => !this.strict || this.unmatched().length === 0;
    if (this.errors.length === 0 && (isKnown() || this.postHooks.length > 0)) this.write();
    for (const hook of this.postHooks) checkNothing('registerLoadStateDictPostHook', hook());
    this.requireFit(kind);
    return this.result;
  }

  /** Whether hooks run after the load, and may change what fits. */
  get hasPostHooks(): boolean {
    return this.postHooks.length > 0;
  }

  /** @throws CheckpointError if names or shapes of the state are not those of the module */
  requireFit(kind: string): void {
    const problems = [...(this.strict ? this.unmatched() : []), ...this.errors];
    if (problems.length > 0)
      throw new CheckpointError(
        `loadStateDict: the state does not fit ${kind}:\n  ${problems.join('\n  ')}`,
        { missingKeys: this.missingKeys, unexpectedKeys: this.unexpectedKeys },
      );
  }

  private get result(): LoadResult {
    return { missingKeys: this.missingKeys, unexpectedKeys: this.unexpectedKeys };
  }

  private runPreHooks(
    hooks: StateHooks,
    module: AnyModule,
    given: ReadonlyMap<string, Tensor>,
    prefix: string,
  ): ReadonlyMap<string, Tensor> {
    if (hooks.loadPre.size === 0) return given;
    const state: StateDict = Object.fromEntries(given);
    for (const hook of hooks.loadPre.values())
      checkNothing('registerLoadStateDictPreHook', hook(module, state, prefix, this));
    const changed = new Map(Object.entries(state));
    for (const [key, t] of changed) requireTensor(t, 'loadStateDict', key);
    return changed;
  }

  private addTarget(
    module: AnyModule,
    name: string,
    key: string,
    own: Tensor,
    state: ReadonlyMap<string, Tensor>,
  ): void {
    const source = state.get(key);
    this.shapes.set(key, (source ?? own).sizes);
    if (source === undefined) {
      this.missingKeys.push(key);
      return;
    }
    const problem = problemOf(own, source, this.assign);
    if (problem === null) this.targets.push({ module, name, key, own, source });
    else this.errors.push(`${key}: ${problem}`);
  }

  /**
   * The states of the children by name. What belongs to no child and no tensor is unexpected,
   * unless the module wraps another one, which then gets it.
   */
  private split(
    state: ReadonlyMap<string, Tensor>,
    prefix: string,
    own: ReadonlyMap<string, Tensor>,
    children: ReadonlyMap<string, AnyModule>,
  ): Map<string, Map<string, Tensor>> {
    const below = new Map<string, Map<string, Tensor>>();
    for (const [key, t] of state) {
      const rest = key.startsWith(prefix) ? key.slice(prefix.length) : null;
      const child = rest === null || own.has(rest) ? null : childOf(rest, children);
      if (child !== null) {
        const states = below.get(child) ?? new Map<string, Tensor>();
        below.set(child, states.set(key, t));
      } else if (rest === null || !own.has(rest)) {
        this.unexpectedKeys.push(key);
        this.shapes.set(key, t.sizes);
      }
    }
    return below;
  }

  private unmatched(): string[] {
    const listed = (names: readonly string[]): string =>
      names.map((name) => `${name}${shapeText(this.shapes.get(name))}`).join(', ');
    return [
      ...(this.missingKeys.length > 0 ? [`missing: ${listed(this.missingKeys)}`] : []),
      ...(this.unexpectedKeys.length > 0 ? [`unexpected: ${listed(this.unexpectedKeys)}`] : []),
    ];
  }

  private write(): void {
    if (this.assign) assignAll(this.targets);
    else
      noGrad(() => {
        for (const { own, source } of this.targets) own.copy_(shardedLike(own, source));
      });
  }
}

/** A hook may have added the name or changed it, and then the shape is not known. */
function shapeText(shape: Shape | undefined): string {
  return shape === undefined ? '' : ` ${formatShape(shape)}`;
}

/** Why a tensor cannot be loaded from another one; null if it can. */
function problemOf(own: Tensor, source: Tensor, assign: boolean): string | null {
  if (!sameShape(source.sizes, own.sizes))
    return (
      `the checkpoint has shape ${formatShape(source.sizes)}, the module ` +
      `${formatShape(own.sizes)}`
    );
  if (!assign && own.isMeta && !source.isMeta)
    return (
      'the module is on meta and has no memory to copy to; pass { assign: true }, or call ' +
      'toEmpty({ device }) first'
    );
  if (!assign && !own.isMeta && source.isMeta)
    return 'the checkpoint is on meta and has no values; load it onto a device with memory';
  if (assign && own.sharding !== null && source.sharding === null)
    return (
      `expected a distributed tensor to assign to one placed as ${own.sharding.spec}, got a ` +
      'plain one; distribute it, or leave out assign'
    );
  return null;
}

/**
 * Puts the tensors of the state in the place of parameters and buffers. A parameter that the module
 * has under several names stays one if all of them get the same memory.
 */
function assignAll(targets: readonly Target[]): void {
  const assigned = new Map<Tensor, Tensor>();
  for (const { module, name, own, source } of targets) {
    const known = assigned.get(own);
    const next = known?.isSetTo(source) ? known : replacement(own, source);
    assigned.set(own, next);
    (module as unknown as Record<string, unknown>)[name] = next;
  }
}

function replacement(own: Tensor, source: Tensor): Tensor {
  if (!(own instanceof Parameter)) return keep(source);
  if (!(source instanceof Parameter)) return new Parameter(source.detach(), own.requiresGrad);
  return source.requiresGrad_(own.requiresGrad);
}

/**
 * Converts a plain tensor to a distributed one, or back, to match the module. Every rank must load
 * the same state.
 */
function shardedLike(t: Tensor, source: Tensor): Tensor {
  if (t.sharding === null)
    return source.sharding === null ? source : source.sharding.full('loadStateDict');
  return source.sharding === null ? t.sharding.replicated(source.detach()) : source;
}

type GivenState = StateDict | ReadonlyMap<string, Tensor>;

export function loadState(module: AnyModule, given: GivenState, options: LoadOptions): LoadResult {
  return collected(module, given, options).load(kindOf(module));
}

/**
 * Checks a state and returns what copies it. Null if hooks of the module run after a load, because
 * they may refuse it.
 */
export function prepareState(module: AnyModule, given: GivenState): (() => void) | null {
  const loading = collected(module, given, loadArguments());
  if (loading.hasPostHooks) return null;
  loading.requireFit(kindOf(module));
  return () => void loading.load(kindOf(module));
}

const kindOf = (module: AnyModule): string =>
  Object.getPrototypeOf(module).constructor.name as string;

function collected(module: AnyModule, given: GivenState, options: LoadOptions): Loading {
  if (typeof given !== 'object' || given === null)
    throw unexpected('loadStateDict', 'state', 'an object or a map of tensors by name', given);
  const state =
    given instanceof Map ? (given as ReadonlyMap<string, Tensor>) : new Map(Object.entries(given));
  for (const [name, t] of state) requireTensor(t, 'loadStateDict', String(name));
  const loading = new Loading(options);
  loading.collect(module, state, '');
  return loading;
}
