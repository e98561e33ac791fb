/** Overrides version counters, for code such as FSDP that refills memory saved by autograd. */
import { layers } from '../core/hooks.js';
import { checkFunction, checkNumber } from '../core/options.js';
import type { Tensor } from '../core/tensor.js';
import { requireTensor, requireTensors } from '../ops/operand.js';

/**
 * Sets the version counter that a tensor shares with its views. Saved tensors then no longer notice
 * a change.
 *
 * @throws ArgumentError if the version is not a non-negative integer.
 */
export function unsafeSetVersionCounter(t: Tensor, version: number): void {
  requireTensor(t, 'unsafeSetVersionCounter', 't');
  checkNumber('unsafeSetVersionCounter', 'version', version, { from: 0, whole: true });
  layers.backend.effects.setVersion(t, version);
}

/** Runs `fn` and restores the version counters of the tensors. */
export function unsafePreserveVersionCounter<T>(
  tensors: Tensor | readonly Tensor[],
  fn: () => T,
): T {
  const list = Array.isArray(tensors) ? (tensors as readonly Tensor[]) : [tensors as Tensor];
  requireTensors(list, 'unsafePreserveVersionCounter');
  checkFunction('unsafePreserveVersionCounter', 'fn', fn);
  const putBack = list.map((t) => layers.backend.effects.keepVersion(t));
  try {
    return fn();
  } finally {
    for (const restore of putBack) restore();
  }
}
