/**
 * Generators of the library. A capture lets them run, because each begins and ends within one call
 * of the library; any other generator may go on from a call to the next.
 */

const iterating = new WeakSet<object>();

/** Marks a generator function, or a method that is one, as the library's. */
export function markLibraryGenerator(fn: { readonly prototype: object }): void {
  iterating.add(fn.prototype);
}

/** Whether a function of the library made the generator. */
export function isLibraryGenerator(generator: object): boolean {
  const prototype = Object.getPrototypeOf(generator) as object | null;
  return prototype !== null && iterating.has(prototype);
}
