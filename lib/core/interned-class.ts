/** Interns the instances of a class, so that `===` compares them, and lets callers omit `new`. */

/**
 * A class whose instances are interned: called or constructed, it returns the existing instance.
 */
export interface Interned<Args extends readonly unknown[], T> {
  (...args: Args): T;
  new (...args: Args): T;
  readonly prototype: T;
}

/**
 * Makes a class of a function that interns. Under `new`, too, the caller gets the object that the
 * function returns. @internal
 */
export function interned<Args extends readonly unknown[], T>(
  name: string,
  find: (...args: Args) => T,
  prototype: T,
): Interned<Args, T> {
  // Not an arrow function: those have no `new`.
  function callable(...args: Args): T {
    return find(...args);
  }
  Object.defineProperty(callable, 'name', { value: name });
  Object.defineProperty(callable, 'prototype', { value: prototype });
  // Error messages name values by it.
  Object.defineProperty(prototype, 'constructor', { value: callable, configurable: true });
  return callable as unknown as Interned<Args, T>;
}
