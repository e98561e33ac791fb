/** Which objects are data: made by a literal, not by a class. */

/** Whether a value is a plain object: its prototype is `Object.prototype`. */
export function isPlain(value: unknown): value is Record<string, unknown> {
  return (
    typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype
  );
}
