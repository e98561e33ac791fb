/**
 * The open scopes and the storages that they own. Separate from scope.ts, because tensors and
 * storages import it.
 */
import { runDeferred } from './deferred.js';
import { hooks } from './hooks.js';
import { releaseAll, type Storage } from './storage.js';
import type { Tensor } from './tensor.js';

/** A region that frees its storages at its end. @internal */
export class Scope {
  parent: Scope | null;
  readonly storages: Storage[] = [];
  /** Whether a backward pass opened it. Backward frees gradients right after their use. */
  readonly ofBackward: boolean;
  private mostMoved = 64;

  constructor(parent: Scope | null, ofBackward: boolean) {
    this.parent = parent;
    this.ofBackward = ofBackward;
  }

  /**
   * Takes over a storage of another scope. Removes freed ones, which would accumulate in a
   * long-lived scope.
   */
  take(storage: Storage): void {
    const { storages } = this;
    storage.scope = this;
    storage.ownedByTensors = false;
    storages.push(storage);
    // A running backward pass knows positions in the list.
    if (this.ofBackward || storages.length < this.mostMoved) return;
    let count = 0;
    for (const each of storages)
      if (each.scope === this && each.handle !== 0) storages[count++] = each;
    storages.length = count;
    this.mostMoved = Math.max(64, 2 * count);
  }

  /** Moves a storage of a backward pass to the open scope of the program, or to the collector. */
  handOut(storage: Storage): void {
    let owner = this.parent;
    while (owner?.ofBackward === true) owner = owner.parent;
    moveTo(storage, owner);
  }
}

/** The innermost open scope; read on the hot path, so a plain variable. @internal */
export let currentScope: Scope | null = null;

/**
 * The same for code in another file of the package, where an imported variable is a constant.
 * @internal
 */
export const innermostScope = (): Scope | null => currentScope;

/** As many storages as scopes free in a fraction of a millisecond. */
const MANY_FREED = 64;
let freed = 0;

/** @internal */
export function openScope(ofBackward = false): Scope {
  if (freed >= MANY_FREED && currentScope === null && !ofBackward) {
    // Not when that scope ended: its function, and so its graph, was still on the stack then.
    freed = 0;
    hooks.memory.startStep();
  }
  currentScope = new Scope(currentScope, ofBackward);
  return currentScope;
}

/**
 * Takes a scope out of the stack, open as it is. Nothing moves to the scope around it at its end,
 * which may be over by then. @internal
 */
export function leaveScope(scope: Scope): void {
  let inner = currentScope === scope ? null : currentScope;
  while (inner !== null && inner.parent !== scope) inner = inner.parent;
  if (inner !== null) inner.parent = scope.parent;
  else if (currentScope === scope) currentScope = scope.parent;
  scope.parent = null;
}

/**
 * Runs user code that the library calls while a scope of the library is open. Tensors created there
 * belong to the garbage collector. @internal
 */
export function outsideScopes<T>(fn: () => T): T {
  const suspended = currentScope;
  currentScope = null;
  try {
    return fn();
  } finally {
    currentScope = suspended;
  }
}

/** @internal */
export function setScope(scope: Scope | null): void {
  currentScope = scope;
}

/** Storages that `fn` returned from a scope, with the returned tensors that view each. @internal */
export type KeptStorages = Map<Storage, Set<Tensor>>;

/**
 * Ends a scope. Held or kept storages move to its parent; the rest is freed in one call. @internal
 */
export function closeScope(scope: Scope, kept: KeptStorages | null): void {
  runDeferred('a scope ended');
  currentScope = scope.parent;
  const dead: Storage[] = [];
  for (const storage of scope.storages) {
    if (storage.scope !== scope || storage.handle === 0) continue;
    if (storage.retains > 0) {
      // Of what only the graph needs, tensors of the scope are no owners any more.
      if (storage.saves === storage.retains && !storage.exposed && kept?.has(storage) !== true) {
        storage.refs = storage.retains;
        storage.ofGraphs = true;
      }
      moveTo(storage, scope.parent);
    } else if (kept?.has(storage))
      keepFor(storage, kept.get(storage) as ReadonlySet<Tensor>, scope.parent);
    else dead.push(storage);
  }
  releaseAll(dead, dead.length);
  for (const storage of dead) storage.markFreed('its scope ended');
  freed += dead.length;
}

/** Keeps a returned storage; tensors on it that were not returned no longer count as owners. */
function keepFor(storage: Storage, tensors: ReadonlySet<Tensor>, owner: Scope | null): void {
  const areAll = storage.refs === tensors.size;
  storage.refs = tensors.size;
  if (owner === null && areAll && ![...tensors].some(isKeptElsewhere)) storage.escapeTo(tensors);
  else moveTo(storage, owner);
}

/** Whether the library keeps the tensor itself, and not only its memory. */
const isKeptElsewhere = (t: Tensor): boolean => t.leafRequiresGrad || t.sharding !== null;

function moveTo(storage: Storage, owner: Scope | null): void {
  if (storage.scope === owner) return;
  if (owner !== null) owner.take(storage);
  else storage.escape();
}

/** Makes the innermost open scope the owner of a storage, which it frees at its end. @internal */
export function adopt(storage: Storage): void {
  moveTo(storage, currentScope);
}

/**
 * Moves a storage out to the scope of an older object that now owns it, or to the collector if that
 * object is in no scope. @internal
 */
export function outliveScope(storage: Storage, owner: Scope | null): void {
  let scope = storage.scope;
  while (scope !== null && scope !== owner) scope = scope.parent;
  if (scope === owner) moveTo(storage, owner);
}
