/**
 * Hooks that the library makes anew for each forward pass. A captured backward pass holds for later
 * ones, whose hooks are other closures that do the same.
 */

/** What a hook of the library does. @internal */
export interface MadeHook {
  /** Hooks with equal facts do the same; compared as `sameStructure` does. */
  readonly facts: () => readonly unknown[];
  /** Hooks of one owner share its state. */
  readonly owner: object;
  /** The module whose hooks it runs. */
  readonly module: object;
}

const made = new WeakMap<object, MadeHook>();

/** Says what a hook does that was made for one forward pass. Returns the hook. @internal */
export function describeHook<F extends object>(hook: F, does: MadeHook): F {
  made.set(hook, does);
  return hook;
}

/** What a hook of the library does; undefined for others. @internal */
export function madeHookOf(hook: object): MadeHook | undefined {
  return made.get(hook);
}
