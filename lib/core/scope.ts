/** Scopes free the tensors that were created inside and not returned, at a known time. */
import { ArgumentError } from './errors.js';
import { layers } from './hooks.js';
import { checkFlag, checkFunction, checkSynchronous, optionsOf, unexpected } from './options.js';
import {
  adopt,
  closeScope,
  currentScope,
  type KeptStorages,
  leaveScope,
  openScope,
  type Scope,
  setScope,
} from './scope-stack.js';
import { FAKE_HANDLE } from './storage.js';
import { Tensor } from './tensor.js';
import { tensorsWithin } from './tree.js';

/**
 * A scope that {@link scope} opened without a function; disposing of it frees the tensors created
 * since.
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
      // The stack belongs to another part of the program now; its scopes stay open.
      closeScope(this.opened, null);
      setScope(before);
      return;
    }
    while (currentScope !== this.opened && currentScope !== null) closeScope(currentScope, null);
    closeScope(this.opened, null);
  }

  /**
   * Tensors created from now on belong to the scope around it again. Those in this scope stay until
   * `dispose()`, also beyond the end of the scope around it.
   *
   * @example
   * const opened = scope();
   * const inside = ones([2]);
   * opened.leave();
   * const outside = ones([2]);
   * opened.dispose();
   * outside.tolist(); // [1, 1]
   */
  leave(): void {
    if (!this.ended) leaveScope(this.opened);
  }

  /** Ends the scope, and gives what it would free to the innermost open one, or the collector. */
  join(): void {
    if (this.ended) return;
    this.ended = true;
    leaveScope(this.opened);
    for (const storage of this.opened.storages)
      if (storage.scope === this.opened && storage.handle !== 0) adopt(storage);
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}

/**
 * Runs `fn` and frees the memory of every tensor created inside, except those it returns (alone, or
 * in arrays, objects, maps and sets), those kept with {@link keep}, parameters' gradients, and
 * values that a live autograd graph needs.
 *
 * `fn` must be synchronous: tensors that other code creates during an `await` would belong to the
 * scope too.
 *
 * @throws ArgumentError if `fn` returns a promise.
 * @example
 * const mean = scope(() => {
 *   const loss = model(x).mean();
 *   loss.backward();
 *   return loss.detach();
 * }); // all but the result is freed
 * mean.shape; // []
 */
export function scope<T>(fn: () => T): T;
/**
 * Opens a scope that ends with the block: `using _ = scope();`. Pass tensors that must outlive it
 * to {@link keep}. As above, do not await while it is open.
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

/** Options of {@link owned}. */
export interface OwnedOptions {
  /**
   * Leave memory alone that `fn` returns but did not create, instead of an error. Default: false.
   */
  allowOthers?: boolean;
}

/**
 * Runs `fn` and makes each tensor that it returns the only owner of its memory. `dispose()` of that
 * tensor frees it, views or not, and `untypedStorage().resize_(0)` frees it until a later
 * `resize_`. No scope, garbage collection or view does. What else `fn` created is freed as in a
 * scope. For buffers that are freed and filled again and again.
 *
 * A tensor that is dropped without `dispose()` is a leak. Where several returned tensors show the
 * same memory, the first owns it. `dispose()` leaves memory to the garbage collector if a function
 * of the program has returned it as a gradient.
 *
 * @throws ArgumentError if `fn` returns a promise, no tensor, or a tensor that it did not create.
 * @example
 * const buffer = memory.owned(() => empty([1024]));
 */
export function owned<T>(fn: () => T, options: OwnedOptions = {}): T {
  checkFunction('memory.owned', 'fn', fn);
  const { allowOthers = false } = optionsOf('memory.owned', options, 'allowOthers');
  checkFlag('memory.owned', 'allowOthers', allowOthers);
  layers.backend.capture?.unsupported('memory.owned() was called');
  const opened = openScope();
  const closeInner = (): void => {
    while (currentScope !== opened && currentScope !== null) closeScope(currentScope, null);
  };
  try {
    const result = fn();
    checkSynchronous('memory.owned', result, 'await outside of it');
    closeInner();
    giveToReturned(result, opened, allowOthers);
    return result;
  } finally {
    closeInner();
    closeScope(opened, null);
  }
}

function giveToReturned(result: unknown, opened: Scope, allowOthers: boolean): void {
  const returned: KeptStorages = new Map();
  findStorages(result, returned);
  if (allowOthers) {
    for (const [storage, [first]] of returned)
      if (storage.scope === opened) storage.giveTo(first as object);
    return;
  }
  if (returned.size === 0)
    throw unexpected('memory.owned', 'what fn returns', 'a tensor, or some in arrays', result);
  for (const storage of returned.keys())
    if (storage.scope !== opened && storage.handle !== FAKE_HANDLE)
      throw new ArgumentError(
        'memory.owned: expected fn to return tensors that it created, got one whose memory was ' +
          'there before, or was passed to keep(). Create it inside, as in memory.owned(() => ' +
          'empty([n])).',
        { op: 'memory.owned' },
      );
  for (const [storage, [first]] of returned) storage.giveTo(first as object);
}

/**
 * Moves a tensor out of the open scope, so that the garbage collector or `dispose` frees it.
 * Returns it.
 */
export function keep<T extends Tensor>(t: T): T {
  if (!(t instanceof Tensor)) throw unexpected('keep', 't', 'a tensor', t);
  t.storage?.escape();
  return t;
}

/** Finds the storages of the tensors that a returned value leads to. */
function findStorages(value: unknown, found: KeptStorages): void {
  for (const result of value instanceof Tensor ? [value] : tensorsWithin(value))
    for (const t of [result, result.gradTensor]) {
      if (!t?.storage) continue;
      const tensors = found.get(t.storage);
      if (tensors === undefined) found.set(t.storage, new Set([t]));
      else tensors.add(t);
    }
}
