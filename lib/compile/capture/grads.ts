/** Gradients that a captured function assigns: each run assigns those that it computes. */
import { heldOf } from '../../core/sharding.js';
import type { Tensor } from '../../core/tensor.js';
import type { Recorder } from './recorder.js';

/** Records that `.grad` of a tensor becomes `value`. */
export function recordGrad(recorder: Recorder, t: Tensor, value: Tensor | null): void {
  if (recorder.epilogue.leaves.has(t)) recorder.unsupported('the .grad of a new leaf was assigned');
  recorder.assignedGrads.add(t);
  // Backward makes gradients that the program has not seen, unless it assigned them.
  const seen = recorder.level === 'front' || value?.storage?.exposed === true;
  if (!recorder.recordsEffects) return;
  const tensors = value === null ? [t] : [t, value];
  recorder.effect('setGrad', recorder.distributed.has(t) ? tensors.map(heldOf) : tensors, { seen });
}

/**
 * Whether the capture made the memory of a gradient, all of which the gradient covers, no other
 * gradient has taken it, and the pass hands it to no other node, which a hook could change it for.
 */
export function takesOver(recorder: Recorder, grad: Tensor): boolean {
  const { storage, nbytes } = heldOf(grad);
  if (recorder.level === 'front' || !recorder.isOwn(grad) || storage === null) return false;
  if (storage.nbytes !== nbytes || recorder.taken.has(storage) || storage.retains > 1) return false;
  recorder.taken.add(storage);
  return true;
}

/** Whether a call made the memory of a tensor, which is then no input of the graph. */
export function madeMemory({ known }: Recorder, { storage }: Tensor): boolean {
  const first = storage === null ? undefined : known.tensorOn(storage);
  const value = first && known.get(first);
  return value !== undefined && 'node' in value && value.node.kind === 'call';
}
