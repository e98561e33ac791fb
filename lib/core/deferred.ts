/**
 * Ops that are recorded and have not run yet. Whatever is no op, and reads, writes or frees memory
 * or orders work on streams, runs them first.
 */

/** @internal */
export const deferred: {
  /** Runs all such ops; null while there are none. `compile` sets it. */
  run: (() => void) | null;
} = { run: null };

/** Runs the ops that have not run yet. @internal */
export function runDeferred(): void {
  if (deferred.run !== null) deferred.run();
}
