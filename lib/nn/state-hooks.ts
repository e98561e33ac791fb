/**
 * Hooks around `stateDict` and `loadStateDict`. They are few, so modules have no fields for them.
 */
import type { HookHandle } from '../autograd/node.js';
import { ArgumentError } from '../core/errors.js';
import { describe } from '../ops/operand.js';
import type { AnyModule } from './module.js';
import { addHook } from './module-hooks.js';
import type { LoadResult, StateDict } from './state-dict.js';

// Hooks of a class of modules must be accepted for it; see the types in module-hooks.ts.
type Marked = { readonly name?: string };

/** The argument of {@link Module.registerStateDictPreHook}. */
export type StateDictPreHook<M> = {
  hook(module: M, prefix: string, keepVars: boolean): void;
}['hook'] &
  Marked;
/** The argument of {@link Module.registerStateDictHook}. */
export type StateDictHook<M> = {
  hook(module: M, state: StateDict, prefix: string): void;
}['hook'] &
  Marked;
/** The argument of {@link Module.registerLoadStateDictPreHook}. */
export type LoadStateDictPreHook<M> = {
  hook(module: M, state: StateDict, prefix: string, report: LoadStateDictReport): void;
}['hook'] &
  Marked;
/** The argument of {@link Module.registerLoadStateDictPostHook}. */
export type LoadStateDictPostHook<M> = {
  hook(module: M, result: LoadResult): void;
}['hook'] &
  Marked;

/** What a hook before a load sees, and may add to. */
export interface LoadStateDictReport extends LoadResult {
  /** Whether missing and unexpected names are an error. */
  readonly strict: boolean;
  /** Lines of the error that the load throws; it then changes no tensor. */
  readonly errors: string[];
}

/** @internal */
export interface StateHooks {
  readonly statePre: Map<number, StateDictPreHook<AnyModule>>;
  readonly state: Map<number, StateDictHook<AnyModule>>;
  readonly loadPre: Map<number, LoadStateDictPreHook<AnyModule>>;
  readonly loadPost: Map<number, LoadStateDictPostHook<AnyModule>>;
}

const hooks = new WeakMap<AnyModule, StateHooks>();

/** The hooks of a module; null if it has never had one. */
export function stateHooksOf(module: AnyModule): StateHooks | null {
  return hooks.get(module) ?? null;
}

export function addStateHook(module: AnyModule, kind: keyof StateHooks, hook: unknown): HookHandle {
  let own = hooks.get(module);
  if (own === undefined) {
    own = { statePre: new Map(), state: new Map(), loadPre: new Map(), loadPost: new Map() };
    hooks.set(module, own);
  }
  return addHook(own[kind] as Map<number, unknown>, hook);
}

/** Hooks change what they are given. @throws ArgumentError for one that returns something */
export function checkNothing(op: string, returned: unknown): void {
  if (returned === undefined) return;
  throw new ArgumentError(
    `${op}: expected the hook to return nothing, got ${describe(returned)}. It changes the state ` +
      'that it is given.',
    { op },
  );
}
