/** Which objects are data, made by a literal, and which instances a compiler need not look into. */

/** Whether a value is a plain object: its prototype is `Object.prototype`. */
export function isPlain(value: unknown): value is Record<string, unknown> {
  return (
    typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype
  );
}

/** Whether a value has an identity: an object or a function. */
export const isObject = (value: unknown): value is object =>
  (typeof value === 'object' && value !== null) || typeof value === 'function';

/** A copy of arrays and plain objects at any depth. All else in them stays as it is. */
export function copyOfPlain(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(copyOfPlain);
  if (!isPlain(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, copyOfPlain(item)]));
}

/**
 * Marks the class of instances that stay what they were made as; their fields are caches and
 * counters. Guards of compiled functions compare only their identity.
 */
export const UNCHANGING = Symbol('unchanging');

/** Whether a value is an instance of a class marked by {@link UNCHANGING}. */
export function isUnchanging(value: object): boolean {
  return UNCHANGING in value;
}
