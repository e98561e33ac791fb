/** Runs long work in time slices, and lets the event loop run between them. */
import { setImmediate as nextTurn } from 'node:timers/promises';

/** Maximal time of a slice. Work yields far more often, so that a slow machine keeps it, too. */
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
