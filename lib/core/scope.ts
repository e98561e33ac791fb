/** Scopes free what was made inside and not returned: the deterministic way to manage memory. */
import { ArgumentError } from './errors.js';
import { checkSynchronous } from './options.js';
import { releaseAll, type Storage } from './storage.js';

/** A region whose storages are freed at its end. @internal */
export class Scope {
  readonly parent: Scope | null;
  readonly storages: Storage[] = [];
  /**
   * Opened by a backward pass, which frees gradients as it uses them up; all others are the
   * program's.
   */
  readonly ofBackward: boolean;

  constructor(parent: Scope | null, ofBackward: boolean) {
    this.parent = parent;
    this.ofBackward = ofBackward;
  }

  /**
   * The program gets a storage of a backward pass: it belongs to the scope that the program has
   * open, or to the collector.
   */
  handOut(storage: Storage): void {
    let owner = this.parent;
    while (owner?.ofBackward === true) owner = owner.parent;
    moveTo(storage, owner);
  }
}

/** The innermost open scope; read on the hot path, so a plain variable. @internal */
export let currentScope: Scope | null = null;

/** @internal */
export function openScope(ofBackward = false): Scope {
  currentScope = new Scope(currentScope, ofBackward);
  return currentScope;
}

/** Makes new storages belong to the garbage collector for a while. @internal */
export function suspendScope(): Scope | null {
  const suspended = currentScope;
  currentScope = null;
  return suspended;
}

/** @internal */
export function resumeScope(scope: Scope | null): void {
  currentScope = scope;
}

/** Ends a scope. Held or kept storages move out; the rest is freed in one call. @internal */
export function closeScope(scope: Scope, kept: KeptStorages | null): void {
  currentScope = scope.parent;
  const dead: Storage[] = [];
  for (const storage of scope.storages) {
    if (storage.scope !== scope || storage.handle === 0) continue;
    if (storage.holds > 0) storage.escape();
    else if (kept?.has(storage))
      keepFor(storage, kept.get(storage) as ReadonlySet<object>, scope.parent);
    else dead.push(storage);
  }
  releaseAll(dead, dead.length);
  for (const storage of dead) storage.markFreed('its scope ended');
}

/**
 * Of the tensors that view it, those that were not returned are gone: they count as its owners no
 * more.
 */
function keepFor(storage: Storage, tensors: ReadonlySet<object>, owner: Scope | null): void {
  storage.refs = tensors.size;
  moveTo(storage, owner);
}

function moveTo(storage: Storage, owner: Scope | null): void {
  if (storage.scope === owner) return;
  if (owner) {
    storage.scope = owner;
    owner.storages.push(storage);
  } else storage.escape();
}

/** Makes the innermost open scope the owner of a storage, which it frees at its end. @internal */
export function adopt(storage: Storage): void {
  moveTo(storage, currentScope);
}

/**
 * Gives a storage that now belongs to something older than its scope to that thing's owner: an
 * outer scope, or the collector. @internal
 */
export function outliveScope(storage: Storage, owner: Scope | null): void {
  let scope = storage.scope;
  while (scope !== null && scope !== owner) scope = scope.parent;
  if (scope === owner) moveTo(storage, owner);
}

/**
 * A scope that {@link scope} opened without a function; disposing of it frees what was made since.
 */
export class OpenScope {
  private readonly opened = openScope();
  private ended = false;

  /** Ends the scope, and those opened inside that are still open. A second call does nothing. */
  dispose(): void {
    if (this.ended) return;
    this.ended = true;
    const before = currentScope;
    let inner = before;
    while (inner !== null && inner !== this.opened) inner = inner.parent;
    if (inner === null) {
      // Another part of the program has its own scopes now; they stay.
      closeScope(this.opened, null);
      currentScope = before;
      return;
    }
    while (currentScope !== this.opened && currentScope !== null) closeScope(currentScope, null);
    closeScope(this.opened, null);
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}

/** Storages that outlive a scope, and the returned tensors that view each. @internal */
export type KeptStorages = Map<Storage, Set<object>>;

/**
 * Finds the storages reachable from a returned value: tensors, arrays, plain objects, maps.
 * @internal
 */
export type StorageFinder = (value: unknown, found: KeptStorages) => void;
let findStorages: StorageFinder = () => {};

/** @internal */
export function installStorageFinder(finder: StorageFinder): void {
  findStorages = finder;
}

/**
 * Runs `fn` and frees the memory of every tensor made inside, except those it returns (alone, or in
 * arrays, plain objects, maps), those kept with {@link keep}, parameters' gradients, and values
 * that a live autograd graph needs.
 *
 * `fn` must be synchronous: what runs between the awaits of an asynchronous function would land in
 * the scope too.
 *
 * @throws ArgumentError if `fn` returns a promise.
 * @example
 * const loss = scope(() => { const l = step(batch); l.backward(); return l.detach(); });
 */
export function scope<T>(fn: () => T): T;
/**
 * Opens a scope that ends with the block: `using _ = scope();`. What is to outlive it is passed to
 * {@link keep}. As above, nothing may be awaited while it is open.
 */
export function scope(): OpenScope;
export function scope<T>(fn?: () => T): T | OpenScope {
  if (fn === undefined) return new OpenScope();
  if (typeof fn !== 'function')
    throw new ArgumentError(`scope: expected a function, got ${typeof fn}`, {
      op: 'scope',
      given: typeof fn,
    });
  const opened = openScope();
  let kept: KeptStorages | null = null;
  try {
    const result = fn();
    checkSynchronous('scope', result, 'await outside the scope, or use `using`');
    if (result !== undefined && result !== null && typeof result === 'object') {
      kept = new Map();
      findStorages(result, kept);
    }
    return result;
  } finally {
    while (currentScope !== opened && currentScope !== null) closeScope(currentScope, null);
    closeScope(opened, kept);
  }
}
