/** Backward passes that a captured function runs: a capture of a whole step alone contains them. */
import { hooksOf } from '../guards/leaf-hooks.js';
import type { Recorder } from './recorder.js';
import { refusal, StepRefusal } from './refusals.js';

/**
 * Ends the capture of what a whole step alone can contain; nothing if it is one. @throws
 * StepRefusal
 */
export function needWholeStep(recorder: Recorder, what: string): void {
  if (recorder.isWholeStep) return;
  const { site, path } = recorder.place();
  const { message, details } = refusal(what, site, path);
  throw (recorder.broken ??= new StepRefusal(message, details));
}

/** Called before `name`, which runs a backward pass. */
export function startBackward(recorder: Recorder, name: string): void {
  needWholeStep(recorder, `${name}() was called`);
  if (checksHooks(recorder)) checkBackward(recorder);
}

/**
 * Whether hooks of the program may have effects on tensors only: not where the program asked for
 * one graph of all that it does.
 */
export const checksHooks = ({ hasEpilogue, stepCaller }: Recorder): boolean =>
  hasEpilogue || stepCaller === 'compile';

/**
 * Refuses a backward pass that would run hooks of leaves, which may do more than compute, and one
 * through what was computed before the capture. Neither happens at a run.
 */
function checkBackward(recorder: Recorder): void {
  for (const t of recorder.borrowed.all) {
    if (t.currentGradFn !== null) recorder.unsupported('backward ran on a history from outside');
    if (hooksOf(t).length > 0) recorder.unsupported('backward ran on a leaf that has a hook');
  }
}
