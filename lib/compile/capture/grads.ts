/** Gradients that a captured function assigns: each run assigns those that it computes. */
import type { Tensor } from '../../core/tensor.js';
import type { Recorder } from './recorder.js';

/** Records that `.grad` of a tensor becomes `value`. */
export function recordGrad(recorder: Recorder, t: Tensor, value: Tensor | null): void {
  if (recorder.belowAutograd) recorder.unsupported('the .grad of a tensor was set');
  recorder.assignedGrads.add(t);
  if (recorder.repeatsCalls) recorder.effect('setGrad', value === null ? [t] : [t, value]);
}
