/**
 * Hooks of the library that are no part of graphs: those of sharded and replicated modules, which
 * communicate and manage memory. A captured backward pass calls them where the engine would.
 */
import type { OpaqueHook } from '../../core/backend.js';
import type { Tensor } from '../../core/tensor.js';
import type { Recorder } from './recorder.js';

/**
 * Records the call of a hook, in place of which the capture has memory for its tensors; in a whole
 * step its ops, if it has them. A captured pass has the number of the hook; other graphs registered
 * it themselves, and call it. `readsGrad`: whether it is one of a leaf, whose `.grad` a whole step
 * assigns only at its end.
 */
export function recordOpaqueHook(
  recorder: Recorder,
  { call, memory, inSteps }: OpaqueHook,
  readsGrad: boolean,
): void {
  if (readsGrad && recorder.isWholeStep)
    recorder.unsupported(
      'a hook that no graph contains got the gradient of a parameter, as those of ' +
        'DistributedDataParallel and of useOrigParams,',
      'compile the model by compile(), and run backward and the optimizer',
    );
  const at = recorder.calls.indexOf(call);
  if (at < 0 && recorder.level === 'backward')
    recorder.unsupported('a hook ran that manages memory');
  beginPass(recorder);
  if (recorder.isWholeStep && inSteps !== null) {
    recorder.guards.closures.leaveOut(inSteps);
    inSteps();
    return;
  }
  const filled = memory();
  for (const t of filled) recorder.guards.addManaged(t);
  recorder.guards.closures.leaveOut(call);
  recorder.effect('callOpaque', filled, { fn: at < 0 ? call : at });
  fill(filled);
}

/**
 * Runs a backward pass. In a whole step, hooks that a run calls may queue what happens at its end:
 * the graph has the begin and the end of a pass with such hooks.
 */
export function recordPass(recorder: Recorder, pass: () => void): void {
  const outer = recorder.pass;
  recorder.pass = { isOpen: false };
  try {
    pass();
    if (recorder.pass.isOpen) recorder.effect('endPass', []);
  } finally {
    recorder.pass = outer;
  }
}

function beginPass(recorder: Recorder): void {
  if (!recorder.isWholeStep || recorder.pass === null || recorder.pass.isOpen) return;
  recorder.pass.isOpen = true;
  recorder.effect('beginPass', []);
}

/**
 * Records that a hook is registered on tensors, which each run repeats on its own. False below
 * autograd, where the tape of the capture gets it.
 */
export function recordOpaqueRegistration(
  recorder: Recorder,
  tensors: readonly Tensor[],
  hook: () => void,
  mode: 'any' | 'all',
): boolean {
  if (!recorder.repeatsCalls) return false;
  recorder.guards.closures.leaveOut(hook);
  recorder.effect('registerOpaque', tensors, { hook, mode });
  return true;
}

/** Gives tensors memory in the capture. */
export function fill(memory: readonly Tensor[]): void {
  for (const { storage, nbytes } of memory)
    if (storage !== null && storage.nbytes < nbytes) storage.nbytes = nbytes;
}
