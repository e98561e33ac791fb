/** Overrides of version counters: for code such as FSDP that refills memory which autograd has saved. */
import { ArgumentError } from '../core/errors.js';
import type { Tensor } from '../core/tensor.js';

/** How the counter is set; tracing replaces it to record the effect. @internal */
export const versionOverride = {
  set(t: Tensor, version: number): void {
    t.sharedVersion().value = version;
  },
};

/**
 * Sets the version counter that a tensor shares with its views. Saved tensors then no longer notice a change.
 *
 * @throws ArgumentError if the version is not a non-negative integer.
 */
export function unsafeSetVersionCounter(t: Tensor, version: number): void {
  if (!Number.isSafeInteger(version) || version < 0) throw new ArgumentError(`unsafeSetVersionCounter: expected a non-negative integer, got ${version}`);
  versionOverride.set(t, version);
}

/** Runs `fn` and puts the version counters of the tensors back as they were. */
export function unsafePreserveVersionCounter<T>(tensors: Tensor | readonly Tensor[], fn: () => T): T {
  const list = Array.isArray(tensors) ? (tensors as readonly Tensor[]) : [tensors as Tensor];
  const versions = list.map((t) => t._version);
  try {
    return fn();
  } finally {
    list.forEach((t, i) => {
      versionOverride.set(t, versions[i] as number);
    });
  }
}
