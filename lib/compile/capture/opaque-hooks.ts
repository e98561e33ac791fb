/**
 * Hooks of the library that are no part of graphs: those of sharded and replicated modules, which
 * communicate and manage memory. A captured backward pass calls them where the engine would.
 */
import type { Tensor } from '../../core/tensor.js';
import type { Recorder } from './recorder.js';

/** Records the call of a hook, in place of which the capture has memory for these tensors. */
export function recordOpaqueHook(
  recorder: Recorder,
  hook: () => void,
  memory: readonly Tensor[],
): void {
  const at = recorder.calls.indexOf(hook);
  if (at < 0) recorder.unsupported('a hook ran that manages memory');
  recorder.effect('callHook', memory, { hook: at });
  fill(memory);
}

/** Gives tensors memory in the capture. */
export function fill(memory: readonly Tensor[]): void {
  for (const { storage, nbytes } of memory)
    if (storage !== null && storage.nbytes < nbytes) storage.nbytes = nbytes;
}
