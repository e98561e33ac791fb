/**
 * Results that come later than their collectives are done, for tests of slow connections. Waits of
 * graphs are waits for them.
 */
import type { Storage } from './storage.js';
import type { Tensor } from './tensor.js';

/** @internal */
export interface LateResult {
  /** When it is there, by `performance.now()`. Blocks until the collective is done. */
  arrival(): number;
  /** Blocks until it is there. */
  wait(): void;
}

const late = new WeakMap<Storage, LateResult>();
/** Whether there has been one, so that other programs look nothing up. @internal */
export const lateResults = { exist: false };

/** The result in this memory comes later. @internal */
export function addLateResult(t: Tensor, result: LateResult): void {
  if (t.storage === null) return;
  lateResults.exist = true;
  late.set(t.storage, result);
}

/** What is known of a result; null if it is there when its collective is done. @internal */
export function lateResultOf(t: Tensor): LateResult | null {
  return (lateResults.exist && t.storage !== null && late.get(t.storage)) || null;
}
