/** Long work in slices, between which the event loop turns. */
import { setImmediate as nextTurn } from 'node:timers/promises';

/**
 * Longest time that the event loop is kept waiting. Work yields far more often, so that a slow
 * machine keeps to it, too.
 */
const SLICE_MS = 3;

/** Runs a generator that yields after each small step. */
export async function inSlices<T>(work: Generator<void, T>): Promise<T> {
  for (let start = performance.now(); ; ) {
    const { done, value } = work.next();
    if (done === true) return value;
    if (performance.now() - start < SLICE_MS) continue;
    await nextTurn();
    start = performance.now();
  }
}
