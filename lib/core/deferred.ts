/**
 * Ops that are recorded and have not run yet. Whatever is no op, and reads, writes or frees memory
 * or orders work on streams, runs them first.
 */

/** @internal */
export const deferred: {
  /**
   * Runs all such ops; null while there are none. `compile` sets it. `why`: what needs them, for
   * reports; null if it is no event of the program.
   */
  run: ((why: string | null) => void) | null;
} = { run: null };

/** Runs the ops that have not run yet; `why` as above. @internal */
export function runDeferred(why: string | null = 'memory was read, freed or replaced'): void {
  if (deferred.run !== null) deferred.run(why);
}
