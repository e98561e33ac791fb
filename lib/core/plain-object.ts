/** Which objects are data, made by a literal, and which instances a compiler need not look into. */

/** Whether a value is a plain object: its prototype is `Object.prototype`. */
export function isPlain(value: unknown): value is Record<string, unknown> {
  return (
    typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype
  );
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
