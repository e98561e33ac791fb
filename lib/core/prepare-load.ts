/**
 * How objects of the library take a state over in two steps, so that a load of several objects
 * changes none of them if one refuses its state.
 */

/**
 * Checks a state and returns what takes it over and cannot fail. Null if only `loadStateDict` shows
 * whether the state fits: the program overrides it, or has hooks that run after it.
 *
 * @internal
 */
export const PREPARE_LOAD: unique symbol = Symbol('prepareLoad');

/** @internal */
export interface PreparesLoad {
  [PREPARE_LOAD](state: never): (() => void) | null;
}
