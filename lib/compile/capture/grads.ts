/** Gradients that a captured function assigns: each run assigns those that it computes. */
import type { Tensor } from '../../core/tensor.js';
import type { Recorder } from './recorder.js';

/** Records that `.grad` of a tensor becomes `value`. */
export function recordGrad(recorder: Recorder, t: Tensor, value: Tensor | null): void {
  recorder.assignedGrads.add(t);
  // Backward makes gradients that the program has not seen.
  const seen = recorder.level === 'front';
  if (recorder.recordsEffects)
    recorder.effect('setGrad', value === null ? [t] : [t, value], { seen });
}
