/**
 * Counts the changes of modules that the library sees: members that are added, hooks, the training
 * flag. While the counts stay, guards of compiled functions need not look at these again.
 */

/** The key of a module's own count. @internal */
export const CHANGES: unique symbol = Symbol('changes');

/** The changes of all modules. @internal */
export const moduleChanges: { count: number } = { count: 0 };

/** Counts a change of the module. Objects that are not modules have no count. @internal */
export function countChange(module: object): void {
  if (!Object.hasOwn(module, CHANGES)) return;
  (module as { [CHANGES]: number })[CHANGES]++;
  moduleChanges.count++;
}

/**
 * The end of the prototype chain of modules. An assignment that adds a property gets here, because
 * no object before has the name, and counts as a change.
 *
 * @internal
 */
export const countingPrototype: object = new Proxy(Object.prototype, {
  set(target, name, value, receiver): boolean {
    countChange(receiver as object);
    return Reflect.set(target, name, value, receiver);
  },
});
