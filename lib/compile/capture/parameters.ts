/** Leaves that a captured function makes: `requiresGrad_`, and parameters on known memory. */
import type { Tensor } from '../../core/tensor.js';
import { metaOf } from '../graph/node.js';
import type { Recorder } from './recorder.js';

/** Records that a leaf will, or will no longer, require a gradient. */
export function recordRequiresGrad(recorder: Recorder, t: Tensor, value: boolean): void {
  if (recorder.hasEpilogue) recorder.epilogue.requireGrad(recorder, t, value);
  else if (recorder.level !== 'front' && !isInsideStep(recorder, t))
    recorder.unsupported('requiresGrad_() changed a tensor');
  else if (recorder.repeatsCalls) recorder.effect('requiresGrad_', [t], { value });
}

/** Whether a whole step made a tensor, whose history ends with the step. */
const isInsideStep = (recorder: Recorder, t: Tensor): boolean =>
  recorder.isWholeStep && recorder.isOwn(t);

/** Records a parameter, which does not require a gradient yet, on the memory of `data`. */
export function recordParameter(recorder: Recorder, made: Tensor, data: Tensor): void {
  if (recorder.hasEpilogue) recorder.epilogue.makeParameter(recorder, made, data);
  else if (recorder.level !== 'front' && !isInsideStep(recorder, data))
    recorder.unsupported('a Parameter was made');
  if (!recorder.repeatsCalls) return;
  const node = recorder.addEffect('createParameter', {
    inputs: [recorder.valueOf(data)],
    params: { type: made.constructor },
    metas: [metaOf(made)],
  });
  recorder.define(made, { node, output: 0 });
  recorder.parameters.add(made);
}
